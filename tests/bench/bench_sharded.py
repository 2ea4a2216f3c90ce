"What statistics cost in a step of a small Llama that two gloo processes divide between them, and what `combine` sends."
import json
import pickle
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import hooklab as hl
from hooklab.stats.measure.measured_steps import Schedule
from hooklab.stats.records import together
from tests.support import sharded

SIZES = {"WORDS": 512, "WIDTH": 256, "HEADS": 8, "HIDDEN": 512, "BLOCKS": 4, "LENGTH": 64}
ROUNDS, AT_ONCE, WARM_UP, RECORDED, ROWS = 11, 4, 4, 500, 8
LATER = "for a diagnosis, a step that is not measured"


def for_diagnosis(model, optimizer): return hl.ActivationStats.for_diagnosis(turns=None).on(model, optimizer)


def of_long_run(model, optimizer):
    "The first step is measured, and the others here are not."
    return hl.ActivationStats.for_diagnosis(every=RECORDED).on(model, optimizer)


RECORDERS = {"defaults": lambda model, optimizer: hl.ActivationStats().on(model),
             "with gradients": lambda model, optimizer: hl.ActivationStats(grads=True).on(model),
             "for a diagnosis": for_diagnosis, LATER: of_long_run}
WAYS = {  # how to divide the model, and what differs from the sizes above
    "FSDP2": (sharded.fully_sharded, {}), "tensor parallelism": (sharded.tensor_parallel, {}),
    "FSDP2, two blocks twice as wide": (sharded.fully_sharded, {"WIDTH": 512, "HIDDEN": 1024, "BLOCKS": 2})}


class Training:
    "Steps of the divided model. All that is compared runs on the same parameters: a copy would find them elsewhere."
    def __init__(self, divide, sizes):
        for name, size in (SIZES | sizes).items(): setattr(sharded, name, size)
        self.model = divide(sharded.llama(), sharded.mesh_of(processes=2))
        self.optimizer, self.x = torch.optim.SGD(self.model.parameters(), lr=.01), sharded.words(0, ROWS)

    def recorder(self, name):
        "A record that has seen some steps, so that the sizes of outputs are known, and the first turn is over."
        stats = RECORDERS[name](self.model, self.optimizer)
        for _ in range(2*WARM_UP if name == LATER else WARM_UP): self.step(stats)
        return stats

    def step(self, stats=None):
        loss = sharded.loss_of(self.model, self.x)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if stats is not None: stats.step(loss)

    def steps(self, stats=None):
        for _ in range(AT_ONCE): self.step(stats)


def seconds(work, *args) -> float:
    "The wall time of rank 0, for processes also wait for each other."
    dist.barrier()  # both processes begin together
    start = perf_counter()
    work(*args)
    return perf_counter() - start


def prices(training) -> dict[str, list[float]]:
    "Median and quartiles of some steps, to the mean of the plain ones before and after them."
    found = {name: [] for name in ("plain", *RECORDERS)}
    def plain():
        for _ in range(2): training.step()  # the memory of a record that was removed is found again
        return seconds(training.steps)
    for turn in range(ROUNDS):
        before = plain()
        for name in [*found][::-1 if turn % 2 else 1]:
            stats = training.recorder(name) if name in RECORDERS else None
            took = seconds(training.steps, stats)
            if stats: stats.remove()
            after = plain()
            found[name].append(2*took/(before + after))
            before = after
    return {name: spread(r) for name, r in found.items()}


def in_500(found) -> list[float]:
    "The price of a run, in which few steps are measured."
    schedule, measured = Schedule(hl.ActivationStats.for_diagnosis().turns), 0
    for schedule.ended in range(RECORDED): measured += schedule.measures
    pairs = zip(found["for a diagnosis"], found[LATER])
    return [round((measured*one + (RECORDED - measured)*other)/RECORDED, 3) for one, other in pairs]


def spread(numbers) -> list[float]: return [round(x, 3) for x in (median(numbers), *quantiles(numbers, n=4)[::2])]


def as_if_recorded(stats, steps):
    "The record, with its last steps repeated until there are so many."
    for history in stats.histories.values():
        tables = history.tables()
        history.fill([*range(steps)], tables.repeat(steps//len(tables) + 1, 1, 1)[:steps])
    if stats.log: stats.log.fill([*range(steps)], stats.log.table().repeat(steps//len(stats.log) + 1, 1)[:steps])


def merging(stats) -> dict[str, float]:
    "How long `combine` takes for so many steps, and how many bytes of sums it sends."
    as_if_recorded(stats, RECORDED)
    sent, all_reduce = [], dist.all_reduce
    def counted(x, *args, **kwargs):
        sent.append(x.nbytes)
        return all_reduce(x, *args, **kwargs)
    told = len(pickle.dumps(together.metadata_of(stats)))
    dist.all_reduce = counted
    try: took = seconds(stats.combine)
    finally: dist.all_reduce = all_reduce
    record = sum(history.tables().nbytes for history in stats.histories.values())
    return {"ms": round(1e3*took, 1), "MB sent": round(sum(sent)/1e6, 2), "messages": len(sent),
            "KB told": round(told/1e3, 1), "MB of the record": round(record/1e6, 2)}


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {}
    for way, how in WAYS.items():
        training = Training(*how)
        of_way = prices(training)
        of_way[f"for a diagnosis, in {RECORDED} steps"] = in_500(of_way)
        found[f"{way}: a step with statistics, to the step without"] = of_way
        rows = []
        for name in RECORDERS:
            if name == LATER: continue
            stats = training.recorder(name)
            stats.remove()
            rows.append({"record": name} | merging(stats))
        found[f"{way}: combine() after {RECORDED} steps"] = rows
    if rank == 0: Path(folder, "found").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def measure():
    with TemporaryDirectory() as folder:
        mp.spawn(work, (folder,), nprocs=2)
        return json.loads(Path(folder, "found").read_text())

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
from hooklab.stats import together
from tests.support import sharded

SIZES = {"WORDS": 512, "WIDTH": 256, "HEADS": 8, "HIDDEN": 512, "BLOCKS": 4, "LENGTH": 64}
RECORDERS = {"defaults": lambda model, optimizer: hl.ActivationStats().on(model),
             "with gradients": lambda model, optimizer: hl.ActivationStats(grads=True).on(model),
             "for a diagnosis": lambda model, optimizer: hl.ActivationStats.for_diagnosis().on(model, optimizer)}
WAYS = {"FSDP2": sharded.fully_sharded, "tensor parallelism": sharded.tensor_parallel}
ROUNDS, AT_ONCE, FIRST, RECORDED, ROWS = 15, 4, 100, 500, 8


def stepping(divide, record=None):
    "A training step of the divided model. `step.stats` is what records it."
    model = divide(sharded.llama(), sharded.mesh_of(processes=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    x = sharded.words(0, ROWS)
    def step():
        loss = sharded.loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step.stats is not None: step.stats.step(loss)
    step.stats = record and record(model, optimizer)
    return step


def seconds(step, times=1) -> float:
    dist.barrier()  # both processes begin together
    start = perf_counter()
    for _ in range(times): step()
    return perf_counter() - start


def ratios(plain, variants) -> dict[str, list[float]]:
    """Median and quartiles of four steps, to the mean of the plain ones before and after them. It is the wall time of
    rank 0, for processes also wait for each other."""
    work = {"plain": plain, **variants}
    for step in work.values(): step()
    found = {name: [] for name in work}
    for turn in range(ROUNDS):
        before = seconds(plain, AT_ONCE)
        for name in [*work][::-1 if turn % 2 else 1]:
            took, after = seconds(work[name], AT_ONCE), seconds(plain, AT_ONCE)
            found[name].append(2*took/(before + after))
            before = after
    return {name: spread(r) for name, r in found.items()}


def in_turns(plain, step, first: list[float]) -> dict[str, list[float]]:
    "The price of a record for the diagnosis from step 100 on, and that of a run of 500 steps."
    while len(step.stats.history) < FIRST: step()
    later = ratios(plain, {"later": step})["later"]
    whole = [round((FIRST*a + (RECORDED - FIRST)*b)/RECORDED, 3) for a, b in zip(first, later)]
    return {f"for a diagnosis, from step {FIRST} on": later, f"for a diagnosis, in {RECORDED} steps": whole}


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
    told = len(pickle.dumps(together.what_is_told(stats)))
    dist.all_reduce = counted
    try: took = seconds(stats.combine)
    finally: dist.all_reduce = all_reduce
    record = sum(history.tables().nbytes for history in stats.histories.values())
    return {"ms": round(1e3*took, 1), "MB sent": round(sum(sent)/1e6, 2), "messages": len(sent),
            "KB told": round(told/1e3, 1), "MB of the record": round(record/1e6, 2)}


def work(rank, folder):
    torch.set_num_threads(1)
    for name, size in SIZES.items(): setattr(sharded, name, size)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {}
    for way, divide in WAYS.items():
        plain, variants = stepping(divide), {name: stepping(divide, record) for name, record in RECORDERS.items()}
        prices = ratios(plain, variants)
        prices |= in_turns(plain, variants["for a diagnosis"], prices["for a diagnosis"])
        found[f"A step under {way} with statistics, to the step without"] = prices
        rows = []
        for name, step in variants.items():
            step.stats.remove()
            rows.append({"record": name} | merging(step.stats))
        found[f"combine() after {RECORDED} steps under {way}"] = rows
    if rank == 0: Path(folder, "found").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def measure():
    with TemporaryDirectory() as folder:
        mp.spawn(work, (folder,), nprocs=2)
        return json.loads(Path(folder, "found").read_text())

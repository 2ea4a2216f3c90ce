"""`find_nan` in several processes over gloo: the process, microbatch and layer that made a NaN; and nobody is left
hanging."""
import random
import time
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.debug import CommDebugMode

import hooklab as hl
from support.planting import MICROBATCHES, STEPS, WAYS, plant_in, plant_in_stage, rows_of
from support.processes import failures_in, started
from support.sharded import BLOCKS, PIPELINES_ABORT, llama, loss_of
from support.traces import ours

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
SCHEDULES = {} if PIPELINES_ABORT else {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
IN_BLOCK = ["norm1", "attention.q", "attention.k", "attention.v", "attention.out", "norm2", "feed_forward.gate",
            "feed_forward.up", "feed_forward.act", "feed_forward.down"]
LAYERS = [f"blocks.{i}.{name}" for i in range(BLOCKS) for name in IN_BLOCK] + ["norm", "head"]


def that_run(cases): return [case for case in cases if case[0] in WAYS or case[0] in SCHEDULES]


def plant(rank, world, way, layer, direction, bad_rank, microbatch, step):
    "What each process is told of one plant; the processes that make it, and have it, are right or this raises."
    found = []
    if way in SCHEDULES:
        plant_in_stage(SCHEDULES[way], rank, world, layer, direction, bad_rank, microbatch, step, found.append)
    else: plant_in(way, rank, world, layer, direction, bad_rank, step, found.append)
    told = [None]*world
    dist.all_gather_object(told, [(e.rank, e.layer, e.direction, e.microbatch, e.n_pass, e.kind, e.made_by)
                                  for e in found])
    wanted = bad_rank, layer, direction, microbatch, step + 1, "layer", (bad_rank,)
    case = way, layer, direction, bad_rank, microbatch, step
    assert told[bad_rank] and told[bad_rank][0] == wanted, (case, told)
    for rank_told in told: assert all(t == wanted for t in rank_told[:1]), (case, told)


def random_plant(seed, world):
    r = random.Random(seed)
    way = [*WAYS, *SCHEDULES][seed % (len(WAYS) + len(SCHEDULES))]
    bad, layer = r.randrange(world), r.choice(LAYERS)
    if way in SCHEDULES:
        bad = r.randrange(2)  # as many stages as blocks
        layer = r.choice([name for name in LAYERS if name.startswith(f"blocks.{bad}") or bad and "." not in name])
    return (way, layer, r.choice(["forward", "backward"]), bad,
            r.randrange(MICROBATCHES) if way in SCHEDULES else None, r.randrange(STEPS))


def check_short(rank):
    for way, layer, direction, bad, microbatch in that_run([
            ("DDP", "blocks.1.feed_forward.up", "forward", 1, None),
            ("DDP", "blocks.0.attention.q", "backward", 0, None),
            ("tensor", "blocks.0.feed_forward.down", "forward", 1, None), ("FSDP2", "head", "backward", 1, None),
            ("1F1B", "blocks.0.attention.v", "forward", 0, 2), ("GPipe", "blocks.1.norm1", "backward", 1, 3)]):
        plant(rank, 2, way, layer, direction, bad, microbatch, 1)


def check_no_collective_more(rank):
    "A good step sends nothing that it does not send without the watch."
    for way in ("DDP", "FSDP2", "tensor", "sequence"):
        counts = []
        for watched in (False, True):
            model = WAYS[way](llama(), 2)
            watch = hl.find_nan(model) if watched else None
            with CommDebugMode() as comm:
                for step in range(2): loss_of(model, rows_of(way, rank, 2, step)).backward()
            counts.append((dict(comm.get_comm_counts()), comm.get_total_counts()))
            if watch: watch.remove()
            assert ours(model) == []
        assert counts[0] == counts[1], (way, counts)


def check_healthy(rank):
    for way in ("DDP", "FSDP2", "tensor", "sequence"):
        found = []
        plant_in(way, rank, 2, "head", "forward", None, 1, found.append)
        assert not found, (way, found)
    for make in SCHEDULES.values():
        plant_in_stage(make, rank, 2, "head", "forward", None, 0, 1, found.append)
        assert not found, found


def check_told_as_one_sentence(rank):
    found = []
    plant_in("tensor", rank, 2, "blocks.1.feed_forward.up", "forward", 1, 1, found.append)
    head = str(found[0]).partition("\n")[0]
    assert head == ("rank 1 of 2 (tp 1): NaN made by blocks.1.feed_forward.up (Linear) in the forward pass "
                    "(pass 2, call 1); rank 0 had it from there"), head
    assert found[0].mesh == {"tp": 1} and found[0].got_it == (0,)


CHECKS = [check_short, check_no_collective_more, check_healthy, check_told_as_one_sentence]


def warnings_are_errors(): warnings.simplefilter("error", hl.HookWarning)


@pytest.fixture(scope="module")
def failures(tmp_path_factory): return failures_in(2, CHECKS, tmp_path_factory.mktemp("two"), warnings_are_errors)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_two_processes(check, failures):
    found = [text for name, text in failures.items() if name.startswith(check.__name__)]
    if found: pytest.fail("\n".join(found), pytrace=False)


# the error is raised: it ends all processes, soon, with the same verdict

def _stops(rank, world, folder, way, direction, bad):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    began = time.monotonic()
    try:
        if way in SCHEDULES:
            plant_in_stage(SCHEDULES[way], rank, world, f"blocks.{bad}.norm2", direction, bad, 1, 1, None)
        else: plant_in(way, rank, world, "blocks.1.norm2", direction, bad, 1, None)
        said = "nothing"
    except hl.NonFiniteError as e: said = f"{e.rank} {e.layer} {e.direction}"
    except BaseException as e: said = f"{type(e).__name__}: {e}"
    (folder/f"said {rank}").write_text(f"{time.monotonic() - began:.1f}\n{said}")


def stop_all(folder, world, way, direction, bad, limit=90):
    context = started(_stops, (world, folder, way, direction, bad), world, join=False)
    until = time.monotonic() + limit
    try:
        for p in context.processes: p.join(max(0, until - time.monotonic()))
        assert not any(p.is_alive() for p in context.processes), "a process hangs"
    finally:
        for p in context.processes: p.kill()
    return [(folder/f"said {r}").read_text().split("\n", 1) for r in range(world)]


STOPS = [("DDP", "forward", 1), ("1F1B", "forward", 0), ("GPipe", "backward", 1)]
MORE_STOPS = [("DDP", "backward", 0), ("FSDP2", "forward", 1), ("FSDP2", "backward", 0), ("tensor", "forward", 0),
              ("sequence", "backward", 1)]


@pytest.mark.parametrize("way, direction, bad", [
    STOPS[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in that_run(STOPS[1:] + MORE_STOPS))])
def test_nobody_hangs(tmp_path, way, direction, bad):
    layer = f"blocks.{bad if way in SCHEDULES else 1}.norm2"
    for seconds, said in stop_all(tmp_path, 2, way, direction, bad):
        assert said == f"{bad} {layer} {direction}" and float(seconds) < 30, (seconds, said)


# fifty plants

def check_fifty(rank):
    failed = []
    for seed in range(50):
        way, layer, direction, bad, microbatch, step = case = random_plant(seed, 4)
        if way in SCHEDULES: continue
        try: plant(rank, 4, *case)
        except AssertionError as e: failed.append(e)
    assert not failed, f"{len(failed)} wrong: {failed[:5]}"


def check_fifty_in_stages(rank):
    failed = []
    for seed in range(50):
        way, layer, direction, bad, microbatch, step = case = random_plant(seed, 4)
        if way not in SCHEDULES: continue
        try: plant(rank, 2, *case)
        except AssertionError as e: failed.append(e)
    assert not failed, f"{len(failed)} wrong: {failed[:5]}"


@pytest.mark.slow
@pytest.mark.parametrize("check, n", [(check_fifty, 4), (check_fifty_in_stages, 2)])
def test_fifty_plants(check, n, tmp_path):
    found = failures_in(n, [check], tmp_path, warnings_are_errors)
    if found: pytest.fail("\n".join(found.values()), pytrace=False)

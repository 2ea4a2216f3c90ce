"Statistics in gloo processes: none waits in a step, and `combine` gives what one process would have seen."
import copy
import warnings
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel

import hooklab as hl
from hooklab.stats.records.reading import file_of
from support.merged import differences, part_of_run, sgd
from support.processes import failures_in, failures_in_two
from support.sharded import (
    ADDS_GRADIENTS,
    PIPELINES_ABORT,
    fully_sharded,
    llama,
    loss_of,
    mesh_of,
    sequence_parallel,
    stage_from,
    tensor_parallel,
    words,
)

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
steps = 5


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))


def batch(step, rank):
    "Of another size in each process."
    return torch.randn(6 + 3*rank, 8, generator=torch.Generator().manual_seed(10*step + rank))


def recorded(model, batches, s, opt=None, loss=torch.Tensor.sum):
    with s.on(model, optimizer=opt):
        for x in batches:
            loss(model(x)).backward()
            if opt: opt.step()
            model.zero_grad()
            s.step()
    return s


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    in_one_process()  # once, for both processes
    return failures_in_two(CHECKS, folder, partial(prepare, folder))


def data_parallel(rank):
    s = recorded(DistributedDataParallel(net()), [batch(i, rank) for i in range(steps)], hl.ActivationStats(with_hist=True))
    alone = s.stats_tensor.clone()
    assert s.names == ["0", "2"] and s.combine() is s
    whole = recorded(net(), [torch.cat([batch(i, r) for r in range(2)]) for i in range(steps)], hl.ActivationStats(with_hist=True))
    torch.testing.assert_close(s.stats_tensor, whole.stats_tensor)
    assert torch.equal(s.history.values("hist"), whole.history.values("hist")) and torch.equal(s.history.values("n"), whole.history.values("n"))
    assert not torch.allclose(alone, s.stats_tensor)


def gradients(rank):
    "Data parallel training minimizes the mean of the losses of its processes: here half of the sum over all samples."
    s = recorded(DistributedDataParallel(net()), [batch(i, rank) for i in range(steps)], hl.ActivationStats(grads=True)).combine()
    whole = [torch.cat([batch(i, r) for r in range(2)]) for i in range(steps)]
    whole = recorded(net(), whole, hl.ActivationStats(grads=True), loss=lambda y: y.sum()/2)
    torch.testing.assert_close(s.gradients.stats_tensor, whole.gradients.stats_tensor)


def no_step_waits(rank):
    "One process does three more steps than the other: it would wait forever."
    s = recorded(net(), [batch(i, rank) for i in range(steps + 3*rank)], hl.ActivationStats()).combine()
    assert s.steps == list(range(steps))  # what all have


def other_layers(rank):
    s = recorded(net(), [batch(0, rank)], hl.ActivationStats(modules="0" if rank else "2"))
    with pytest.raises(ValueError, match="different layers"): s.combine()


def sharded(rank):
    model = net()
    fully_shard(model)
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    s = recorded(model, [batch(i, rank) for i in range(steps)], hl.ActivationStats(grads=True), opt).combine()
    plain = recorded(net(), [torch.cat([batch(0, r) for r in range(2)])], hl.ActivationStats())
    torch.testing.assert_close(s.stats_tensor[:, :, 0], plain.stats_tensor[:, :, 0])
    assert s.names == ["0", "2"] and s.updates.values("update").isfinite().all() and not [h for h in hl.hooks_on(model) if h.ours]


def flattened(rank):
    "The older FSDP flattens parameters; what layers return, and the gradients of that, are whole all the same."
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    whole = [torch.cat([batch(i, r) for r in range(2)]) for i in range(steps)]
    whole = recorded(net(), whole, hl.ActivationStats(grads=True), loss=lambda y: y.sum()/2)
    for each in True, False:
        model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=each,
                                         auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
        s = recorded(model, [batch(i, rank) for i in range(steps)], hl.ActivationStats(grads=True)).combine()
        assert s.names == ["0", "2"] and not [h for h in hl.hooks_on(model) if h.ours]
        torch.testing.assert_close(s.stats_tensor, whole.stats_tensor)
        torch.testing.assert_close(s.gradients.stats_tensor, whole.gradients.stats_tensor)


@cache
def in_one_process():
    "The run that others are held beside."
    return part_of_run(llama())


def check_numbers(s, rank, **options):
    "The record of one process says so; that of all has the numbers of the run in one process."
    world = dist.get_world_size()
    assert f"of rank {rank} of {world}" in repr(s) and s.history.whose.startswith(f" (rank {rank} of {world}")
    assert any(f"this is rank {rank} of {world}" in text for text in hl.diagnose(s).unknown)
    folder = saved_apart(s)
    with warnings.catch_warnings(action="error"): s.combine()
    from_files = hl.ActivationStats.load(sorted(folder.glob("run-*-of-*.safetensors"))) if rank == 0 else s
    for found in (s, from_files):
        assert f"of all {world} processes together" in repr(found) and not found.history.whose
        assert not any("rank" in text for text in hl.diagnose(found).unknown)
        wrong = differences(found, in_one_process(), **options)
        assert not wrong, wrong


def saved_apart(s):
    "A folder of its own, in which each process has saved its record under the name that `autosave` gives it."
    folder = [mkdtemp(dir=FOLDER or None) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    folder = Path(folder[0])
    s.save(file_of(folder/"run.safetensors", s.process))
    assert hl.ActivationStats.load(folder/"run.safetensors").process == s.process  # a process finds its own
    return folder


def autosaved(rank):
    "Each process writes its own file, and what they have been combined to is what `combine` makes of the records."
    folder = [mkdtemp(dir=FOLDER or None) if rank == 0 else None]
    dist.broadcast_object_list(folder)
    file = Path(folder[0])/"run.safetensors"
    s = hl.ActivationStats().autosave(file, seconds=0)
    batches = [batch(i, rank) for i in range(steps)]
    recorded(net(), batches[:3], s)
    dist.barrier()
    others = hl.ActivationStats.load(file_of(file, s.process._replace(rank=1 - rank)))
    here = f"a different process than this one: rank {1 - rank} of 2 and rank {rank} of 2"
    with pytest.raises(ValueError, match=here): others.resume(net())
    dist.barrier()
    s = hl.ActivationStats.load(file).autosave(file).resume()
    recorded(net(), batches[3:], s)
    assert s.steps == list(range(steps))
    s.combine()
    paths = sorted(Path(folder[0]).iterdir())
    assert [path.name for path in paths] == ["run-0-of-2.safetensors", "run-1-of-2.safetensors"]
    for order in paths, paths[::-1]:
        together = hl.ActivationStats.load(order)
        torch.testing.assert_close(together.history.tables(), s.history.tables())
        assert together.steps == s.steps and together.combined
    with pytest.raises(ValueError, match="can't be combined: .* there are 1 files"): hl.ActivationStats.load(paths[:1])
    with pytest.raises(ValueError, match="combined record of all processes"): together.resume(net())


def llama_in_data_parallel(rank): check_numbers(part_of_run(DistributedDataParallel(llama()), rank, dist.get_world_size()), rank)


def llama_fully_sharded(rank):
    s = part_of_run(fully_sharded(llama()), rank, dist.get_world_size())
    assert not s.history.cut and set(s.updates.cut) == set(s.updates.names)  # whole layers, parts of all parameters
    check_numbers(s, rank)


def llama_in_tensor_parallel(rank):
    s = part_of_run(tensor_parallel(llama(), mesh_of(tp=dist.get_world_size())))
    assert s.history.cut["blocks.0.attention.q"] == s.history.cut["blocks.0.feed_forward.act"] == "a part along tp"
    assert "blocks.0" not in s.history.cut and "12 of 23 layers" in s.whence
    judged = [name for finding in hl.diagnose(s) for name in finding.layers]
    assert not set(judged) & set(s.history.cut)
    check_numbers(s, rank)


def llama_in_sequence_parallel(rank):
    s = part_of_run(sequence_parallel(llama(), mesh_of(tp=dist.get_world_size())))
    check_numbers(s, rank, unknown=("grad_norm", "grad_norm_unclipped"))


def no_collective_more(rank):
    "In a step with statistics there is no collective that is not there without them."
    def counted(recording):
        model = sequence_parallel(llama(), mesh_of(tp=dist.get_world_size()))
        optimizer, stats = torch.optim.SGD(model.parameters(), lr=.1), hl.ActivationStats.for_diagnosis()
        if recording: stats.on(model, optimizer)
        for step in range(2):
            with CommDebugMode() as found:
                loss = loss_of(model, words(step))
                loss.backward()
                optimizer.step()
                if recording: stats.step(loss)
        stats.remove()
        return found.get_comm_counts()

    assert counted(True) == counted(False) and sum(counted(False).values())


def files_and_copies(rank):
    "A file knows whose record it has, and is merged as well as what was recorded."
    s = part_of_run(DistributedDataParallel(llama()), rank, dist.get_world_size())
    together = copy.deepcopy(s).combine()
    file = f"{FOLDER}/{rank}.safetensors"
    s.save(file)
    loaded = hl.ActivationStats.load(file)
    assert loaded.whence == s.whence and loaded.process == s.process
    loaded.combine()
    torch.testing.assert_close(loaded.history.tables(), together.history.tables(), equal_nan=True)
    torch.testing.assert_close(loaded.log.table(), together.log.table(), equal_nan=True)
    assert s.whence != loaded.whence == together.whence
    s.report(f"{file}.html")
    with open(f"{file}.html") as page: assert f"rank {rank} of" in page.read()


def what_cannot_be_merged(rank):
    def record(**options): return part_of_run(llama(), **options)
    s = record()
    def refused(s, why):
        before = s.history.tables().clone()
        with pytest.raises(ValueError, match=why): s.combine()
        assert torch.equal(s.history.tables(), before)
    refused(record(counts=False, with_hist=bool(rank)), "different statistics")
    refused(record(grads=bool(rank)), "recorded activations")
    later = record()
    later.history.steps = [step + 10*rank for step in later.steps]
    refused(later, "none of the steps")
    s.process = s.process._replace(rank=0)
    refused(s, "two processes have the record of rank 0")
    s.process = s.process._replace(world=4, rank=rank)
    refused(s, "but there are 2 processes now")
    merged = record().combine()
    refused(merged, "already merged")
    with record(counts=True).on(llama()) as s, pytest.raises(RuntimeError, match="still recording"): s.combine()


def optimizers(rank):
    "A state that is divided among the processes changes no number. What no record can be made of is told."
    def run(model, make): return part_of_run(model, rank, 2, make_optimizer=make)
    def divided(parameters): return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=.1)
    check_numbers(run(DistributedDataParallel(llama()), divided), rank)

    own = run(DistributedDataParallel(llama()), lambda p: sgd([*p][rank::2]))
    before = own.updates.tables().clone()
    with pytest.raises(ValueError, match="rank 1 recorded different parameters"): own.combine()
    assert torch.equal(own.updates.tables(), before)

    model = llama()
    optimizer = sgd(model.parameters())
    whole = run(fully_sharded(model), lambda p: optimizer).combine()
    assert "other parameters in the optimizer" in str(hl.diagnose(whole))


def who_does_not_come(rank):
    "Rank 1 does something else for a while: rank 0 is told, has lost nothing, and can try again."
    s = part_of_run(llama())
    if rank == 0:
        with pytest.raises(RuntimeError, match="combine.*rank 1 does not come"): s.combine(timeout=.5)
    dist.barrier()
    assert s.combine().combined


def summands(rank):
    "Divided after the recording began, the hooks see summands: they are left out, with a sentence."
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with hl.ActivationStats().on(model) as s, warnings.catch_warnings(record=True) as told:
        parallelize_module(model, mesh_of(tp=2), {"0": RowwiseParallel()})
        model(torch.ones(2, 2)).sum().backward()
        s.step()
    assert any("summand" in str(w.message) for w in told) and s.history.values("n").sum() == 0


def in_a_pipeline(rank, schedule_class=None, cut=lambda model: model):
    "Each stage has its own layers and is given microbatches: together they are the run in one process."
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    model = cut(stage_from(llama(), rank))
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = (schedule_class or Schedule1F1B)(stage, 4, loss_fn=loss_of_stage)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    s = hl.ActivationStats(include_paramless=True, grads=True, with_hist=True, loop=True)
    s.attention_too = True
    with s.on(model, optimizer), hl.AttentionStats(sample=None).on(model) as heads:
        for step in range(3):
            optimizer.zero_grad()
            x, losses = words(step), []
            given = [x[:, :-1].contiguous()] if rank == 0 else []
            schedule.step(*given, target=x[:, 1:] if rank else None, losses=losses)
            optimizer.step()
            s.step(torch.stack(losses).mean() if losses else None)
            heads.step()
    assert s.stage == heads.stage == (rank,)
    return s, heads


def loss_of_stage(y, target): return torch.nn.functional.cross_entropy(y.flatten(0, 1), target.flatten())


def pipeline(rank):
    from torch.distributed.pipelining import ScheduleGPipe
    for schedule in None, ScheduleGPipe:
        s, heads = in_a_pipeline(rank, schedule)
        folder = saved_apart(s)
        s.combine()
        heads.combine()
        if rank == 0: assert not differences(hl.ActivationStats.load([*folder.iterdir()]), in_one_process())
        for what in "entropy", "largest_logit": torch.testing.assert_close(heads.values(what), s.attention.values(what))
        wrong = differences(s, in_one_process())
        assert not wrong, wrong
        assert {f"blocks.{i}.norm1" for i in range(2)} <= set(s.facts.layers)


def pipeline_with_the_same_names(rank):
    "A list of layers that was cut counts from 0 in each stage: names begin with the stage, and nothing is mixed up."
    def cut(model):
        model.blocks = torch.nn.ModuleDict({"0": next(iter(model.blocks.values()))})
        return model
    s, heads = [record.combine() for record in in_a_pipeline(rank, cut=cut)]
    whole = in_one_process()
    for stage, name in (0, "blocks.0"), (1, "blocks.1"):
        a, b = s.history.index(f"stage{stage}.blocks.0.attention.q"), whole.history.index(f"{name}.attention.q")
        torch.testing.assert_close(s.history.values("std")[a], whole.history.values("std")[b])
    assert len(s.attention.names) == 2 and heads.names == s.attention.names


def of_heads(model, part=0, parts=1):
    with hl.AttentionStats(sample=None).on(model) as a:
        for step in range(3):
            loss_of(model, words(step).chunk(parts)[part]).backward()
            a.step()
    return a


def heads_alone(rank):
    "A record of attention by itself: copies are averaged, and divided heads stand side by side."
    whole = of_heads(llama())
    whole.process = None
    for a in (of_heads(DistributedDataParallel(llama()), rank, 2), of_heads(tensor_parallel(llama(), mesh_of(tp=2)))):
        assert f"of rank {rank} of 2" in repr(a) and a.combine() is a and "of all 2 processes together" in repr(a)
        for what in "entropy", "largest_logit", "first_share", "query_norm":
            torch.testing.assert_close(a.values(what), whole.values(what))
        with pytest.raises(ValueError, match="already merged"): a.combine()
    with whole.on(llama()), pytest.raises(RuntimeError, match="still recording"): whole.combine()
    late = of_heads(llama())
    late.steps = [step + 10*rank for step in late.steps]
    with pytest.raises(ValueError, match="none of the steps"): late.combine()
    with warnings.catch_warnings(action="ignore"), hl.AttentionStats().on(llama()) as nothing: pass
    with pytest.raises(ValueError, match="rank 0 recorded no steps"): nothing.combine()


FOLDER = ""  # set in each process


def prepare(folder):
    global FOLDER
    FOLDER = folder


CHECKS = (data_parallel, gradients, no_step_waits, other_layers, sharded, flattened, llama_in_data_parallel,
          llama_fully_sharded,
          llama_in_tensor_parallel, llama_in_sequence_parallel, no_collective_more, files_and_copies, autosaved,
          what_cannot_be_merged, optimizers, who_does_not_come, summands, heads_alone, pipeline,
          pipeline_with_the_same_names)
CHECKS = [check for check in CHECKS if not (ADDS_GRADIENTS and check is llama_fully_sharded)
          and not (PIPELINES_ABORT and check in (pipeline, pipeline_with_the_same_names))]


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_in_two_processes(failures, check):
    assert not [text for name, text in failures.items() if name.split()[0] == check]


def hybrid_sharded(rank):
    check_numbers(part_of_run(fully_sharded(llama(), mesh_of(replicate=2, shard=2)), rank, 4), rank)


def on_a_mesh(rank, divide, **options):
    mesh = mesh_of(dp=2, tp=2)
    s = part_of_run(fully_sharded(divide(llama(), mesh["tp"]), mesh["dp"]), rank//2, 2)
    assert str(s.process) == f"rank {rank} of 4 (dp {rank//2}, tp {rank % 2})"
    check_numbers(s, rank, **options)


def sharded_and_tensor_parallel(rank): on_a_mesh(rank, tensor_parallel)
def sharded_and_sequence_parallel(rank): on_a_mesh(rank, sequence_parallel)


def in_half_precision(rank):
    "Parameters are gathered in bfloat16, which has three digits."
    from torch.distributed.fsdp import MixedPrecisionPolicy
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = fully_sharded(llama(), mp_policy=policy)
    s = part_of_run(model, rank, 4, with_hist=False).combine()
    whole = part_of_run(llama(), with_hist=False)
    assert not differences(s, whole, limit=.05, counts=False)


def in_compiled_blocks(rank):
    "Blocks that are compiled and then sharded: outputs and gradients are those of the run in one process."
    model = llama()
    for block in model.blocks.values(): block.compile(backend="aot_eager")
    s = part_of_run(fully_sharded(model), rank, 4, grads=False, with_hist=False)
    s.combine()
    whole = part_of_run(llama(), grads=False, with_hist=False)
    s.attention = whole.attention  # compiled code hides it
    assert not differences(s, whole)


IN_FOUR = (llama_in_data_parallel, llama_in_tensor_parallel, llama_in_sequence_parallel, hybrid_sharded,
           sharded_and_tensor_parallel, sharded_and_sequence_parallel, in_half_precision, in_compiled_blocks)
if ADDS_GRADIENTS: IN_FOUR = llama_in_data_parallel, llama_in_tensor_parallel, llama_in_sequence_parallel


@pytest.fixture(scope="module")
def failures_of_four(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    return failures_in(4, IN_FOUR, folder, partial(prepare, folder))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in IN_FOUR])
def test_in_four_processes(failures_of_four, check):
    assert not [text for name, text in failures_of_four.items() if name.split()[0] == check]


def on_gpus(rank):
    "The same with NCCL, and what is sent is sent from the GPU."
    for divide in (lambda m: DistributedDataParallel(m, device_ids=[rank]), fully_sharded):
        s = part_of_run(divide(llama().cuda()), rank, 2).combine()
        wrong = differences(s, part_of_run(llama().cuda()), limit=1e-4, counts=False)
        assert not wrong, wrong
    s = part_of_run(tensor_parallel(llama().cuda(), mesh_of("cuda", tp=2))).combine()
    assert not differences(s, part_of_run(llama().cuda()), limit=1e-4, counts=False)


@pytest.mark.skipif(torch.cuda.device_count() < 2 or not dist.is_nccl_available(),
                    reason="NCCL takes a GPU for each process")
def test_on_gpus(tmp_path): assert not failures_in(2, [on_gpus], tmp_path, backend="nccl")


def in_compiled_blocks_of_tensor_parallel(rank):
    "Compiled code shows no graph: weights tell what a layer returns, and the others are marked. No break is added."
    from torch._dynamo.utils import counters
    def model():
        torch._dynamo.reset()
        counters.clear()
        m = tensor_parallel(llama(), mesh_of(tp=2))
        for block in m.blocks.values(): block.compile(backend="aot_eager")
        return m

    loss_of(model(), words(0)).backward()
    breaks = sum(counters["graph_break"].values())
    s = part_of_run(model(), grads=False, with_hist=False)
    assert sum(counters["graph_break"].values()) == breaks
    assert s.history.cut["blocks.0.attention.q"] == "a part along tp" and "blocks.0.attention.out" not in s.history.cut
    assert s.history.cut["blocks.0.feed_forward.act"] == "of unknown meaning"
    s.combine()
    whole = part_of_run(llama(), grads=False, with_hist=False)
    assert "blocks.0.feed_forward.act" in s.history.cut and "blocks.0.attention.q" not in s.history.cut
    for name in ("blocks.1.attention.q", "blocks.0.attention.out", "blocks.1.feed_forward.down", "head"):
        for what in ("n", "mean", "std"):
            a, b = s.history.values(what)[s.history.index(name)], whole.history.values(what)[whole.history.index(name)]
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_in_compiled_blocks_of_tensor_parallel(tmp_path):
    assert not failures_in(2, [in_compiled_blocks_of_tensor_parallel], tmp_path)

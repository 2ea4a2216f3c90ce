"Replicas that drift are found at their step, with their names and ranks, and replicas that do not are left alone."
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import hooklab as hl
from support import sharded
from support.processes import failures_in, failures_in_two

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


def be_impatient(): hl.replicas.__kwdefaults__["timeout"] = 20.


def net(seed=0, dropout=0.):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 4))


def batch(step, rank=None):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
    return x if rank is None else x[rank::dist.get_world_size()]


def sgd(model, lr=.1): return torch.optim.SGD(model.parameters(), lr=lr)


def train(model, trained_by, n=6, after=None, call=None, **options):
    """Steps of a model under a watch. `after(i)` is called after step `i`; it may return True to skip the optimizer's
    step."""
    with hl.replicas(model, **options) as watch:
        for i in range(n):
            (call or model)(batch(i, dist.get_rank())).square().mean().backward()
            trained_by.step()
            trained_by.zero_grad()
            if after: after(i)
    return watch


def quiet(watch):
    assert not watch.found and watch.n_checks > 1 and watch.removed and "no drift" in repr(watch), watch


@contextmanager
def told(rank, *words):
    "The first rank is warned, once, and the others are not."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", hl.HookWarning)
        yield
    texts = [str(w.message) for w in caught if w.category is hl.HookWarning]
    assert len(texts) == (rank == 0), texts
    for text in texts: assert all(word in text for word in words), text


def data_parallel_is_quiet(rank):
    for options in {}, {"every": 1}, {"every": 2}:
        model = DistributedDataParallel(net())
        optimizer = sgd(model)
        quiet(train(model, optimizer, every=options.get("every", 100)))
        quiet(train(model, optimizer, optimizer=optimizer, **options))
        assert not hl.hooks_on(model)


def accumulation_is_quiet(rank):
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    with hl.replicas(model, every=1) as by_pass, hl.replicas(model, optimizer, every=1) as by_step:
        for i in range(8):
            if i % 4 < 3:
                with model.no_sync(): model(batch(i, rank)).sum().backward()
            else:
                model(batch(i, rank)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    quiet(by_pass)
    quiet(by_step)
    assert (by_pass.step, by_step.step, by_pass.n_checks, by_step.n_checks) == (8, 2, 9, 4)


def batch_norm_is_quiet(rank):
    def model(): return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    for sends in True, False:
        torch.manual_seed(0)
        wrapped = DistributedDataParallel(model(), broadcast_buffers=sends)
        optimizer = sgd(wrapped)
        watch = train(wrapped, optimizer, optimizer=optimizer, every=1)
        quiet(watch)
        assert set(watch.left_out) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    with told(rank, "1.running_mean"):
        watch = train(wrapped, optimizer, n=1, optimizer=optimizer, every=1, buffers=True)
    assert [row.name for row in watch.found] == ["1.running_mean", "1.running_var"] and watch.found[0].step == 0


def averages_are_quiet(rank):
    model = DistributedDataParallel(net())
    average, optimizer = AveragedModel(model.module), sgd(model)
    watch = hl.replicas(average, optimizer, every=2)
    with watch: quiet(train(model, optimizer, after=lambda i: average.update_parameters(model.module), every=1))
    quiet(watch)
    if rank: average.n_averaged += 1
    with told(rank, "n_averaged"): assert [row.name for row in hl.replicas(average).found] == ["n_averaged"]


def one_bit(rank):
    "The smallest change there is, in one number, after step 3; it is found by the check after that."
    for every, seen, equal in (1, 4, 3), (3, 6, 3), (4, 4, 0), (100, 6, 0):
        for by_step in False, True:
            model = DistributedDataParallel(net())
            optimizer = sgd(model)
            last, steps = model.module[3], []
            def after(i, last=last, by_step=by_step):
                if (i, rank) != (3, 1) or by_step: return
                with torch.no_grad(): last.weight[2, 5:6].copy_(torch.nextafter(last.weight[2, 5:6], torch.tensor(9.)))
            def spoil(*_, last=last, steps=steps):
                if len(steps) == 3 and rank == 1:
                    with torch.no_grad(): last.bias[:1].copy_(torch.nextafter(last.bias[:1], torch.tensor(9.)))
                steps.append(0)
            words = f"after {seen} steps (equal after {equal}): ranks 0 and 1 have different values, by up to"
            with told(rank, words), hl.step_hook(optimizer, spoil if by_step else lambda *_: None):
                watch = train(model, optimizer, after=after, every=every, optimizer=optimizer if by_step else None)
            row = watch.found[0]
            assert (row.step, row.equal_at, row.groups, row.odd) == (seen, equal, [[0], [1]], []), row
            if every in (1, 4):
                assert row.name == ("3.bias" if by_step else "3.weight") and 0 < row.difference < 1e-7, row


def skipped_step(rank):
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    with hl.replicas(model, every=1, action="raise") as watch, pytest.raises(hl.DriftError, match="after 3 steps") as e:
        for i in range(6):
            model(batch(i, rank)).square().mean().backward()
            if i != 2 or rank != 1: optimizer.step()
            optimizer.zero_grad()
    assert [row.name for row in e.value.found] == ["0.weight", "0.bias", "3.weight", "3.bias"] and watch.n_checks == 5
    assert all(row.difference > 0 for row in watch.found) and not hl.hooks_on(model)


def bypassed(rank):
    "Gradients of `model.module` are not averaged."
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    def call(x): return model.module(x) if x[0, 0] == batch(2, rank)[0, 0] else model(x)
    with told(rank, "after 3 steps (equal after 2)"): watch = train(model, optimizer, call=call, every=1)
    assert len(watch.found) == 4 and "4 tensors differ" in repr(watch)


def other_seeds(rank):
    with told(rank, "0.weight differs before the first step"): watch = hl.replicas(net(seed=rank))
    assert [row.name for row in watch.found] == ["0.weight", "0.bias", "3.weight", "3.bias"] and watch.check() == []
    watch.remove()
    with pytest.raises(RuntimeError, match="was removed"): watch.check()
    watch.remove()


def other_rates(rank):
    model = DistributedDataParallel(net())
    with told(rank, "after 1 step (equal after 0)"): train(model, sgd(model, .1*(1 + rank)), every=1)
    model = net(dropout=.5*rank)  # each process for itself, with other masks
    optimizer = sgd(model)
    with told(rank, "after 1 step (equal after 0)"): train(model, optimizer, optimizer=optimizer, every=1)


def one_small_collective(rank):
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    def counts(watched):
        found = []
        with hl.replicas(model, optimizer, every=3) if watched else torch.no_grad():
            with torch.enable_grad():
                for i in range(6):
                    with CommDebugMode() as mode:
                        model(batch(i, rank)).sum().backward()
                        optimizer.step()
                    found.append(sum(mode.get_comm_counts().values()))
        return found
    counts(False)  # DistributedDataParallel sorts its buckets in the second step
    plain, watched = counts(False), counts(True)
    assert [b - a for a, b in zip(plain, watched)] == [0, 0, 1, 0, 0, 1], (plain, watched)


def other_tensors(rank):
    "Other names, shapes and dtypes are told; a layer that comes later is compared."
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4 + rank), nn.Linear(4, 4), nn.Linear(4, 4, bias=not rank))
    model[0].half() if rank else model[0]
    with torch.no_grad():
        for p in model.parameters(): p.fill_(1.)
    with told(rank, "0.weight differs before the first step: float32 4×4 on rank 0, float16 4×4 on rank 1. "
                    "4 more: see `found`"):
        watch = hl.replicas(model)
    assert {row.name: row.has for row in watch.found}["3.bias"] == ["float32 4", "nothing"] and len(watch.found) == 5
    lazy = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(3))
    nn.init.ones_(lazy[0].weight)
    nn.init.ones_(lazy[0].bias)
    watch = hl.replicas(lazy)
    assert watch.left_out["1.weight"] == "it has no numbers yet" and not watch.found
    lazy(torch.ones(2, 4))
    torch.nn.init.constant_(lazy[1].weight, rank)
    torch.nn.init.constant_(lazy[1].bias, 0)
    with told(rank, "1.weight differs"):
        assert [row.name for row in watch.check()] == ["1.weight"] and watch.found[0].difference == 1
    watch.remove()


def kinds_of_tensors(rank):
    def model():
        m = nn.Module()
        m.forward = lambda x: x
        kinds = {"bf16": torch.ones(3).bfloat16(), "complex": torch.ones(3)*1j, "scalar": torch.tensor(2),
                 "empty": torch.empty(0), "flags": torch.tensor([True, False]), "sparse": torch.eye(3).to_sparse(),
                 "meta": torch.ones(3, device="meta"), "rows": torch.eye(3).to_sparse_csr(),
                 "nan": torch.tensor([torch.nan]), "zero": torch.tensor([0.]),
                 "int8": torch.quantize_per_tensor(torch.ones(3), .1, 0, torch.qint8),
                 "turned": torch.arange(6.).view(2, 3).t()}
        for name, t in kinds.items(): m.register_buffer(name, t)
        m.weight = nn.Parameter(torch.ones(2), requires_grad=False)
        m.tied = m.weight
        return m
    same = model()
    if rank: same.turned = same.turned.contiguous()  # other strides
    watch = hl.replicas(same)
    assert not watch.found and watch.left_out == {"meta": "it has no numbers yet"}
    watch.remove()
    changes = {"bf16": lambda t: t.add_(1), "complex": lambda t: t.mul_(2), "scalar": lambda t: t.add_(1),
               "flags": lambda t: t.logical_not_(), "sparse": lambda t: t._values().mul_(2),
               "rows": lambda t: t.values().mul_(2), "nan": lambda t: t.zero_(), "zero": lambda t: t.neg_(),
               "int8": lambda t: t.copy_(torch.zeros(3)), "weight": lambda t: t.data.add_(1),
               "turned": lambda t: t[0].add_(1)}
    other = model()
    if rank:
        for name, change in changes.items(): change(getattr(other, name))
    with told(rank): watch = hl.replicas(other, leave_out="nothing*")
    assert {row.name for row in watch.found} == set(changes)
    assert {row.name: row.difference for row in watch.found}["weight"] == 1
    watch.remove()
    left = hl.replicas(other, leave_out=[name for name in changes if name != "zero"] + ["weight"], buffers=None)
    assert [(row.name, row.difference) for row in left.found] == [("zero", 0.)]
    assert "ranks 0 and 1 have different values, but by no measurable amount (-0 for 0" in str(left.found[0])
    assert left.left_out["weight"] == "leave_out names it"
    left.remove()


def compiled(rank):
    model = torch.compile(net(), backend="eager")
    optimizer = sgd(model)
    watch = train(model, optimizer, every=1, n=3)
    assert watch.n_checks == 4 and watch.found[0].step == 1  # without DDP, each process trains alone
    inner = net()
    inner.compile(backend="eager")
    with pytest.raises(ValueError, match="pass the optimizer"): hl.replicas(inner)
    optimizer = sgd(inner)
    watch = train(inner, optimizer, every=1, n=2, optimizer=optimizer)
    assert watch.n_checks == 4 and watch.found[0].step == 1


def nobody_comes(rank):
    model = net()
    watch = hl.replicas(model, timeout=1)
    if rank == 0:
        with pytest.raises(RuntimeError, match="rank 1 does not come, within 1 second"): watch.check()
    dist.barrier()
    assert watch.check() == [] and watch.n_checks == 2
    with pytest.raises(ZeroDivisionError), watch: 1/0  # no last check after an error
    assert watch.n_checks == 2


def one_ends(rank):
    "A process whose loop is shorter says so when it ends, and nobody waits for it later."
    model, x = net(), batch(0)
    optimizer = sgd(model, 0.)
    with told(rank, "(number of steps) differs after 4 steps (equal after 2): 4 steps on rank 0, 3 steps on rank 1"):
        with hl.replicas(model, optimizer, every=2, timeout=5) as watch:
            for _ in range(8 if rank == 0 else 3):
                model(x).sum().backward()
                optimizer.step()
    assert watch.n_checks == 3 and watch.ended == [1]


def fully_sharded(rank):
    mesh = sharded.mesh_of(dp=2)
    model = sharded.fully_sharded(sharded.llama(), mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    quiet(train_llama(model, optimizer, optimizer=optimizer, every=2))
    quiet(train_llama(model, optimizer, every=1))


def tensor_parallel(rank):
    for divide in sharded.tensor_parallel, sharded.sequence_parallel:
        model = divide(sharded.llama(), sharded.mesh_of(tp=2))
        optimizer = torch.optim.AdamW(model.parameters())
        if divide is sharded.tensor_parallel: quiet(train_llama(model, optimizer, every=2, whole=True))
        def after(i, model=model):
            if (i, rank) != (1, 1): return
            with torch.no_grad():
                local(model.blocks["1"].attention.q.weight).add_(1)  # this half is here alone
                local(model.norm.weight)[3] += .5
        with told(rank, "norm.weight differs after 2 steps (equal after 1): ranks 0 and 1"):
            watch = train_llama(model, optimizer, every=1, whole=True, after=after, n=3)
        first = watch.found[0]
        assert (first.name, first.step) == ("norm.weight", 2) and abs(first.difference - .5) < 1e-6
        assert "blocks.1.attention.q.weight" not in {row.name for row in watch.found if row.step == 2}


def refused(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    with pytest.raises(ValueError, match="use fully_shard"):
        hl.replicas(FullyShardedDataParallel(net(), device_id=torch.device("cpu")))
    for wrong in 0, True, 1.5:
        with pytest.raises(ValueError, match="every must be a number of steps"): hl.replicas(net(), every=wrong)
    with pytest.raises(ValueError, match="action"): hl.replicas(net(), action="stop")
    with pytest.raises(TypeError): hl.replicas(net().forward)
    with pytest.raises(TypeError, match="optimizer"): hl.replicas(net(), net())


def local(p): return p.to_local() if hasattr(p, "to_local") else p


def train_llama(model, trained_by, n=4, whole=False, after=None, **options):
    "`whole`: all processes have the same words."
    with hl.replicas(model, **options) as watch:
        for i in range(n):
            x = sharded.words(i)
            sharded.loss_of(model, x if whole else x[dist.get_rank() % 2::2]).backward()
            trained_by.step()
            trained_by.zero_grad()
            if after: after(i)
    return watch


def drifts(rank, model, culprits, name, groups, part="", change=lambda p: local(p).view(-1)[:1].add_(.5), **options):
    "A parameter is changed after step 1 on the ranks `culprits`, and found with these groups."
    def after(i):
        if i == 1 and rank in culprits:
            with torch.no_grad(): change(model.get_parameter(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)
        watch = train_llama(model, torch.optim.SGD(model.parameters(), .1), after=after, n=3, every=1, **options)
    row = watch.found[0]
    wanted = name.removeprefix("module."), 2, 1, groups, part
    assert (row.name, row.step, row.equal_at, row.groups, row.part) == wanted, row
    assert abs(row.difference - .5) < 1e-3 and len([row for row in watch.found if row.step == 2]) == 1
    return row


def replicated_shards(rank):
    "A mesh whose first dimension has copies, and whose second one shards."
    mesh = sharded.mesh_of(copies=2, shards=2)
    model = sharded.fully_sharded(sharded.llama(), mesh)
    quiet(train_llama(model, torch.optim.AdamW(model.parameters()), every=1))
    drifts(rank, model, [3], "norm.weight", [[1], [3]], "shards 1")


def both_at_once(rank):
    mesh = sharded.mesh_of(dp=2, tp=2)
    for divide in sharded.tensor_parallel, sharded.sequence_parallel:
        model = divide(sharded.llama(), mesh["tp"])
        model = sharded.fully_sharded(model, mesh["dp"])
        optimizer = torch.optim.AdamW(model.parameters())
        with hl.replicas(model, optimizer, every=1) as watch:
            for i in range(4):
                sharded.loss_of(model, sharded.words(i)[rank//2::2]).backward()
                optimizer.step()
                optimizer.zero_grad()
        if divide is sharded.sequence_parallel: quiet(watch)
    model = sharded.fully_sharded(sharded.sequence_parallel(sharded.llama(), mesh["tp"]), mesh["dp"])
    drifts(rank, model, [2], "norm.weight", [[2], [3]], "dp 1", whole=True)


def tensor_and_data_parallel(rank):
    "Halves of two copies, which `DistributedDataParallel` keeps equal."
    mesh = sharded.mesh_of(dp=2, tp=2)
    model = sharded.tensor_parallel(sharded.llama(), mesh["tp"])
    drifts(rank, model, [1, 3], "norm.weight", [[0, 2], [1, 3]], whole=True)
    model = sharded.tensor_parallel(sharded.llama(), mesh["tp"])
    drifts(rank, model, [2], "norm.weight", [[0, 1, 3], [2]], whole=True)
    model = sharded.tensor_parallel(sharded.llama(), mesh["tp"])
    drifts(rank, model, [2], "blocks.0.attention.q.weight", [[0], [2]], "tp 0", whole=True)


def outvoted(rank):
    model = DistributedDataParallel(sharded.llama())
    row = drifts(rank, model, [2], "module.head.weight", [[0, 1, 3], [2]])
    assert row.odd == [2] and "rank 2 differs from ranks 0, 1 and 3, by up to 0.5" in str(row)
    row = drifts(rank, DistributedDataParallel(sharded.llama()), [1, 2], "module.head.weight", [[0, 3], [1, 2]])
    assert row.odd == [] and "ranks 0 and 3 | ranks 1 and 2 have different values" in str(row)


def parts_of_a_run(rank):
    "Two models of the same names, each in two processes."
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    torch.manual_seed(rank//2)
    model = DistributedDataParallel(nn.Linear(3, 2 + rank//2), process_group=groups[rank//2])
    optimizer = sgd(model)
    with hl.replicas(model, optimizer, every=1) as watch:
        for _ in range(2 + rank//2):  # neither waits for the other
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
    quiet(watch)
    plain = nn.Linear(3, 3)
    nn.init.constant_(plain.weight, rank)
    nn.init.zeros_(plain.bias)
    with told(rank % 2): watch = hl.replicas(plain, group=groups[rank//2])
    assert [row.groups for row in watch.found] == [[[0], [1]] if rank < 2 else [[2], [3]]]
    assert watch.found[0].difference == 1
    watch.remove()


def pipeline(rank):
    "Two stages, each of them twice."
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    mesh = sharded.mesh_of(dp=2, pp=2)
    stage = mesh.get_local_rank("pp")
    for schedule in ScheduleGPipe, Schedule1F1B:
        model = sharded.llama()
        if stage == 0: model.head, model.blocks = None, nn.ModuleDict({"0": model.blocks["0"]})
        else: model.embed, model.blocks = None, nn.ModuleDict({"1": model.blocks["1"]})
        if stage == 0: model.norm = None
        optimizer = torch.optim.SGD(model.parameters(), .1)
        run = schedule(PipelineStage(model, stage, 2, torch.device("cpu"), group=mesh.get_group("pp")), 4,
                       loss_fn=lambda y, target: F.cross_entropy(y.flatten(0, 1), target.flatten()))
        with warnings.catch_warnings(), hl.replicas(model, optimizer, every=1) as watch:
            warnings.simplefilter("ignore", hl.HookWarning)
            for i in range(4):
                x = sharded.words(i)
                if stage == 0: run.step(x[:, :-1].contiguous())
                else: run.step(target=x[:, 1:], losses=[])
                if i == 2 and rank == 3:
                    with torch.no_grad(): model.head.weight[1, 1] += .5
                optimizer.step()
                optimizer.zero_grad()
        row = watch.found[0]
        assert (row.name, row.step, row.groups) == ("head.weight", 3, [[1], [3]]), row
        assert abs(row.difference - .5) < 1e-6, row


IN_TWO = (data_parallel_is_quiet, accumulation_is_quiet, batch_norm_is_quiet, averages_are_quiet, one_bit, skipped_step,
          bypassed, other_seeds, other_rates, one_small_collective, other_tensors, kinds_of_tensors, nobody_comes,
          one_ends, fully_sharded, tensor_parallel, refused)


@pytest.fixture(scope="module")
def failures(tmp_path_factory): return failures_in_two(IN_TWO, tmp_path_factory.mktemp("two"), be_impatient)


@pytest.mark.parametrize("check", [check.__name__ for check in IN_TWO])
def test_in_two_processes(failures, check):
    found = [text for name, text in failures.items() if name.split()[0] == check]
    if found: pytest.fail("\n".join(found), pytrace=False)


IN_FOUR = [replicated_shards, both_at_once, tensor_and_data_parallel, outvoted, parts_of_a_run, compiled]
if not sharded.PIPELINES_ABORT: IN_FOUR.append(pipeline)


@pytest.fixture(scope="module")
def failures_of_four(tmp_path_factory): return failures_in(4, IN_FOUR, tmp_path_factory.mktemp("four"), be_impatient)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in IN_FOUR])
def test_in_four_processes(failures_of_four, check):
    found = [text for name, text in failures_of_four.items() if name.split()[0] == check]
    if found: pytest.fail("\n".join(found), pytrace=False)

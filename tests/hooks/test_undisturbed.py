"""Every tool that runs a model leaves it as it was, whatever the model writes to in its forward."""
import copy
import mmap
import random
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import deque
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.prune import random_unstructured

import hooklab as hl
from hooklab.debug.trace import execution_order
from hooklab.hooks.undisturbed import NumbersKept, StateKept, WatchWrites, run_undisturbed, undisturbed
from hooklab.profiling.shapes import dummy_eval, model_sizes
from support.portions import sample, sweep

RAN = []


class Writes(nn.Module):
    "A model that writes to its state in one way, given as a function of the model."
    def __init__(self, write):
        super().__init__()
        self.q, self.k, self.norm, self.drop = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout()
        self.w = nn.Parameter(torch.ones(3))
        self.tied = self.q.weight
        self.flat = nn.Parameter(torch.arange(6.))
        self.part = nn.Parameter(self.flat.detach()[2:5])  # it shares a part of the storage
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.running_mean, self.running_var = nn.Parameter(torch.zeros(3), False), nn.Parameter(torch.ones(3), False)
        self.register_buffer("buffer", torch.ones(3))
        self.table, self.n, self.cache, self.seen = torch.zeros(3), 0, [torch.zeros(3)], {"a": 1}
        self.names, self.last, self.chance = {"a"}, deque([1], maxlen=2), torch.Generator()
        self.side = [self.k.weight, self.frozen]
        self.write = write

    def forward(self, x):
        RAN.append(x)
        with torch.no_grad(): self.write(self)
        return self.norm(self.drop(self.q(x) + self.k(x)*self.w)) + self.part + self.table + self.buffer


def moco(m, decay=.9):
    for q, k in zip(m.q.parameters(), m.k.parameters()): k.mul_(decay).add_(q, alpha=1 - decay)


def moco_by_data(m):
    for q, k in zip(m.q.parameters(), m.k.parameters()): k.data = .9*k.data + .1*q.data


def codebook(m): m.w = nn.Parameter(m.w.detach()*.5 + 1)
def by_optimizer(**options): return lambda m: step_of(m, torch.optim.AdamW(m.k.parameters(), .1, **options))


def step_of(m, optimizer):
    for p in m.k.parameters(): p.grad = torch.ones_like(p)
    optimizer.step()


def learn(m):
    "An inner step, whose gradients come to parameters that have some already."
    with torch.enable_grad(): m.k(torch.ones(1, 3)).sum().backward()


def renorm(m): F.embedding(torch.tensor([0, 1]), m.k.weight, max_norm=.01)
def by_native_code(m): F.batch_norm(torch.randn(4, 3), m.running_mean, m.running_var, training=True)
def replace_layer(m): m.k = nn.Linear(3, 3)
def add_things(m): m.new, m.more, m.layer = nn.Parameter(torch.ones(1)), 1, nn.Linear(1, 1)
def by_foreach(m): torch._foreach_mul_(list(m.k.parameters()), .5)
def rearranged(m): m._parameters["w"] = m._parameters.pop("w")


def numbers_drawn(m): return random.random(), np.random.rand(), torch.rand(1), torch.rand(1, generator=m.chance)


def lose(m): del m.w, m.n


def lost_and_new(m):
    lose(m)
    m.w, m.n = nn.Parameter(torch.zeros(3)), 3


def other_modes(m):
    m.norm.train()
    m.q.eval()


def fill(m):
    m.cache.append(0)
    m.seen.update(b=2)
    m.names.add("b")
    m.last.extend([2, 3])


WAYS = {
    "MoCo": moco, "MoCo by data": moco_by_data, "codebook": codebook, "codebook in place": lambda m: m.w.copy_(m.w*.5),
    "data in place": lambda m: m.k.weight.data.mul_(.5), "view": lambda m: m.k.weight.detach().view(-1)[:2].zero_(),
    "slice": lambda m: m.k.weight[0].fill_(1), "foreach": by_foreach, "item": lambda m: m.w.__setitem__(0, 7.),
    "out": lambda m: torch.mul(m.w, 2, out=m.w), "set": lambda m: m.w.set_(torch.zeros(3)), "renorm": renorm,
    "tied": lambda m: m.tied.zero_(), "flat": lambda m: m.flat.zero_(), "part": lambda m: m.part.zero_(),
    "other shape": lambda m: setattr(m.frozen, "data", torch.zeros(5, dtype=torch.float64)),
    "frozen": lambda m: m.frozen.add_(1), "by a list": lambda m: m.side[0].add_(1), "sgd": by_optimizer(foreach=False),
    "foreach optimizer": by_optimizer(foreach=True), "fused optimizer": by_optimizer(fused=True), "inner step": learn,
    "init": lambda m: nn.init.normal_(m.k.weight), "native": by_native_code, "replaced layer": replace_layer,
    "new things": add_things, "order": rearranged, "lost and new": lost_and_new, "modes": other_modes,
    "chance": numbers_drawn,
    "requires_grad": lambda m: (m.frozen.requires_grad_(), m.k.weight.requires_grad_(False)), "containers": fill,
    "grad": lambda m: setattr(m.k.weight, "grad", torch.ones(3, 3)), "counter": lambda m: setattr(m, "n", m.n + 1),
    "tensor attribute": lambda m: m.table.add_(1), "tensor in a list": lambda m: m.cache[0].add_(1),
    "buffer": lambda m: m.buffer.add_(1), "new buffer": lambda m: setattr(m, "buffer", m.buffer*2),
    "exchange": lambda m: (m.w.data, m.frozen.data) == setattr(m.w, "data", m.frozen.data),
}


def state_of(m):
    "All that must stay: objects, where their numbers are, and their bits."
    found = {}
    for path, module in m.named_modules():
        for name, x in vars(module).items():
            found[path, name] = id(x), str(x) if isinstance(x, bool | int | list | dict | set | deque) else None
        for kind in "_parameters", "_buffers", "_modules":
            found[path, kind, "order"] = list(getattr(module, kind))
    for name, t in [*m.named_parameters(remove_duplicate=False), *m.named_buffers(), ("table", m.table)]:
        grad = None if t.grad is None else (id(t.grad), t.grad.tolist())
        found[name] = id(t), t.data_ptr(), t.requires_grad, t.shape, t.stride(), t.dtype, t.tolist(), grad
    generators = torch.get_rng_state().tolist(), m.chance.get_state().tolist()
    chance = random.getstate(), str(np.random.get_state()), generators
    return found | {"chance": chance}


def trained(m, x): hl.preflight(m, nn.MSELoss(), (x, x), torch.optim.Adam(m.parameters()), seconds=.02)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x): return self.q(x) + self.k(x)


PLAIN = Plain()
TOOLS = {
    "summary": lambda m, x: hl.summary(m, x), "summary in train mode": lambda m, x: hl.summary(m, x, train=True),
    "summary with times": lambda m, x: hl.summary(m, x, columns=["time", "multiply_adds"]),
    "summary on meta": lambda m, x: hl.summary(m, x, device="meta"),
    "cost": lambda m, x: hl.cost(m, x, warmup=1, repeat=1),
    "cost, cold": lambda m, x: hl.cost(m, x, warmup=0, repeat=1),
    "cost forward": lambda m, x: hl.cost(m, x, warmup=1, repeat=1, backward=False),
    "compare": lambda m, x: hl.compare(m, copy.deepcopy(m), x), "compare, second": lambda m, x: hl.compare(PLAIN, m, x),
    "compare backward": lambda m, x: hl.compare(m, copy.deepcopy(m), x, backward=lambda out: out.sum()),
    "preflight": trained, "attention": lambda m, x: hl.attention(m, x), "calls": lambda m, x: hl.calls(m, x),
    "execution_order": lambda m, x: execution_order(m, x), "sizes": lambda m, x: model_sizes(m),
    "dummy_eval": lambda m, x: dummy_eval(m),
}


DIFFERENT = "summary on meta", "cost", "cost, cold", "compare, second", "compare backward", "preflight"


def with_gradients(m):
    for p in m.parameters(): p.grad = torch.full_like(p, 2.) if p.requires_grad else None
    m.norm.eval()
    return m


def check(tool, way):
    m, x = with_gradients(Writes(WAYS[way])), torch.randn(4, 3)
    before = state_of(m)
    RAN.clear()
    with warnings.catch_warnings(action="ignore"), suppress(LookupError, RuntimeError, TypeError, ValueError):
        TOOLS[tool](m, x)
    assert RAN
    after = state_of(m)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    assert not changed, changed


@pytest.mark.parametrize("way", ["MoCo", "codebook"])
@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_leaves_the_model_as_it_was(tool, way): check(tool, way)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_it_writes_to(way): check("summary in train mode", way)


@sweep
@pytest.mark.parametrize(("tool", "way"), sample(6, product(DIFFERENT, WAYS)))
def test_whatever_it_writes_to_for_every_tool(tool, way): check(tool, way)


# ---- What is copied, and when

def test_only_what_is_written_is_copied():
    m = Writes(lambda m: m.k.weight.data.mul_(.5))
    with StateKept(m.modules()) as state, state.watched(), torch.no_grad(): m(torch.ones(4, 3))
    (part, copied), = [pair for pairs in state.numbers.copies.values() for pair in pairs]
    assert part.data_ptr() == m.k.weight.data_ptr() and torch.equal(copied, m.k.weight)


def test_nothing_is_copied_on_meta():
    with torch.device("meta"): m = Writes(moco)
    with undisturbed(m, x := torch.ones(4, 3, device="meta"), meta=True) as model:
        assert modes() == []
        model(x)
    assert not StateKept(m.modules()).numbers.parts
    assert hl.summary(m, x)[""].params


def modes(): return [type(m) for m in torch.utils._python_dispatch._get_current_dispatch_mode_stack()]


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_cost_times_without_the_mode(warmup):
    seen = []
    m = Writes(lambda m: seen.append(WatchWrites in modes()))
    hl.cost(m, torch.ones(4, 3), warmup=warmup, repeat=2)
    assert seen == [True]*min(warmup, 1) + [False]*(len(seen) - min(warmup, 1)) and len(seen) == warmup + 3


def test_each_step_of_cost_begins_at_the_same_state():
    seen = []
    m = Writes(lambda m: (seen.append((m.n, m.k.weight.sum().item())), moco(m), setattr(m, "n", m.n + 1)))
    hl.cost(m, torch.ones(4, 3), warmup=2, repeat=2)
    assert len(seen) == 5 and len(set(seen)) == 1


def test_the_modes_of_others_stay_and_see_no_copies():
    from torch.utils.flop_counter import FlopCounterMode
    m = Writes(moco)
    with FlopCounterMode(display=False) as counter: hl.summary(m, torch.ones(4, 3))
    assert counter.get_total_flops() == 2*2*4*3*3 and modes() == []


@pytest.mark.parametrize("few", [True, False])
def test_compare_copies_few_numbers_as_a_whole_and_watches_many(few, monkeypatch):
    if not few: monkeypatch.setattr("hooklab.hooks.undisturbed.FEW_BYTES", 0)
    seen = []
    a, b = (Writes(lambda m: (seen.append(WatchWrites in modes()), moco(m))) for _ in range(2))
    before = state_of(a), state_of(b)
    hl.compare(a, b, torch.ones(4, 3))
    assert seen[:2] == [not few]*2 and not any(seen[2:])  # later passes know what is written
    assert (state_of(a), state_of(b)) == before and modes() == []


@pytest.mark.parametrize("number", [1., float("nan")])
def test_what_is_as_it_was_is_not_written(number):
    with tempfile.TemporaryFile() as file:
        file.write(np.full(6, number, np.float32).tobytes())
        file.flush()
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings(action="ignore"): t = torch.frombuffer(memory, dtype=torch.float32)
    m = nn.Linear(3, 2, bias=False)
    m.weight = nn.Parameter(t.view(2, 3))
    assert hl.compare(m, m, torch.ones(1, 3)).same  # writing to this memory ends the process


# ---- However the run ends

class Stop(BaseException): pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Stop])
@pytest.mark.parametrize("tool", ["summary", "cost", "cost, cold", "compare", "preflight"])
def test_after_an_error(tool, error):
    def write(m):
        moco(m)
        codebook(m)
        m.n += 1
        raise error
    m, x = Writes(write), torch.randn(4, 3)
    before = state_of(m)
    with pytest.raises((error, RuntimeError)): TOOLS[tool](m, x)
    assert state_of(m) == before and modes() == [] and hl.hooks_on(m) == []


def test_the_second_run_with_gradients():
    class Forces(Writes):
        def forward(self, x):
            super().forward(x)
            return torch.autograd.grad(self.q(x.requires_grad_()).sum(), x)[0]
    m, x = Forces(moco), torch.randn(4, 3)
    before = state_of(m)
    hl.summary(m, x)
    hl.compare(m, m, x)
    assert state_of(m) == before and not x.requires_grad


# ---- What is not seen

def test_a_write_in_another_thread_is_reported():
    def write(m):
        thread = threading.Thread(target=lambda: m.k.weight.detach().add_(1))
        thread.start()
        thread.join()
    m = Writes(write)
    with pytest.warns(hl.HookWarning, match="weight of a Linear: written to where torch does not ask") as found:
        hl.summary(m, torch.ones(4, 3))
    assert len(found) == 1
    with warnings.catch_warnings(action="error"): hl.cost(m, torch.ones(4, 3), warmup=0, repeat=1)  # all are copied


# ---- Parameters of all kinds

class Wrapper(torch.Tensor):
    "A tensor in a tensor, as libraries for quantized weights have them."
    @staticmethod
    def __new__(cls, inner): return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    def __init__(self, inner): self.inner = inner
    def __tensor_flatten__(self): return ["inner", "__doc__"], None  # a DTensor names what is no tensor, too
    @staticmethod
    def __tensor_unflatten__(inner, *_): return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))
        if func._schema.is_mutable: return args[0]
        return Wrapper(out) if isinstance(out, torch.Tensor) else out


class Holds(nn.Module):
    "A model with one parameter of some kind, to which it writes."
    def __init__(self, p, write):
        super().__init__()
        self.p, self.write = p, write

    def forward(self, x):
        with torch.no_grad(): self.write(self.p)
        return x


def inference():
    with torch.inference_mode(): return nn.Parameter(torch.ones(3), requires_grad=False)


def write_inference(p):
    with torch.inference_mode(): p.mul_(3)


def quantized(): return nn.Parameter(torch.quantize_per_tensor(torch.ones(3), .1, 0, torch.qint8), requires_grad=False)
def coo(): return nn.Parameter(torch.eye(3).to_sparse())
def csr(): return nn.Parameter(torch.eye(3).to_sparse_csr())
def times(p): p.mul_(3)


KINDS = {
    "wrapper": (lambda: nn.Parameter(Wrapper(torch.ones(3))), times, lambda p: p.inner),
    "coo": (coo, times, lambda p: p.to_dense()), "csr": (csr, lambda p: p.values().mul_(3), lambda p: p.to_dense()),
    "more entries": (coo, lambda p: p.add_(torch.ones(3, 3).to_sparse()), lambda p: p.to_dense()),
    "inference": (inference, write_inference, lambda p: p), "expanded": (
        lambda: nn.Parameter(torch.ones(1).expand(3)), lambda p: p[:1].mul_(3), lambda p: p),
    "transposed": (lambda: nn.Parameter(torch.arange(6.).view(2, 3).t()), times, lambda p: p),
    "no numbers": (lambda: nn.Parameter(torch.ones(0, 3)), times, lambda p: p),
    "complex": (lambda: nn.Parameter(torch.ones(3, dtype=torch.complex64).conj()), times, lambda p: p),
    "bfloat16": (lambda: nn.Parameter(torch.ones(3, dtype=torch.bfloat16)), times, lambda p: p),
    "NaN": (lambda: nn.Parameter(torch.full((3,), float("nan"))), lambda p: p.fill_(0), lambda p: p),
    "quantized": (quantized, lambda p: p.copy_(torch.zeros(3)), lambda p: p.dequantize()),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_all_kinds(kind):
    make, write, numbers = KINDS[kind]
    m = Holds(p := make(), write)
    before = numbers(p).detach().clone()
    hl.summary(m, torch.ones(3), columns=["output"])
    assert m.p is p and torch.equal(numbers(p).detach().nan_to_num(9), before.nan_to_num(9))
    with StateKept(m.modules()) as state, state.watched(): m(torch.ones(3))
    assert torch.equal(numbers(p).detach().nan_to_num(9), before.nan_to_num(9))


def test_fake_tensors_and_lazy_layers():
    from torch._subclasses import FakeTensorMode
    with FakeTensorMode():
        m = Writes(moco_by_data)
        before = m.k.weight.data
        hl.summary(m, torch.ones(4, 3), columns=["output"])
        assert m.k.weight.untyped_storage()._cdata == before.untyped_storage()._cdata
    m = Writes(codebook)
    m.k, w = nn.LazyLinear(3), m.w
    hl.summary(m, torch.ones(4, 3))
    assert m.w is w and isinstance(m.k.weight, nn.UninitializedParameter)


@pytest.mark.parametrize("parametrize", [
    lambda m: nn.utils.parametrizations.weight_norm(m.k), lambda m: nn.utils.parametrizations.spectral_norm(m.k),
    lambda m: nn.utils.spectral_norm(m.k), lambda m: random_unstructured(m.k, "weight", .5)])
def test_parametrized_layers(parametrize):
    m, x = Writes(lambda m: [p.mul_(.5) for p in m.k.parameters()]), torch.ones(4, 3)
    parametrize(m)
    before = {name: (t.data_ptr(), t.tolist()) for name, t in m.state_dict().items()}
    hl.summary(m, x, train=True)
    hl.cost(m, x, warmup=1, repeat=1)
    assert {name: (t.data_ptr(), t.tolist()) for name, t in m.state_dict().items()} == before


class WritesInScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3), requires_grad=False)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        self.w.mul_(.5)
        return self.norm(x*self.w)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", ["summary in train mode", "summary on meta", "cost", "cost, cold", "compare",
                                  "preflight"])
def test_scripted_parts_that_write(tool):
    m = nn.Sequential(nn.Linear(3, 3), torch.jit.script(WritesInScript()), nn.Linear(3, 3))
    before = {name: t.tolist() for name, t in m.state_dict().items()}
    with torch.no_grad(): TOOLS[tool](m, torch.randn(4, 3))
    assert {name: t.tolist() for name, t in m.state_dict().items()} == before and m[1].training


@pytest.mark.slow
def test_compiled_code_runs_as_such():
    m, x = Writes(lambda m: m.k.weight.mul_(.5)), torch.randn(4, 3)
    compiled = torch.compile(m, backend="eager")
    before = state_of(m)
    hl.compare(copy.deepcopy(m), compiled, x)
    assert state_of(m) == before


@pytest.mark.slow
def test_operations_made_of_functions():
    from torch.nn.attention.flex_attention import flex_attention
    q = torch.randn(1, 1, 16, 8)
    class Attends(Writes):
        def forward(self, x): return super().forward(x), flex_attention(q, q, q)
    m = Attends(moco)
    before = state_of(m)
    with warnings.catch_warnings(action="ignore"): hl.summary(m, torch.ones(4, 3))
    assert state_of(m) == before


def test_a_layer_of_a_distributed_model_is_left_alone(monkeypatch):
    "Weights that are split between processes are exchanged in forward, and must not be put back."
    monkeypatch.setattr("hooklab.hooks.undisturbed.is_sharded", lambda model: True)
    m = Writes(codebook)
    w = m.w
    run_undisturbed(m, torch.ones(4, 3), lambda m, x: m(x))
    assert m.w is not w and not NumbersKept([]).tensors


def split_by(how):
    "A model whose weights are DTensors, in a group of one process."
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    torch.manual_seed(0)
    m, mesh = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), init_device_mesh("cpu", (1,))
    if how == "tensor parallel": return parallelize_module(m, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (m[0], m[2], m): fully_shard(layer, mesh=mesh)
    return m


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.parametrize("tool", ["summary in train mode", "cost", "cost, cold", "compare", "preflight",
                                  "preflight without optimizer"])
@pytest.mark.parametrize("how", ["fully_shard", "tensor parallel"])
def test_weights_that_are_split(how, tool, tmp_path):
    if how == "tensor parallel" and tool.startswith("preflight"): pytest.skip("preflight cannot run it")
    def step(m):
        m(x).sum().backward()
        torch.optim.SGD(m.parameters(), .1).step()
        m.zero_grad()
        return [p.full_tensor().tolist() for p in m.parameters()]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        m, plain, x = split_by(how), split_by(how), torch.randn(8, 4)
        assert step(m) == step(plain)
        with warnings.catch_warnings(action="ignore"):
            if tool.startswith("preflight"):
                optimizer = None if "without" in tool else torch.optim.Adam(m.parameters())
                hl.preflight(m, nn.CrossEntropyLoss(), (x, torch.tensor([0, 1]*4)), optimizer, seconds=.05)
            elif tool == "compare": hl.compare(m, m, x)  # torch cannot copy it
            else: TOOLS[tool](m, x)
        assert step(m) == step(plain)
    finally: dist.destroy_process_group()


class Momentum(nn.Module):
    "Moves its weight each time it runs."
    def __init__(self):
        super().__init__()
        self.weight, self.n = nn.Parameter(torch.ones(2)), 0

    def forward(self, x):
        self.n += 1
        with torch.no_grad(): self.weight.mul_(.5)
        return x*self.weight


def test_what_is_put_back_is_put_back_before_an_interrupt_comes_out(monkeypatch):
    model, put_back, came = Momentum(), NumbersKept.put_back, []
    def interrupted(self):
        if not came:
            came.append(True)
            raise KeyboardInterrupt
        return put_back(self)
    monkeypatch.setattr(NumbersKept, "put_back", interrupted)
    with pytest.raises(KeyboardInterrupt): hl.summary(model, torch.ones(2))
    assert came and model.n == 0 and torch.equal(model.weight, torch.ones(2))


IN_A_NEW_PROCESS = """
import sys
import numpy
import torch
from torch import nn
import hooklab as hl

def are_there(): return [name for name in ("numpy.random", "torch._dynamo") if name in sys.modules]

class Draws(nn.Linear):
    def forward(self, x): return super().forward(x)*numpy.random.rand()

before = are_there()
hl.summary(nn.Linear(3, 3), torch.ones(2, 3))
assert are_there() == before, are_there()  # importing them takes far longer than a summary
print(hl.compare(m := Draws(3, 3), m, torch.ones(2, 3)))
"""


def test_numpys_generator_is_not_imported_for_one_run_and_is_the_same_in_several():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IN_A_NEW_PROCESS], capture_output=True, text=True)
    assert done.returncode == 0 and "equal" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_sign_of_zero_is_put_back(dtype):
    "Zero equals minus zero, and has other bits."
    class Negates(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, dtype=dtype))
        def forward(self, x):
            with torch.no_grad(): self.weight.neg_()
            return x*self.weight
    m = Negates()
    hl.compare(m, Negates(), torch.ones(3, dtype=dtype))
    assert not m.weight.signbit().any()

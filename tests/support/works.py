"""What works where: each kind of use, done on a model in each kind of run, and compared with values that no hook touched.

A kind of use is a function of a `Run`. It compares what it saw, and returns whether it saw anything. A kind of run is a
function that makes a `Run`. `outcome` puts both together: what was used works, or was refused with an error, or saw
nothing and a warning said so. A wrong value and a silence are errors of the test, and no outcome.
"""
import copy
import functools
import json
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import hooklab as hl

# ---------------------------------------------------------------- the model of all runs


class Share(nn.Module):
    "Shares of the sum, which are 0/0 where all is zero."
    def forward(self, x): return x/x.sum(-1, keepdim=True)


class Net(nn.Module):
    "Four layers, of which one works in place and one makes NaN of an input of zeros."
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act = nn.Linear(4, 8, bias=False), nn.ReLU(inplace=True)
        self.share, self.last = Share(), nn.Linear(8, 2)

    def forward(self, x): return self.last(self.share(self.act(self.first(x))))


class Recomputed(Net):
    "The same, and its first three layers are run again in the backward pass."
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def front(self, x): return self.share(self.act(self.first(x)))
    def forward(self, x): return self.last(checkpoint(self.front, x, **self.options))


def by_hand(net: nn.Module, x: Tensor, factor: float = 1.) -> dict[str, Tensor]:
    "What each layer of a `Net` returns, computed past all hooks, when the output of the last one is multiplied."
    first = net.first.forward(x)
    act = F.relu(first)
    share = act/act.sum(-1, keepdim=True)
    return {"first": first, "act": act, "share": share, "last": net.last.forward(share)*factor}


def good_input() -> Tensor: return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
def bad_input() -> Tensor: return good_input()*torch.tensor([[1.], [0.], [1.]])


def loss_of(y: Tensor) -> Tensor: return y.float().pow(2).sum()
def losses_of(y: Tensor) -> dict[str, Tensor]: return {"squares": loss_of(y), "first": y.float()[..., 0].sum()}


# ---------------------------------------------------------------- what a run is


@dataclass
class Run:
    "A model, and how this kind of run calls it."
    model: Any  # what hooklab is given
    twin: nn.Module = field(default_factory=Net)  # the same model, without hooks
    call: Callable = lambda f, x: f(x)  # runs `f`, which is the model or something around it
    step: Callable | None = None  # the same with a backward pass
    truth: Callable = by_hand  # (twin, x, factor) -> {layer: output}
    x: Tensor = field(default_factory=good_input)
    bad: Tensor = field(default_factory=bad_input)
    fault: str = "share"  # the layer that makes NaN of `bad`
    fails: str = "first"  # the layer that raises an error at a wrong input
    compare: Callable | None = None  # calls the first with the second, and gives the losses to the third
    tolerance: float = 0.
    output: Callable = lambda y: y  # of what the call returns, what is compared
    packed: bool = False  # are its weights no parameters?

    def __post_init__(self):
        if self.step is None: self.step = self._step
        if self.compare is None: self.compare = self._compare

    def _compare(self, f, x, parts):
        for _ in range(2):  # data parallel training leaves out the first
            parts(**losses_of(self.output(self.call(f, x))))

    def _step(self, f, x):
        y = self.call(f, x)
        loss_of(self.output(last_of(y))).backward()
        return y

    def wrong_input(self) -> Tensor: # One number too many in each row
        return torch.cat([self.x, self.x[..., :1]], -1)

    def outputs(self, factor=1., of=None) -> dict[str, Tensor]:
        "The right output of each layer, the last one multiplied; `of` is for layers that run more than once."
        return self.truth(self.twin, self.x, factor)

    def gradients(self) -> dict[str, Tensor]:
        "The right gradient of each layer's output."
        right = self.outputs()
        return dict(zip(right, torch.autograd.grad(loss_of(list(right.values())[-1]), list(right.values()))))

    def equal(self, a, b):
        "Compare, whatever kind of tensors they are."
        assert type(a) is type(b), f"a {type(a).__name__} instead of a {type(b).__name__}"
        if a.is_meta or b.is_meta:
            assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
            return
        torch.testing.assert_close(a.detach(), b.detach(), rtol=self.tolerance, atol=self.tolerance)


def last_of(y):
    "The last value of a dict of features; anything else as it is."
    return list(y.values())[-1] if type(y) is dict else y


# ---------------------------------------------------------------- kinds of use: each says whether it saw anything


def capture(run: Run) -> bool:
    def keep(m, i, o): return {"out": o}
    with hl.hook_outputs(run.model, names="*") as hooks, hl.Hooks(run.model, keep, names="*") as own:
        y = run.call(run.model, run.x)
        seen = {h.name: (h.n_calls, h.stored) for h in hooks}
        also = {h.name: (h.n_calls, h.stored and h.stored["out"]) for h in own}
    right = run.outputs()
    run.equal(run.output(y), list(right.values())[-1])
    if not any(n for n, _ in [*seen.values(), *also.values()]): return False
    return compared(run, seen, right) & compared(run, also, right)


def compared(run, seen, right) -> bool:
    if not any(n for n, _ in seen.values()): return False
    for name, value in right.items():
        n, stored = seen[name]
        assert n == 1, f"{name} was called once, and seen {n} times"
        run.equal(stored, value)
    return True


def gradients(run: Run) -> bool:
    def keep(m, grad_in, grad_out): return grad_out[0]
    with (hl.hook_outputs(run.model, names="*", grad=True) as pre,
          hl.Hooks(run.model, keep, names="*", kind="backward") as full):
        y = run.step(run.model, run.x)
        seen = {h.name: (h.n_calls, h.stored[0] if h.n_calls else None) for h in pre}
        also = {h.name: (h.n_calls, h.stored) for h in full}
    run.equal(run.output(y), list(run.outputs().values())[-1])
    if not any(n for n, _ in [*seen.values(), *also.values()]): return False
    right = run.gradients()
    return compared(run, seen, right) & compared(run, also, right)


def edit(run: Run) -> bool:
    *_, (name, plain) = run.outputs().items()
    with hl.edit_output(run.model, lambda m, i, o: o*3, names=name) as hooks:
        y = run.output(run.call(run.model, run.x))
        n_calls = hooks[0].n_calls
    run.equal(y, list(run.outputs(factor=3.).values())[-1] if n_calls else plain)
    run.equal(run.output(run.call(run.model, run.x)), plain)  # and it is off again
    return n_calls > 0


def statistics(run: Run) -> bool:
    with hl.ActivationStats(modules="*").on(run.model) as s:
        y = run.call(run.model, run.x)
        s.step()
        names, rows = list(s.names), s.stats
    run.equal(run.output(y), list(run.outputs().values())[-1])
    found = dict(zip(names, rows[0])) if rows else {}
    right = run.outputs(of="all calls")
    if not any(found.get(name) and found[name]["mean"] == found[name]["mean"] for name in right): return False
    for name, t in right.items():
        t = t.detach().double()
        for what, number in ("mean", t.mean()), ("std", t.std()):
            seen = found[name][what]
            assert abs(seen - number) <= 1e-3*(1 + abs(number)), f"{what} of {name}: {seen}, not {number}"
    return True


def features(run: Run) -> bool:
    right = run.outputs()
    later = list(right)[-2:]  # these are not overwritten, so that they can be had as they are
    for names, options in (list(right), {"detach": True}), (later, {}):
        found = run.call(hl.FeatureExtractor(run.model, names, **options), run.x)
        assert list(found) == names
        for name in names: run.equal(found[name], right[name])
    return True


PARAMETERS = {"first": 8*4, "act": 0, "share": 0, "last": 2*8 + 2}  # of `Net`
MULTIPLY_ADDS = {"first": 3*8*4, "last": 3*2*8}  # what they need for the inputs of these runs


def summary(run: Run) -> bool:
    told = hl.summary(run.model, run.x, columns=("output", "params", "multiply_adds", "calls"))
    rows, right = {row.name: row for row in told.rows}, run.outputs(of="a forward")
    if not any(rows[name].calls for name in right if name in rows): raise Reported(*{rows[name].note for name in right})
    for name, value in right.items():
        row = rows[name]
        assert row.calls == 1 and row.output == tuple(value.shape), f"{name}: {row.calls} calls, {row.output}"
        n_params = PARAMETERS[name] if name in PARAMETERS else \
            sum(p.numel() for p in run.twin.get_submodule(name).parameters())
        assert row.params == (0 if run.packed else n_params), f"{name}: {row.params} parameters"
        n = row.multiply_adds
        assert name not in MULTIPLY_ADDS or n == MULTIPLY_ADDS[name], f"{name}: {n} multiply-adds"
    if run.packed: assert f"{sum(PARAMETERS.values())} values in packed weights" in str(told), told
    return True


def find_nan(run: Run) -> bool:
    with hl.find_nan(run.model, gradients=False): run.call(run.model, run.x)  # nothing to be found
    found = []
    with hl.find_nan(run.model, found.append): run.call(run.model, run.bad)
    if not found: return False
    assert len(found) == 1 and found[0].direction == "forward", found
    if found[0].layer == "(model)": raise Reported(found[0])
    assert found[0].layer == run.fault, found[0]
    return True


def explain_errors(run: Run) -> bool:
    with hl.explain_errors(run.model): run.call(run.model, run.x)  # nothing to be explained
    watch = hl.explain_errors(run.model)
    try:
        with watch: run.call(run.model, run.wrong_input())
    except Exception as error: notes = getattr(error, "__notes__", [])
    else: raise AssertionError("a wrong input was taken")
    if watch.explanation is None: raise Reported("no note, because it is no error of this model")
    assert any(str(watch.explanation) in note for note in notes), notes
    if watch.explanation.layer not in {run.fails, *run.outputs()}: raise Reported(watch.explanation)
    assert watch.explanation.layer == run.fails, watch.explanation
    return True


def compare_losses(run: Run) -> bool:
    with hl.compare_losses(run.model, every=1) as parts: run.compare(run.model, run.x, parts)
    if not parts.history.reached.any(): return False
    layers = {name: [p for p in run.twin.get_submodule(name).parameters(recurse=False) if p.requires_grad]
              for name in parts.history.names}
    norms = parts.history.norms()[-1]  # layer, loss
    for j, loss in enumerate(losses_of(list(run.outputs().values())[-1]).values()):
        for k, params in enumerate(layers.values()):
            found = torch.autograd.grad(loss, params, retain_graph=True) if params else []
            norm = sum((g.double().square().sum() for g in found), start=torch.zeros((), dtype=torch.double)).sqrt()
            torch.testing.assert_close(norms[k, j], norm.cpu(), rtol=max(run.tolerance, 1e-6), atol=0)
    return True


class Reported(Exception):
    "The answer says that the layers were not seen."


USES = {"capture": capture, "gradients": gradients, "edit": edit, "statistics": statistics, "features": features,
        "summary": summary, "find_nan": find_nan, "explain_errors": explain_errors, "compare_losses": compare_losses}


# ---------------------------------------------------------------- what came of it


def outcome(use: Callable, run: Run) -> tuple[str, Any]:
    "`works`, `refused` or `reported`, and the error that was raised or what was said. What is wrong or silent fails."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try: saw = use(run)
        except AssertionError: raise
        except Reported as e: return "reported", str(e)
        except Exception as e: return "refused", e
    said = "; ".join(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, hl.HookWarning)))
    if saw: return "works", said
    assert said, "nothing was seen, and no warning told it"
    return "reported", said


def told(found: tuple[str, Any]) -> str:
    "An outcome as a line."
    word, what = found
    text = f"{type(what).__name__}: {what}" if isinstance(what, Exception) else str(what)
    return ": ".join([word] + [line for line in text.splitlines()[:1] if line])


def fits(found: tuple[str, Any], declared: str) -> bool:
    "Is the outcome the declared one? Of what was said, the declared words must be a part."
    word, what = found
    if word == "works" and not what: return declared == "works"
    said = declared.removeprefix("works; says: " if word == "works" else f"{word}: ")
    if said == declared: return False
    if word == "refused":
        kind, _, said = said.partition(": ")
        if kind not in {c.__name__ for c in type(what).__mro__}: return False
    return said.casefold() in str(what).casefold()


DECLARED = json.loads(Path(__file__).with_name("works.json").read_text(encoding="utf-8"))


def declared(row: str, use: str) -> str:
    cells = next(r for r in DECLARED["rows"] if r["row"] == row)["cells"]
    return cells.get(use, cells["all"])


def check_cell(row: str, use: str, make: Callable):
    "Do it, and compare what came of it with what the table says."
    with made(make) as run: found = outcome(USES[use], run)
    if declared(row, use).startswith("not tried"): return  # but it is not wrong, and not silent
    assert fits(found, declared(row, use)), f"{row}, {use}: {told(found)!r}, but the table says {declared(row, use)!r}"


# ---------------------------------------------------------------- kinds of run

RUNS: dict[str, dict[str, Callable]] = {}  # the rows of the table, and the ways in which each is tried
MARKS: dict[Callable, tuple[str, ...]] = {}


def a_run(row: str, *marks: str, way: str = ""):
    "Register a function that makes a `Run`, maybe as a context manager."
    def register(make):
        RUNS.setdefault(row, {})[way] = make
        MARKS[make] = marks
        return make
    return register


@contextmanager
def made(make: Callable):
    "What `make` makes, taken down afterwards."
    run = make()
    if isinstance(run, Run): yield run
    else:
        with run as run: yield run


@a_run("eager")
def eager(): return Run(Net())


def compiled(**options):
    torch._dynamo.reset()
    return Run(torch.compile(Net(), **options), tolerance=1e-5)


@a_run("compiled")
def compiled_traced(): return compiled(backend="aot_eager")
@a_run("compiled", "slow", way="inductor")
def compiled_inductor(): return compiled()
@a_run("compiled fullgraph")
def fullgraph_traced(): return compiled(backend="aot_eager", fullgraph=True)
@a_run("compiled fullgraph", "slow", way="inductor")
def fullgraph_inductor(): return compiled(fullgraph=True)
@a_run("compiled reduce-overhead", "gpu")
def reduce_overhead():
    torch._dynamo.reset()
    run = Run(torch.compile(Net().cuda(), mode="reduce-overhead"), Net().cuda(), tolerance=1e-5)
    run.x, run.bad = run.x.cuda(), run.bad.cuda()
    run.model(run.x)  # a graph is recorded in the second call
    return run


def replays(net: nn.Module):
    "What `torch.cuda.make_graphed_callables` does to a model: a call runs recorded kernels, and no layer."
    recorded = copy.deepcopy(net)
    net.forward = lambda x: by_hand(recorded, x)["last"]
    return net


@a_run("CUDA graph")
def graph_stand_in(): return Run(replays(Net()))
@a_run("CUDA graph", "gpu", way="make_graphed_callables")
def graphed():
    net, x = Net().cuda().eval(), good_input().cuda()  # in the other mode torch calls the layers
    net.act.inplace = False
    graphed = torch.cuda.make_graphed_callables(net, (x.clone(),))
    return Run(graphed, Net().cuda(), x=x, bad=bad_input().cuda(), tolerance=1e-5)


@a_run("exported")
def exported(): return Run(torch.export.export(Net(), (good_input(),)).module())
@a_run("exported, not a module")
def exported_program(): return Run(torch.export.export(Net(), (good_input(),)), call=lambda f, x: f.module()(x))
@functools.cache
def package():
    "The folder of a compiled model, for as long as the process lives, and what was loaded from it."
    folder = tempfile.TemporaryDirectory()
    program = torch.export.export(Net(), (good_input(),))
    path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder.name}/net.pt2")
    return folder, torch._inductor.aoti_load_package(path)


@a_run("ahead of time", "slow")
def ahead_of_time(): return Run(package()[1], tolerance=1e-5)


def plays(artifact):
    "Hooks are on the model, and what was made from it is called."
    net = Net()
    run = Run(net, call=lambda f, x: (artifact if f is net else f)(x), tolerance=1e-5)
    run.step = run.call
    return run


@a_run("its source hooked")
def exported_from_it(): return plays(torch.export.export(Net(), (good_input(),)).module())
@a_run("its source hooked", "slow", way="ahead of time")
def compiled_from_it(): return plays(package()[1])


@a_run("scripted")
def scripted(): return Run(torch.jit.script(Net().eval()))
@a_run("traced")
def traced(): return Run(torch.jit.trace(Net(), good_input()))
@a_run("frozen")
def frozen(): return Run(torch.jit.freeze(torch.jit.script(Net().eval())))


# --- several devices or processes


@a_run("DataParallel")
def data_parallel():
    return Run(nn.DataParallel(Net(), device_ids=[]))  # without devices it calls the module itself
@a_run("DataParallel on GPUs", "gpu")
def replicas():
    run = Run(nn.DataParallel(Net().cuda()), Net().cuda(), tolerance=1e-5)
    run.x, run.bad = run.x.cuda(), run.bad.cuda()
    return run


@contextmanager
def group_of_one():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        try: yield
        finally: dist.destroy_process_group()


def ddp(): return Run(nn.parallel.DistributedDataParallel(Net()))


def fsdp():
    from torch.distributed.fsdp import fully_shard
    net = Net()
    fully_shard(net.first)
    return Run(fully_shard(net))


@a_run("DDP")
@contextmanager
def ddp_alone():
    with group_of_one(): yield ddp()
@a_run("FSDP2")
@contextmanager
def fsdp_alone():
    with group_of_one(): yield fsdp()


def of_this_process(net: nn.Module, x: Tensor, factor: float = 1.) -> dict[str, Tensor]:
    "The same as `by_hand` where the first two layers return a part in each process."
    n, rank = dist.get_world_size(), dist.get_rank()
    firsts = [*net.first.forward(x).chunk(n, -1)]
    acts = [*map(F.relu, firsts)]
    act = torch.cat(acts, -1)
    share = act/act.sum(-1, keepdim=True)
    return {"first": firsts[rank], "act": acts[rank], "share": share, "last": net.last.forward(share)*factor}


class Awaited(Run):
    "Of tensors that may still be on their way from other processes."
    def equal(self, a, b): super().equal(*(t.wait() if hasattr(t, "wait") else t for t in (a, b)))


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )
    net, whole = Net(), {"input_layouts": Shard(-1), "desired_input_layouts": Replicate(), "use_local_output": True}
    net.act.inplace = False  # torch forbids it behind a divided layer
    plan = {"first": ColwiseParallel(), "share": PrepareModuleInput(**whole),
            "last": RowwiseParallel(input_layouts=Replicate())}
    model = parallelize_module(net, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    return Awaited(model, truth=of_this_process, tolerance=1e-6)


def pipelined():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    def schedule(f, **options): return ScheduleGPipe(PipelineStage(f, 0, 1, torch.device("cpu")), 1, **options)
    def call(f, x): return schedule(f).step(x)
    def step(f, x): return schedule(f, loss_fn=lambda y, target: loss_of(y)).step(x, target=x)
    return Run(Net(), call=call, step=step)


@a_run("tensor parallelism")
@contextmanager
def tensor_parallel_alone():
    with group_of_one(): yield tensor_parallel()
@a_run("pipeline")
@contextmanager
def pipelined_alone():
    with group_of_one(): yield pipelined()


# rows that are tried in two processes as well
IN_TWO = {"DDP": ddp, "FSDP2": fsdp, "tensor parallelism": tensor_parallel}


@a_run("offloaded", "peers")
def offloaded():
    from accelerate import cpu_offload
    return Run(cpu_offload(Net(), torch.device("cpu")))


# --- ways to call


def recomputed(**options):
    x, bad = good_input().requires_grad_(), bad_input().requires_grad_()
    return Run(Recomputed(**options), x=x, bad=bad)


@a_run("checkpointed")
def checkpointed(): return recomputed(use_reentrant=False)
@a_run("checkpointed, reentrant")
def checkpointed_reentrant(): return recomputed(use_reentrant=True)


@a_run("vmap")
def mapped(): return Run(Net(), call=lambda f, x: torch.vmap(f)(x), tolerance=1e-6)


def with_weights(f, weights, x):
    "Call `f`, the model or a `FeatureExtractor` around it, with other weights."
    prefix = "" if isinstance(f, Net) else "model."
    return torch.func.functional_call(f, {prefix + name: p for name, p in weights.items()}, (x,))


@a_run("functional_call")
def functional():
    twin = Net()
    with torch.no_grad(): [p.mul_(1.5) for p in twin.parameters()]
    return Run(Net(), twin, call=lambda f, x: with_weights(f, dict(twin.named_parameters()), x))


@a_run("torch.func.grad")
def transformed():
    twin = Net()
    weights = {name: p.detach() for name, p in twin.named_parameters()}
    def call(f, x):
        def loss(weights):
            y = with_weights(f, weights, x)
            return loss_of(last_of(y)), y
        return torch.func.grad(loss, has_aux=True)(weights)[1]
    run = Run(Net(), twin, call=call, tolerance=1e-6)
    run.step = call
    return run


def low(): return torch.autocast("cpu", torch.bfloat16)


@a_run("autocast")
def autocast():
    def call(f, x):
        with low(): return f(x)
    def truth(net, x, factor=1.):
        with low(): return by_hand(net, x, factor)
    return Run(Net(), call=call, truth=truth)


@a_run("inference_mode")
def inference():
    def call(f, x):
        with torch.inference_mode(): return f(x)
    run = Run(Net(), call=call)
    run.step = call
    return run


@a_run("meta")
def meta():
    with torch.device("meta"): model, twin = Net(), Net()
    return Run(model, twin, x=good_input().to("meta"), bad=bad_input().to("meta"))


# --- other kinds of weights and tensors


@a_run("quantized by torch.ao")
def quantized():
    def quantize(net): return torch.ao.quantization.quantize_dynamic(net.eval(), {nn.Linear}, torch.qint8)
    run = Run(quantize(Net()).train(), quantize(Net()), packed=True)  # statistics are of training
    run.step = run.call  # and yet these layers have no gradients
    return run
def by_torchao(config):
    from torchao.quantization import quantize_
    nets = Net(), Net()
    for net in nets: quantize_(net, config)
    return Run(*nets, x=good_input().requires_grad_(), bad=bad_input().requires_grad_(), tolerance=1e-6)


@a_run("quantized by torchao", "peers")
def quantized_by_torchao():
    from torchao.quantization import Int8WeightOnlyConfig
    return by_torchao(Int8WeightOnlyConfig())
@a_run("quantized by torchao, dynamically", "peers")
def quantized_by_torchao_in_calls():
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig
    run = by_torchao(Int8DynamicActivationInt8WeightConfig())
    run.step = run.call
    return run


class Named(Tensor):
    "A subclass with `__torch_function__` that carries facts, and has a constructor of its own, like MONAI's."
    @staticmethod
    def __new__(cls, t, facts=None):
        new = t.as_subclass(cls)
        new.facts = facts or {}
        return new

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        facts = next((a.facts for a in args if isinstance(a, Named) and hasattr(a, "facts")), {})
        if isinstance(out, Named): out.facts = facts
        return out


class Wrapped(Tensor):
    "A subclass with `__torch_dispatch__` around another tensor."
    @staticmethod
    def __new__(cls, t):
        return Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype, device=t.device, strides=t.stride())
    def __init__(self, t): self.wrapped = t
    def __repr__(self, *, tensor_contents=None): return f"Wrapped({self.wrapped})"
    def __tensor_flatten__(self): return ["wrapped"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda a: a.wrapped if isinstance(a, Wrapped) else a, (args, kwargs or {}))
        out = func(*args, **kwargs)
        return tree_map(lambda o: Wrapped(o) if isinstance(o, Tensor) else o, out)


class OfSubclass(Run):
    def equal(self, a, b):
        assert type(a) is type(b), f"a {type(a).__name__} instead of a {type(b).__name__}"
        plain = [getattr(t.detach(), "wrapped", t.detach()).as_subclass(Tensor) for t in (a, b)]
        torch.testing.assert_close(*plain, rtol=0, atol=0)

    def gradients(self):
        "As torch hands them to the hooks of tensors: plain where the class has no `__torch_dispatch__`."
        right, found = self.outputs(), {}
        for name, t in right.items(): t.register_hook(functools.partial(found.__setitem__, name))
        loss_of(list(right.values())[-1]).backward()
        return {name: found[name] for name in right}


@a_run("subclass, __torch_function__")
def named(): return OfSubclass(Net(), x=Named(good_input(), {"from": "a file"}), bad=Named(bad_input()))
@a_run("subclass, __torch_dispatch__")
def wrapped(): return OfSubclass(Net(), x=Wrapped(good_input()), bad=Wrapped(bad_input()))
@a_run("MONAI's MetaTensor", "peers")
def monai():
    from monai.data import MetaTensor
    return OfSubclass(Net(), x=MetaTensor(good_input()), bad=MetaTensor(bad_input()))


# --- other people's loops


@a_run("Lightning", "peers")
def lightning():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def training_step(self, batch, i):
            self.y = self.f(batch)
            return loss_of(last_of(self.y)) + 0*sum(p.sum() for p in self.parameters())  # features may be detached
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.)

    def fit(module, x, **options):
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **quiet, **options)
        trainer.fit(module, torch.utils.data.DataLoader(x, batch_size=len(x)))

    def call(f, x):
        module = Module(f)
        fit(module, x)
        return module.y

    def compare(f, x, parts):
        class Compared(Module):
            def training_step(self, batch, i): return parts(**losses_of(self.f(batch)))
        fit(Compared(f), x, callbacks=[parts.lightning()])

    run = Run(Net(), call=call, compare=compare)
    run.step = call
    return run


@a_run("Accelerate", "peers")
def accelerate():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    net = Net()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.))
    def truth(net, x, factor=1.):
        with low(): return by_hand(net, x, factor)
    def step(f, x):
        y = f(x)
        accelerator.backward(loss_of(last_of(y)))
        optimizer.step()
        return y
    return Run(model, step=step, truth=truth, output=lambda y: y.bfloat16())


@a_run("Fabric", "peers")
def fabric():
    from lightning.fabric import Fabric
    fabric = Fabric(accelerator="cpu", devices=1)
    net = Net()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.))
    def step(f, x):
        y = f(x)
        fabric.backward(loss_of(last_of(y)))
        optimizer.step()
        return y
    return Run(model, step=step)


class Generation(Run):
    "Its layers run once for each new token."
    def wrong_input(self): return torch.full_like(self.x, 19)  # there are 19 tokens, 0 to 18

    def outputs(self, factor=1., of="the last call"):
        calls = {name: [] for name in ("model.layers.0.mlp", "model.norm", "lm_head")}
        def note(name, o):
            calls[name].append(o.detach().clone())
            return o*factor if name == "lm_head" else None
        handles = [self.twin.get_submodule(name).register_forward_hook(lambda m, i, o, name=name: note(name, o))
                   for name in calls]
        if of == "a forward": self.twin(self.x)
        else: self.call(self.twin, self.x)
        for handle in handles: handle.remove()
        if of == "all calls": return {name: torch.cat([o.flatten() for o in outs]) for name, outs in calls.items()}
        return {name: outs[-1]*(factor if name == "lm_head" else 1) for name, outs in calls.items()}


class FabricModule(nn.Module):
    "Built as Fabric's wrapper is, which holds the model under two names."
    def __init__(self, model):
        super().__init__()
        self._forward_module = self._original_module = model
    def forward(self, x): return self._forward_module(x)


FabricModule.__name__, FabricModule.__module__ = "_FabricModule", "lightning.fabric.wrappers"


@a_run("Fabric", way="built alike")
def like_fabric(): return Run(FabricModule(Net()))


@a_run("generate()", "peers")
def generate():
    import transformers
    config = transformers.LlamaConfig(vocab_size=19, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
                                      num_attention_heads=2, eos_token_id=None, bos_token_id=None)
    def model():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
        model.model.norm = Share()
        with torch.no_grad(): model.model.embed_tokens.weight[18] = 0
        return model

    def call(f, ids):
        return f.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0, output_logits=True,
                          return_dict_in_generate=True)
    ids = torch.arange(5)[None]
    run = Generation(model(), model(), call=call, x=ids, bad=torch.full_like(ids, 18), fault="model.norm",
                     fails="model.embed_tokens", output=lambda y: y.logits[-1][:, None])
    run.step = call
    return run

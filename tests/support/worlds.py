"""Each tool of hooklab as users use it, on tiny models: what `interrupts` interrupts."""
import copy
import itertools
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.hooks.trace import traced


def plain(x: Any) -> Any:
    "The same without tensors and objects, to compare."
    if isinstance(x, Tensor): return [str(x.dtype), list(x.shape), x.tolist()]
    if isinstance(x, dict): return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple | set): return [plain(value) for value in x]
    return x if x is None or isinstance(x, bool | int | float) else str(x)


class Attending(nn.Module):
    "Two layers around attention."
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        heads = [t.unflatten(-1, (2, 2)).transpose(1, 2) for t in (q, k, v)]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2))


class Blows(nn.Module):
    def forward(self, x): return (x - x)/(x - x)


def mlp(): return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
def attending(): return nn.Sequential(nn.Linear(4, 4), Attending())
def random(): return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(.5), nn.Linear(4, 2))
def in_eval_mode(): return random().eval()
def bad(): return nn.Sequential(nn.Linear(3, 4), Blows(), nn.Linear(4, 2))


def theirs():
    "A model with hooks of other code."
    model = mlp()
    for m in model.modules():
        m.register_forward_hook(nothing)
        m.register_forward_pre_hook(nothing, with_kwargs=True)
    return model


def nothing(*given): pass


class World:
    "A model with its optimizer and its data; what happens to it is up to a tool."
    trains = computes_gradients = undisturbed = False
    keeps_random = True

    def __init__(self, build: Callable[[], nn.Module], tmp: Path):
        torch.set_grad_enabled(True)  # a tool that failed before may have left them off
        torch.manual_seed(0)
        self.model, self.tmp, self.folders = build(), tmp, []
        self.other = copy.deepcopy(self.model)
        with torch.no_grad(): next(reversed(list(self.other.parameters()))).add_(1)
        self.models = [self.model, self.other]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.1)
        attends = isinstance(self.model[-1], Attending)
        self.x, self.y = torch.randn(2, 3, 4) if attends else torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
        self.kept = [copy.deepcopy(m.state_dict()) for m in self.models]
        self.start_again()

    def start_again(self):
        "Numbers, gradients and chance as at the beginning; all else stays as it is."
        for m, kept in zip(self.models, self.kept):
            for name, t in m.state_dict().items(): t.data.copy_(kept[name])
            for p in m.parameters(): p.grad = None
        torch.manual_seed(1)

    def folder(self) -> Path:
        self.folders.append(Path(tempfile.mkdtemp(dir=self.tmp)))
        return self.folders[-1]

    def loss(self, out): return F.cross_entropy(out, self.y) if out.ndim == 2 else out.pow(2).mean()

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.x))
        loss.backward()
        self.optimizer.step()
        return loss


class Tool:
    "A function of a world."
    def __init__(self, f: Callable[[World], Any], build: Callable, options: dict):
        self.f, self.build, self.options = f, build, options

    def world(self, tmp: Path) -> World:
        world = World(self.build, tmp)
        vars(world).update(self.options)
        return world

    def warm_up(self, tmp: Path):
        for _ in range(2): self(self.world(tmp))

    def __call__(self, world: World) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain(self.f(world))


TOOLS: dict[str, Tool] = {}


def tool(build=mlp, name=None, **options):
    def entered(f):
        TOOLS[name or f.__name__] = Tool(f, build, options)
        return f
    return entered


graded, training = {"computes_gradients": True}, {"trains": True, "computes_gradients": True}
undisturbed = {"undisturbed": True}


# ---- hooks

@tool()
def hook_output(w):
    with hl.hook_output(w.model[0]) as h: w.model(w.x)
    return h.stored


@tool(theirs, "hook_outputs, where other hooks are")
@tool()
def hook_outputs(w):
    with hl.hook_outputs(w.model, names="*") as hooks: w.model(w.x)
    return hooks.by_name


@tool()
def hooks_with_options(w):
    seen = []
    def see(m, args, kwargs): seen.append(args[0].sum())
    with hl.Hooks(w.model, see, kind="forward_pre", names="*", with_kwargs=True, prepend=True):
        with hl.Hook(w.model[0], lambda m, i, o: o.sum(), always_call=True, root=w.model, keep=2) as h: w.model(w.x)
    return seen, h.calls


@tool(**graded)
def removed_by_hand(w):
    hooks = hl.hook_outputs(w.model, names="*", grad=True)
    try: w.loss(w.model(w.x)).backward()
    finally: hooks.remove()
    return hooks.by_name


@tool(theirs)
def all_removed(w):
    found = []
    try:
        hl.hook_outputs(w.model, names="*")
        hl.hook_outputs(w.model, names="*", grad=True)
        w.model(w.x)
        found += hl.hooks_on(w.model)
    finally: found.append(hl.remove_hooks(w.model))
    return len(found), found[-1]


@tool(**graded)
def gradients_of_layers(w):
    with hl.Hooks(w.model, lambda m, i, o: o, kind="backward", names="*") as hooks: w.loss(w.model(w.x)).backward()
    return [h.calls for h in hooks]


@tool(**graded)
def hook_calls(w):
    with hl.hook_calls(w.model, [F.linear, F.relu]) as calls: w.loss(w.model(w.x)).backward()
    return [(c.name, c.output) for c in calls]


@tool(**graded)
def traced_pass(w):
    with traced(w.model, 10**6) as trace: w.loss(w.model(w.x)).backward()
    return [(op.name, [v.numbers for v in op.made]) for op in trace.top]


@tool(**graded)
def gradients_of_calls(w):
    with hl.hook_calls(w.model, [F.linear, F.batch_norm], kind="backward") as calls: w.loss(w.model(w.x)).backward()
    return {c.name: c.gradient for c in calls}


@tool(**graded)
def hooks_on_tensors(w):
    p = w.model[0].weight
    both = list(w.model.parameters())
    with hl.tensor_hook(p) as a, hl.post_accumulate(p) as b, hl.multi_grad_hook(both, nothing) as c:
        w.loss(w.model(w.x)).backward()
    return a.stored, b.stored, [h.n_calls for h in c]


@tool(**graded)
def parameter_hooks(w):
    with hl.parameter_hooks(w.model) as hooks:
        w.model.load_state_dict(w.model.state_dict(), assign=False)
        w.loss(w.model(w.x)).backward()
    return hooks.by_name


@tool(**graded)
def clipped_gradients(w):
    with hl.clipped_gradients(w.model, .01): w.loss(w.model(w.x)).backward()
    return [p.grad for p in w.model.parameters()]


@tool(**graded)
def clipped_norms(w):
    with hl.clipped_gradients(w.model, .01, by="norm", accumulated=True): w.loss(w.model(w.x)).backward()
    return [p.grad for p in w.model.parameters()]


@tool(**graded)
def gradient_clipper(w):
    try: w.loss(hl.gradient_clipper(w.model, .01)(w.x)).backward()
    finally: hl.remove_hooks(w.model)
    return [p.grad for p in w.model.parameters()]


@tool(**graded)
def global_hooks(w):
    with hl.global_hook(lambda m, i, o: o) as a, hl.global_hook(lambda m, i, o: None, kind="backward") as b:
        with hl.global_hook(nothing, kind="module_registration") as c:
            nn.Sequential(nn.ReLU())
            w.loss(w.model(w.x)).backward()
    return a.stored, b.n_calls, c.n_calls


@tool(**training)
def step_hooks(w):
    seen = []
    def after(*given): seen.append("after")
    def before(*given): seen.append("before")
    with hl.step_hook(w.optimizer, after), hl.step_hook(w.optimizer, before, before=True): w.step()
    return seen


@tool()
def state_dict_hooks(w):
    seen = []
    def see(*given): seen.append(len(given))
    with (hl.state_dict_hook(w.model, see), hl.state_dict_hook(w.model, see, before=True),
          hl.state_dict_hook(w.model, see, load=True), hl.state_dict_hook(w.model, see, load=True, before=True)):
        w.model.load_state_dict(w.model.state_dict())
    return seen


@tool(**graded)
def saved_tensors(w):
    with hl.saved_tensors(lambda t: t.clone(), lambda t: t): w.loss(w.model(w.x)).backward()
    return w.model[0].weight.grad


# ---- edits

@tool()
def edit_output(w):
    with hl.edit_output(w.model, hl.scale(2.), names=["0", "3.0"]) as edits: out = w.model(w.x)
    return out, len(edits)


@tool()
def edit_input(w):
    steered = hl.steer(torch.ones(4))
    with hl.edit_output(w.model[0], steered), hl.edit_input(w.model, hl.ablate([0]), names="3.0", call=0):
        return w.model(w.x)


@tool()
def edit_calls(w):
    with hl.edit_calls(w.model, F.relu, hl.patch(1.)) as edits: out = w.model(w.x)
    return out, edits.names


# ---- debug

@tool()
def execution_order(w): return hl.execution_order(w.model, w.x)


@tool()
def verbose_execution(w):
    lines = []
    with hl.VerboseExecution(w.model, file=lines.append) as m: m(w.x)
    with hl.ForwardCheck(w.model, file=lines.append) as m: m(w.x)
    return lines


@tool(**graded)
def checked_gradients(w):
    lines = []
    with hl.checked_gradients(w.model, file=lines.append): w.loss(w.model(w.x)).backward()
    return lines


@tool(**graded)
def timeline(w):
    with hl.Timeline(w.model) as t: w.loss(w.model(w.x)).backward()
    return str(t)


@tool()
def calls(w): return str(hl.calls(w.model, w.x))


@tool(**graded)
def find_nan(w):
    with hl.find_nan(w.model): w.loss(w.model(w.x)).backward()
    return w.model[0].weight.grad


@tool(bad, **graded)
def find_nan_that_finds(w):
    found = []
    with hl.find_nan(w.model, on_find=found.append): w.loss(w.model(w.x)).backward()
    return found


@tool(**training)
def replicas(w):
    with hl.replicas(w.model, w.optimizer, every=1) as found: w.step()
    return str(found)


@tool(**training)
def replicas_by_passes(w):
    with hl.replicas(w.model, every=1) as found:
        for _ in range(2): w.step()
    return str(found)


@tool(in_eval_mode, **undisturbed)
def compare(w): return str(hl.compare(w.model, w.other, w.x))


@tool(**undisturbed)
def compare_backward(w): return str(hl.compare(w.model, w.other, w.x, backward=w.loss))


@tool(**undisturbed)
def record(w):
    path = hl.record(w.model, w.folder()/"run.safetensors", w.x)
    return str(hl.compare(path, w.other, w.x)).replace(str(path), "")


# ---- profiling

@tool(random, **undisturbed)
def summary(w): return str(hl.summary(w.model, w.x, n=80, columns=("input", "output", "params", "multiply_adds")))


@tool(random, **undisturbed)
def summary_of_sizes(w): return str(hl.summary(w.model, input_size=(2, 3), n=80, train=True))


@tool(random, **graded)
def cost(w): return [row.name for row in hl.cost(w.model, w.x, warmup=1, repeat=1).rows]


@tool(random, **undisturbed)
def made_up_inputs(w): return hl.dummy_eval(w.model), hl.model_sizes(w.model), str(hl.model_summary(w.model))


# ---- features

@tool()
def feature_extractor(w): return hl.FeatureExtractor(w.model, ["0", "3"])(w.x)


@tool(in_eval_mode)
def feature_extractor_that_stops(w): return hl.FeatureExtractor(w.model, ["2"], stop=True)(w.x)


@tool()
def extract(w):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(w.x), batch_size=2)
    return hl.load_features(hl.extract(w.model, loader, ["0", "3"], w.folder(), progress=False), "0")[:]


@tool()
def batch_extractor(w):
    found = hl.BatchExtractor(w.model, ["0"], "x")({"x": w.x.numpy()})
    return {name: str(x) for name, x in found.items()}


@tool(attending)
def by_token(w):
    with hl.by_token(w.model) as h: w.model(w.x)
    return h["0"]


@tool(attending)
def attention(w): return dict(hl.attention(w.model, w.x))


# ---- stats

@tool(**training)
def activation_stats(w):
    stats = hl.ActivationStats(grads=True)
    with stats.on(w.model, w.optimizer):
        for _ in range(2): stats.step(w.step())
    return str(stats), stats.history.values("mean")


@tool(**training)
def activation_stats_by_hand(w):
    stats = hl.ActivationStats(samples=True, every=2, turns=1)
    try:
        stats.on(w.model, w.optimizer, auto=True)
        for _ in range(2): w.step()
    finally: stats.remove()
    return str(stats)


@tool(**training)
def a_loop_that_clips(w):
    stats, scaler = hl.ActivationStats(turns=1), torch.amp.GradScaler("cpu", init_scale=8.)
    with stats.on(w.model, w.optimizer, scaler=scaler):
        for _ in range(3):
            w.optimizer.zero_grad()
            scaler.scale(w.loss(w.model(w.x))).backward()
            scaler.unscale_(w.optimizer)
            nn.utils.clip_grad_norm_(w.model.parameters(), .1)
            nn.utils.clip_grad_value_(w.model.parameters(), .05)
            scaler.step(w.optimizer)
            scaler.update()
            stats.step()
    return stats.log.unclipped_is(), stats.log.values("grad_norm_unclipped")


@tool(**training)
def for_diagnosis(w):
    stats = hl.ActivationStats.for_diagnosis()
    with stats.on(w.model, w.optimizer):
        for _ in range(2): stats.step(w.step())
    return str(hl.diagnose(stats))


@tool(attending, **training)
def attention_stats(w):
    stats = hl.AttentionStats()
    with stats.on(w.model):
        for _ in range(2):
            w.step()
            stats.step()
    return str(stats)


@tool(attending, **training)
def for_diagnosis_of_attention(w):
    stats = hl.ActivationStats.for_diagnosis()
    with stats.on(w.model, w.optimizer):
        for _ in range(2): stats.step(w.step())
    return str(hl.diagnose(stats))


def by_a_clock_of_its_own():
    "Time goes on by a millisecond whenever somebody asks, so that what is tried does not depend on the machine."
    return mock.patch("time.monotonic", map(1e-3.__mul__, itertools.count()).__next__)


@tool(random, **undisturbed)
def preflight(w):
    with by_a_clock_of_its_own():
        return str(hl.preflight(w.model, F.cross_entropy, (w.x, w.y), w.optimizer, overfit=False))


@tool(random, keeps_random=False, **graded)
def preflight_by_heart(w):
    with by_a_clock_of_its_own():
        return str(hl.preflight(w.model, F.cross_entropy, (w.x, w.y), w.optimizer, seconds=.03))


@tool(**training)
def learner(w):
    stats, batches = hl.ActivationStats(), [(w.x, w.y)]
    learn = hl.Learner((batches, batches), w.model, F.cross_entropy, torch.optim.SGD, .1, cbs=[stats], quiet=True)
    learn.fit(1)
    return str(stats)

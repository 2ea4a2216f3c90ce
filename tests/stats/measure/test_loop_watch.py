"""Watching a loop changes nothing in it, leaves nothing behind, and keeps what it saw in bounded memory."""
import copy
import gc
import math
import pickle
import threading
import weakref
from dataclasses import dataclass
from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.measure.loop_watch import InputsAndOutputs
from hooklab.stats.records.run_log import as_number

torch.set_num_threads(1)
n_steps = 30


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.second, self.use_reentrant = (
            nn.Linear(6, 8),
            nn.Sequential(nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)),
            use_reentrant,
        )

    def forward(self, x): return checkpoint(self.second, self.first(x), use_reentrant=self.use_reentrant)


class Norms(nn.Module):
    "What keeps a state, is in place, or is random."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(8, 3)
        )

    def forward(self, x): return self.body(x)


def mlp(): return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


# Loops: each takes what wraps it, and returns all that could differ.

class Loop:
    "A loop to be run with and without a recorder. `outer` is what the loop calls."
    model_of, momentum, optimizer = staticmethod(mlp), 0., torch.optim.SGD
    scaler, set_to_none, lr = None, True, .05

    def __init__(self):
        torch.manual_seed(0)
        self.model, self.seen = self.model_of(), []
        self.outer = self.wrap(self.model)
        self.optimizers = self.make_optimizers()
        self.data = torch.Generator().manual_seed(3)

    def wrap(self, model): return model
    def make_optimizers(self): return [self.optimizer(self.model.parameters(), lr=self.lr)]
    def batch(self): return torch.randn(12, 6, generator=self.data), torch.randint(3, (12,), generator=self.data)
    def loss(self): return F.cross_entropy(self.outer((b := self.batch())[0]), b[1])

    def step(self):
        opt, = self.optimizers
        opt.zero_grad(set_to_none=self.set_to_none)
        loss = self.loss()
        loss.backward()
        self.note(loss)
        opt.step()
        return loss

    def note(self, loss):
        self.seen += [loss.detach().clone(), *(p.grad.clone() for p in self.model.parameters() if p.grad is not None)]

    def run(self, stats=None, n=n_steps):
        for _ in range(n):
            loss = self.step()
            if stats: stats.step(loss)
        return [*self.seen, *self.model.state_dict().values(), torch.get_rng_state()]


class Adam(Loop): optimizer = torch.optim.Adam
class Fused(Loop):
    def make_optimizers(self): return [torch.optim.AdamW(self.model.parameters(), lr=.01, fused=True)]
class InPlace(Loop): set_to_none = False
class WithState(Loop): model_of = Norms
class Reentrant(Loop):
    def model_of(self): return Checkpointed(True)
class NotReentrant(Loop):
    def model_of(self): return Checkpointed(False)


class WholeCheckpoint(Loop):
    def loss(self):
        x, y = self.batch()
        return F.cross_entropy(checkpoint(self.outer, x, use_reentrant=False), y)


class LBFGS(Loop):
    optimizer = torch.optim.LBFGS
    def step(self):
        x, y = self.batch()
        opt, = self.optimizers
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(self.outer(x), y)
            loss.backward()
            self.note(loss)
            return loss
        return opt.step(closure)


class Closure(LBFGS): optimizer = torch.optim.SGD


class Scaled(Loop):
    "The first steps overflow and are skipped."
    def make_optimizers(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.**127)
        return super().make_optimizers()

    def step(self):
        opt, = self.optimizers
        opt.zero_grad()
        loss = self.loss()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.)
        self.note(loss)
        self.scaler.step(opt)
        self.scaler.update()
        return loss


class Accumulates(Loop):
    def step(self):
        opt, = self.optimizers
        for _ in range(3):
            loss = self.loss()/3
            loss.backward()
            self.note(loss)
        opt.step()
        opt.zero_grad()
        return loss


class Gan(Loop):
    "Two optimizers, and a root that is never called."

    def model_of(self):
        return nn.ModuleDict(
            {
                "g": nn.Sequential(nn.Linear(4, 6), nn.Tanh()),
                "d": nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1)),
            }
        )

    def make_optimizers(self):
        return [torch.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.9)) for m in (self.model.g, self.model.d)]

    def step(self):
        (g, d), (opt_g, opt_d), (x, _) = (self.model.g, self.model.d), self.optimizers, self.batch()
        fake = g(torch.randn(12, 4, generator=self.data))
        opt_d.zero_grad()
        loss = F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()
        loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        of_g = F.softplus(-d(fake)).mean()
        of_g.backward()
        self.note(of_g)
        opt_g.step()
        return loss


class Compiled(Loop):
    def wrap(self, model): return torch.compile(model, backend="eager")


class CompiledInPlace(Loop):
    def wrap(self, model):
        model.compile(backend="eager")
        return model


class UsesGradientsUp(Loop):
    "An optimizer in the backward pass: its hook takes each gradient away."
    def make_optimizers(self):
        def update(p):
            with torch.no_grad(): p.sub_(p.grad, alpha=.05)
            p.grad = None
        for p in self.model.parameters(): p.register_post_accumulate_grad_hook(update)
        return super().make_optimizers()


class Freezes(Loop):
    "A part is frozen in the middle of the run, and its gradients stay."
    set_to_none = False
    def step(self):
        if len(self.seen) > 30: self.model[2].requires_grad_(False)
        return super().step()


class Sparse(Loop):
    def model_of(self): return nn.Sequential(nn.EmbeddingBag(20, 6, sparse=True), nn.Linear(6, 3))

    def batch(self):
        return torch.randint(20, (12, 4), generator=self.data), torch.randint(3, (12,), generator=self.data)


class OnlySparse(Sparse):
    def model_of(self): return nn.Sequential(nn.EmbeddingBag(20, 3, sparse=True))


class OnlySparseInPlace(OnlySparse): set_to_none = False


class Complex(Loop):
    def model_of(self): return nn.Linear(6, 3, dtype=torch.complex64)

    def batch(self):
        return torch.randn(12, 6, dtype=torch.complex64, generator=self.data), torch.randint(
            3, (12,), generator=self.data
        )

    def loss(self): return (self.outer(self.batch()[0]).abs() - 1).square().mean()


class Mixed(Loop):
    "Parameters of two types."
    def model_of(self): return nn.Sequential(nn.Linear(6, 8).double(), nn.ReLU(), Floats(), nn.Linear(8, 3))

    def batch(self):
        return torch.randn(12, 6, generator=self.data).double(), torch.randint(3, (12,), generator=self.data)


class Floats(nn.Module):
    def forward(self, x): return x.float()


LOOPS = [
    Loop,
    Adam,
    Fused,
    InPlace,
    WithState,
    Reentrant,
    NotReentrant,
    WholeCheckpoint,
    LBFGS,
    Closure,
    Scaled,
    Accumulates,
    Gan,
    Compiled,
    CompiledInPlace,
    UsesGradientsUp,
    Freezes,
    Sparse,
    OnlySparse,
    OnlySparseInPlace,
    Complex,
    Mixed,
]


def left_on(loop):
    "Everything of ours that is still on the model, its parameters or its optimizers."
    found = [row for row in hooks_on(loop.model) if row.ours] + [row for row in hooks_on(loop.outer) if row.ours]
    for opt in loop.optimizers:
        found += [
            *opt._optimizer_step_pre_hooks.values(),
            *opt._optimizer_step_post_hooks.values(),
            *(["step"] if "step" in vars(opt) else []),
        ]
    if loop.scaler: found += ["update"] if "update" in vars(loop.scaler) else []
    return found


@cache
def watched_run(make):
    "A loop, what it returned, and its record."
    loop, stats = make(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.outer, optimizer=loop.optimizers, scaler=loop.scaler): result = loop.run(stats)
    return loop, result, stats


@pytest.mark.parametrize("make", LOOPS, ids=lambda make: make.__name__)
def test_looking_changes_nothing_and_leaves_nothing(make):
    if make in (Compiled, CompiledInPlace): torch._dynamo.reset()
    plain = make().run()
    loop, watched, stats = watched_run(make)
    assert len(plain) == len(watched)
    for a, b in zip(plain, watched):
        if a.is_sparse: a, b = a.to_dense(), b.to_dense()
        assert torch.equal(a, b) or (a.isnan() == b.isnan()).all() and torch.equal(a.nan_to_num(), b.nan_to_num())
    assert not left_on(loop)
    assert len(stats.log) == n_steps and stats.log.values("loss").isfinite().all()
    hl.diagnose(stats)


@pytest.mark.parametrize(
    "make",
    [Loop, Adam, InPlace, LBFGS, Closure, Accumulates, Gan, Scaled, Reentrant, NotReentrant, WholeCheckpoint, Compiled],
)
def test_no_false_alarm_about_the_loop(make):
    _, _, stats = watched_run(make)
    wrong = {
        "no zero_grad",
        "step before backward",
        "not in the optimizer",
        "other parameters in the optimizer",
        "not trained",
        "eval mode",
        "wrong sign",
        "activation before the loss",
        "clipping too tight",
        "clipping before unscaling",
        "scheduler each batch",
    }
    assert not wrong & {f.what for f in hl.diagnose(stats)}
    assert (stats.log.values("trained") > 0).all()


class Error(Exception): pass


class Breaks(nn.Module):
    "Raises in its n-th call."
    def __init__(self, n, error):
        super().__init__()
        self.inner, self.left, self.error = nn.Linear(6, 3), n, error

    def forward(self, x):
        self.left -= 1
        x = self.inner(x)
        if self.left == 0: raise self.error
        return x


LOOKED_AT = [step for step in range(n_steps) if InputsAndOutputs().due(step)]


@pytest.mark.parametrize("error", [Error(), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_model_that_raises_in_a_step(error):
    class Tries(Loop):
        def model_of(self): return Breaks(5, error)
        def step(self):
            try: return super().step()
            except (Error, KeyboardInterrupt): return None
    loop, stats = Tries(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers):
        loop.run(stats)
        assert stats.log.values("trained").eq(1).all() and not any(stats.session.watch.listening.depth.values())
    assert not left_on(loop) and len(stats.log) == n_steps
    assert [one.step for one in stats.facts.inputs] == LOOKED_AT
    loop, stats = Tries(), hl.ActivationStats.for_diagnosis()
    loop.step = lambda: Loop.step(loop)
    with pytest.raises((Error, KeyboardInterrupt)), stats.on(loop.model, optimizer=loop.optimizers): loop.run(stats)
    assert not left_on(loop) and len(stats.log) == 4


def test_an_error_while_it_is_attached_leaves_nothing(monkeypatch):
    import hooklab.stats.measure.loop_watch as room
    def fail(*args): raise Error
    loop = Gan()
    monkeypatch.setattr(room, "listen", fail)
    with pytest.raises(Error): hl.ActivationStats.for_diagnosis().on(loop.model, optimizer=loop.optimizers)
    assert not left_on(loop)
    monkeypatch.undo()
    import hooklab.stats.measure.step_watch as room
    class Fails(room.StepWatch):
        made = 0
        def __init__(self, *args):
            Fails.made += 1
            if Fails.made == 2: raise Error
            super().__init__(*args)
    monkeypatch.setattr(room, "StepWatch", Fails)
    with pytest.raises(Error): hl.ActivationStats.for_diagnosis().on(loop.model, optimizer=loop.optimizers)
    assert not left_on(loop)


# Models and what goes in and out

def passes(stats): return stats.log.values("trained").tolist()


@pytest.mark.parametrize(
    "container",
    [
        lambda a, b: nn.ModuleDict({"a": a, "b": b}),
        lambda a, b: nn.ModuleList([a, b, a]),
        lambda a, b: nn.ModuleList([nn.ModuleList([a]), b]),
    ],
)
def test_a_root_without_a_forward(container):
    a, b = nn.Linear(6, 8), nn.Linear(8, 3)
    model = container(a, b)
    opt, stats = torch.optim.SGD(model.parameters(), lr=.1), hl.ActivationStats.for_diagnosis()
    with stats.on(model, optimizer=opt):
        for _ in range(6):
            x, y = torch.randn(12, 6), torch.randint(3, (12,))
            loss = F.cross_entropy(b(a(x)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats.step(loss)
    assert passes(stats) == [2.]*6 and len(stats.facts.inputs) == 6 and not hooks_on(model)
    assert stats.facts.inputs[0].arguments["0"].n == 72 and "cross-entropy" in {
        look.made_by and look.made_by.kind for look in stats.facts.outputs
    }


def test_an_empty_container_or_one_with_scripted_parts():
    for model in (
        nn.ModuleDict({"a": nn.Linear(6, 3), "s": torch.jit.script(nn.Linear(2, 2))}),
        nn.ModuleList([nn.Linear(6, 3), nn.ModuleDict()]),
    ):
        first = next(iter(model.children()))
        with hl.ActivationStats.for_diagnosis(modules=[first]).on(model) as stats:
            first(torch.randn(4, 6)).sum().backward()
            stats.step()
        assert passes(stats) == [1.] and not hooks_on(model)


class Recursive(nn.Module):
    "Calls itself: that is one pass."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, n=3): return self.layer(x) if n == 0 else self(self.layer(x), n - 1)


def test_a_model_that_calls_itself():
    model = Recursive()
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for _ in range(3):
            model(torch.randn(5, 3)).square().sum().backward()
            stats.step()
    assert passes(stats) == [1.]*3 and not hooks_on(model)


@dataclass
class Answer:
    logits: torch.Tensor
    more: list


class Answers(nn.Module):
    "Returns its logits in something."
    def __init__(self, make):
        super().__init__()
        self.layer, self.make = nn.Linear(6, 3), make

    def forward(self, x=None, *, other=None): return self.make(self.layer(x if x is not None else other["x"]))


@pytest.mark.parametrize(
    "make, logits",
    [
        (lambda y: y, lambda o: o),
        (lambda y: {"logits": y, "n": 3}, lambda o: o["logits"]),
        (lambda y: Answer(y, [None]), lambda o: o.logits),
        (lambda y: (y, None, "text"), lambda o: o[0]),
        (lambda y: [{"deep": (y,)}], lambda o: o[0]["deep"][0]),
    ],
    ids=["tensor", "dict", "dataclass", "tuple", "nested"],
)
@pytest.mark.parametrize(
    "call",
    [lambda model, x: model(x), lambda model, x: model(x=x), lambda model, x: model(other={"x": x, "n": [x.int()]})],
    ids=["positional", "keyword", "nested"],
)
def test_what_goes_in_and_out(make, logits, call):
    model = Answers(make)
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for _ in range(6):
            loss = F.cross_entropy(logits(call(model, torch.randn(9, 6))), torch.randint(3, (9,)))
            model.zero_grad()
            loss.backward()
            stats.step(loss)
    assert [look.made_by.kind for look in stats.facts.outputs] == ["cross-entropy"]*6
    assert len(stats.facts.inputs) == 6 and all(one.arguments for one in stats.facts.inputs)


STRANGE = {
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2, 6), torch.randn(3, 6)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.randn(2, 6), torch.randn(3, 6)], layout=torch.jagged),
    "sparse": lambda: torch.randn(4, 6).to_sparse(),
    "csr": lambda: torch.randn(4, 6).to_sparse_csr(),
    "complex": lambda: torch.randn(4, 6, dtype=torch.complex64),
    "nan": lambda: torch.full((4, 6), torch.nan),
    "inf": lambda: torch.full((4, 6), torch.inf),
    "empty": lambda: torch.zeros(0, 6),
    "no columns": lambda: torch.zeros(4, 0),
    "number": lambda: torch.tensor(3.0),
    "bool": lambda: torch.ones(4, 6, dtype=torch.bool),
    "half": lambda: torch.randn(4, 6).half(),
    "one": lambda: torch.randn(1, 6),
    "long": lambda: torch.randint(5, (4, 6)),
    "float8": lambda: torch.randn(4, 6).to(torch.float8_e4m3fn),
    "meta": lambda: torch.randn(4, 6, device="meta"),
    "text": lambda: "text",
    "none": lambda: None,
    "object": object,
    "list": lambda: [torch.randn(2), [torch.randn(3)]],
    "large": lambda: torch.randn(3, 200_000),
}


class Ignores(nn.Module):
    "Takes anything."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, anything): return self.layer(torch.ones(4, 6))


@pytest.mark.parametrize("what", STRANGE)
def test_strange_inputs(what, tmp_path):
    model = Ignores()
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=opt) as stats:
        for _ in range(7):
            x = STRANGE[what]()
            before = x.clone() if (dense := what in ("half", "one", "long", "large")) else None
            loss = model(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats.step(loss)
            if dense: assert torch.equal(x, before)
    hl.diagnose(stats)
    stats.save(tmp_path/"run.safetensors")
    assert len(stats.facts.inputs) == 7


@pytest.mark.parametrize(
    "what", ["nested", "jagged", "sparse", "complex", "nan", "empty", "number", "half", "large", "text", "none"]
)
def test_strange_outputs(what, tmp_path):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
        def forward(self, x):
            y, odd = self.layer(x), STRANGE[what]()
            if isinstance(odd, torch.Tensor) and what not in ("jagged", "nested"):
                odd = odd.requires_grad_(odd.is_floating_point() or odd.is_complex()) * 1
            return odd, y
    model = Returns()
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for _ in range(7):
            model(torch.randn(4, 6))[1].square().mean().backward()
            stats.step()
    hl.diagnose(stats)
    stats.save(tmp_path/"run.safetensors")


@pytest.mark.parametrize(
    "loss",
    [
        1.0,
        1,
        torch.tensor(1.0),
        torch.ones(1, 1),
        torch.tensor(1.0).double().requires_grad_(),
        torch.tensor(1),
        math.inf,
    ],
    ids=str,
)
def test_losses(loss):
    model = mlp()
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        model(torch.randn(4, 6)).sum().backward()
        stats.step(loss)
    assert stats.log.values("loss").tolist() == [float(loss)]


@pytest.mark.parametrize(
    "loss",
    ["text", torch.ones(2), None, torch.ones((), device="meta"), torch.tensor(1 + 1j), [1.0], object()],
    ids=range(7),
)
def test_what_is_no_loss_is_unknown(loss):
    model = mlp()
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        model(torch.randn(4, 6)).sum().backward()
        stats.step(loss)
    assert stats.log.values("loss").isnan().all()


def test_a_loss_that_is_changed_afterwards():
    model, total = mlp(), torch.zeros(())
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for _ in range(3):
            model(torch.randn(4, 6)).sum().backward()
            total += 1
            stats.step(total)
    assert stats.log.values("loss").tolist() == [1.0, 2.0, 3.0] and [
        look.given for look in stats.facts.outputs
    ] == [1.0, 2.0, 3.0]
    big = torch.ones(1000)
    assert as_number(big[0]).untyped_storage().nbytes() == 4  # it does not keep all of it alive


def test_a_loss_belongs_to_the_outputs_of_its_step():
    model = mlp()
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for i in range(6):
            model(torch.randn(4, 6)).sum().backward()
            stats.step(float(i) if i > 2 else None)
    assert [look.given for look in stats.facts.outputs] == [None]*3 + [3., 4., 5.]


def test_the_meta_device():
    with torch.device("meta"): model, x = mlp(), torch.randn(4, 6)
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=opt) as stats:
        for _ in range(6):
            loss = model(x).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats.step(loss)
    assert passes(stats) == [1.]*6 and "nothing recorded" in hl.diagnose(stats) and not hooks_on(model)


def test_training_without_gradients():
    model, stats = mlp(), hl.ActivationStats.for_diagnosis(grads=False)
    with stats.on(model), torch.no_grad():
        for _ in range(6):
            model(torch.randn(4, 6))
            stats.step(1.)
    assert passes(stats) == [1.]*6 and stats.facts.outputs == []


def test_validation_between_steps_is_left_out():
    loop, stats = Loop(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers):
        for _ in range(6):
            loss = loop.step()
            loop.model.eval()
            with torch.no_grad(): loop.model(torch.full((5, 6), 1e9))
            loop.model.train()
            stats.step(loss)
    assert (
        passes(stats) == [1.0] * 6
        and stats.log.values("evaluated").isnan().all()
        and all(one.arguments["0"].high < 10 for one in stats.facts.inputs)
    )


def test_threads():
    model, errors = mlp(), []
    x = torch.randn(4, 6)
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        def work():
            try:
                for _ in range(50): model(x).sum().backward()
            except Exception as e: errors.append(e)
        for _ in range(3):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for t in threads: t.start()
            for t in threads: t.join()
            stats.step()
    assert (
        not errors and len(stats.log) == 3 and not hooks_on(model) and len(stats.facts.outputs) <= 3 * 8
    )  # more than 4 in a step, if threads meet


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}],
    ids=str,
)
def test_distributed_data_parallel(alone, options):
    class Wrapped(Loop):
        set_to_none = not options.get("gradient_as_bucket_view")
        def wrap(self, model): return nn.parallel.DistributedDataParallel(model, **options)
    plain = Wrapped().run()
    loop, stats = Wrapped(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.outer, optimizer=loop.optimizers): watched = loop.run(stats)
    assert all(map(torch.equal, plain, watched)) and not left_on(loop) and passes(stats) == [1.]*n_steps
    assert not hl.diagnose(stats) or "no zero_grad" not in hl.diagnose(stats)
    assert stats.facts.outputs[0].made_by.kind == "cross-entropy"


# The life of a recorder

def twins_of(stats): return copy.deepcopy(stats), pickle.loads(pickle.dumps(stats))


def test_copies_in_the_middle_of_a_run():
    loop, stats = InPlace(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers):
        loop.run(stats, 12)
        twins, models = twins_of(stats), [copy.deepcopy(loop.model), pickle.loads(pickle.dumps(loop.model))]
        optimizers = [copy.deepcopy(loop.optimizers[0]), pickle.loads(pickle.dumps(loop.optimizers[0]))]
        read = hl.diagnose(stats)
        loop.run(stats, 12)
    for twin in twins:
        assert (
            str(hl.diagnose(twin)) == str(read) and twin.session is None and len(twin.log) == 12
            and twin.facts.outputs
        )
        with twin.on(other := mlp()):
            other(torch.randn(4, 6)).sum().backward()
            twin.step(1.)
        assert len(twin.log) == 1
    for model in models:
        model(torch.randn(4, 6)).sum().backward()
        assert not hooks_on(model)
    for opt in optimizers: opt.step()
    assert len(stats.log) == 24 and not left_on(loop)


@pytest.mark.parametrize("make", [Loop, Accumulates, Gan, Scaled])
def test_a_saved_run_gives_the_same_diagnosis(make, tmp_path):
    for lr in .05, 50.:
        loop, stats = make(), hl.ActivationStats.for_diagnosis()
        for opt in loop.optimizers: opt.param_groups[0]["lr"] = lr
        with stats.on(loop.model, optimizer=loop.optimizers, scaler=loop.scaler): loop.run(stats)
        stats.save(tmp_path/"run.safetensors")
        loaded = hl.ActivationStats.load(tmp_path/"run.safetensors")
        assert str(hl.diagnose(loaded)) == str(hl.diagnose(stats))
        loaded.save(tmp_path/"again.safetensors")
        assert str(hl.diagnose(hl.ActivationStats.load(tmp_path/"again.safetensors"))) == str(hl.diagnose(stats))


def test_reading_in_the_middle_changes_nothing(tmp_path):
    found = []
    for reads in False, True:
        loop, stats = InPlace(), hl.ActivationStats.for_diagnosis()
        with stats.on(loop.model, optimizer=loop.optimizers):
            for i in range(n_steps):
                stats.step(loop.step())
                if reads and i % 4 == 0:
                    hl.diagnose(stats)
                    stats.save(tmp_path/"run.safetensors")
        found.append((str(hl.diagnose(stats)), stats.log.table(), loop.seen))
    (text, log, seen), (their_text, their_log, their_seen) = found
    assert text == their_text and all(map(torch.equal, seen, their_seen))
    torch.testing.assert_close(log, their_log, rtol=0, atol=0, equal_nan=True)


def test_a_recorder_that_is_used_twice_records_anew():
    stats = hl.ActivationStats.for_diagnosis()
    for n in 7, 5:
        loop = Loop()
        with stats.on(loop.model, optimizer=loop.optimizers): loop.run(stats, n)
        assert len(stats.log) == n and len(stats.facts.inputs) == n


def test_two_recorders_on_one_model():
    loop, stats = InPlace(), [hl.ActivationStats.for_diagnosis() for _ in range(2)]
    with stats[0].on(loop.model, optimizer=loop.optimizers), stats[1].on(loop.model, optimizer=loop.optimizers):
        for _ in range(n_steps):
            loss = loop.step()
            for s in stats: s.step(loss)
    torch.testing.assert_close(*(s.log.table() for s in stats), rtol=0, atol=0, equal_nan=True)
    assert not left_on(loop)


def test_steps_have_the_numbers_of_a_run_that_is_resumed():
    loop, stats = Loop(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers):
        stats.session.begin_step(stats, 500)
        loop.run(stats)
    assert stats.log.steps == [*range(500, 530)] and stats.steps == [*range(500, 510), 516, 524]
    for what in ("inputs", "outputs"):
        assert [one.step for one in getattr(stats.facts, what)] == [500 + step for step in LOOKED_AT]


def test_nothing_of_the_model_is_kept():
    loop, stats = WithState(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers): loop.run(stats, 8)
    refs = [weakref.ref(x) for x in (loop.model, loop.optimizers[0], *loop.model.parameters())]
    hl.diagnose(stats)
    del loop
    gc.collect()
    assert not any(ref() is not None for ref in refs)


@pytest.mark.parametrize("n", [3_200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_long_run_takes_bounded_memory(n):
    "Also where a step has several passes, and where the record is thinned out while it is nobody's turn."
    model = nn.Linear(4, 3)
    stats, x, y = hl.ActivationStats.for_diagnosis(max_rows=64), torch.randn(8, 4), torch.randint(3, (8,))
    opt, sizes = torch.optim.SGD(model.parameters(), lr=.01), []
    with stats.on(model, optimizer=opt):
        for i in range(n):
            for _ in range(3): loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats.step(loss)
            if i in (n // 2 - 1, n - 1):
                looks = stats.session.watch.looks
                sizes.append((len(stats.log.kept), len(looks.inputs), len(looks.outputs), n_tensors()))
    (rows, inputs, outputs, tensors), later = sizes
    assert later[0] <= 64 and later[1] <= 121 and later[2] <= 4*121 and later[3] < tensors*1.3
    assert stats.log.steps[-1] > .95*n and stats.facts.inputs[-1].step > .9*n


def n_tensors():
    gc.collect()
    return sum(isinstance(x, torch.Tensor) for x in gc.get_objects())


def test_many_passes_in_a_step_are_not_all_kept():
    model = nn.Linear(40, 300)
    with hl.ActivationStats.for_diagnosis().on(model) as stats:
        for _ in range(3):
            sum(model(torch.randn(64, 40)).sum() for _ in range(25)).backward()
            for _ in range(25): model(torch.randn(64, 40)).sum().backward()
            stats.step()
            watch = stats.session.watch
            assert not watch.looks.waiting and len(watch.looks.outputs) <= 4*watch.n
    assert passes(stats) == [50.]*3


class Waits(torch.utils._python_dispatch.TorchDispatchMode):
    "Counts what would wait for a GPU."
    n = 0
    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        self.n += f in (
            torch.ops.aten._local_scalar_dense.default,
            torch.ops.aten.nonzero.default,
            torch.ops.aten.equal.default,
        )
        return f(*args, **kwargs or {})


@pytest.mark.parametrize("make", [Loop, InPlace, Accumulates, Gan, NotReentrant])
def test_nobody_waits_for_a_number(make):
    loop, stats = make(), hl.ActivationStats.for_diagnosis()
    with Waits() as without: loop.run(None, 3)
    with stats.on(loop.model, optimizer=loop.optimizers), Waits() as waits: loop.run(stats, 3)
    assert waits.n == without.n
    loop, stats = Loop(), hl.ActivationStats.for_diagnosis()
    with Waits() as waits, stats.on(loop.model, optimizer=loop.optimizers): loop.run(stats, 3)
    assert waits.n  # at the end


class Cloned(torch.utils._python_dispatch.TorchDispatchMode):
    "Counts the copies of whole gradients."
    n = 0
    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        self.n += f is torch.ops.aten.clone.default and args[0].numel() == 90_000
        return f(*args, **kwargs or {})


def test_no_gradient_is_copied_to_look_at_it():
    class Large(InPlace):
        def model_of(self): return nn.Linear(300, 300, bias=False)
        def loss(self): return self.model(torch.randn(8, 300)).square().mean()
    loop, stats = Large(), hl.ActivationStats.for_diagnosis()
    with Cloned() as without: loop.run(None, 6)
    with stats.on(loop.model, optimizer=loop.optimizers), Cloned() as cloned: loop.run(stats, 6)
    assert cloned.n == without.n


@pytest.mark.parametrize("when", ["forward", "backward", "step"])
@pytest.mark.filterwarnings("ignore::hooklab.HookWarning")
def test_a_recorder_taken_off_in_the_middle_of_a_step(when):
    class Stops(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
        def forward(self, x):
            if when == "forward": stats.remove()
            return self.layer(x)
    model = Stops()
    opt, stats = torch.optim.SGD(model.parameters(), lr=.1), hl.ActivationStats.for_diagnosis()
    stats.on(model, optimizer=opt)
    y = model(torch.randn(4, 6))
    if when == "backward": y.register_hook(lambda g: stats.remove())
    y.sum().backward()
    if when == "step": opt.register_step_pre_hook(lambda *_: stats.remove())
    opt.step()
    assert (
        not hooks_on(model)
        and len(opt._optimizer_step_pre_hooks) == (when == "step")
        and not opt._optimizer_step_post_hooks
    )
    assert len(stats.log) == 0 and "nothing recorded" in hl.diagnose(stats)


def test_an_optimizer_that_begins_late_is_not_watched_closely_for_ever():
    loop, stats = Loop(), hl.ActivationStats.for_diagnosis()
    with stats.on(loop.model, optimizer=loop.optimizers):
        for i in range(40):
            if i < 30: loop.loss().backward()
            stats.step(None if i < 30 else loop.step())
            if i > 30:  # one hears of passes, one follows what becomes of them
                assert sum(row.kind == "post_accumulate" for row in hooks_on(loop.model)) == 2
    assert stats.log.values("updates").isnan().sum() == 30

"A flight makes each pass from one state, makes it once, and keeps it where nobody can write to it."
import random
import weakref
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checking.arguments import restore_after
from hooklab.checking.flight import Flight
from hooklab.checking.passes import are_same, find_compare_mode, repeated_passes, replace_parameters
from hooklab.data_sets.batch import batch_of
from hooklab.findings.rules import NotLookedAt

pytestmark = pytest.mark.usefixtures("one_thread")
UNUSED = "The output depends on the input."


class Passes:
    "How many passes there were, which no state that is put back knows."
    def __init__(self): self.n = 0


class Model(nn.Module):
    "Does something with what it is given, and then runs a linear layer; what it returns may be changed after that."
    def __init__(self, before=lambda m, x: x, after=lambda m, y: y):
        super().__init__()
        self.linear, self.drop, self.passes = nn.Linear(4, 3), nn.Dropout(.5), Passes()
        self.before, self.after = before, after
        self.register_buffer("sums", torch.zeros(4))
        self.last, self.memory, self.facts = None, [], {"n": 0}
        self.places, self.held = torch.zeros(4), [torch.zeros(4)]

    def forward(self, x):
        self.passes.n += 1
        return self.after(self, self.linear(self.drop(self.before(self, x))))


def flight_of(model, call=None, n=2, loss_fn=F.cross_entropy):
    raws = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(n)]
    return Flight(model, None if call else loss_fn, call, [batch_of(raw, model.forward) for raw in raws], [])


PASSES = {
    "out in eval": lambda f: f.forward(f.batch.raw, "eval"), "out in train": lambda f: f.forward(f.batch.raw, "train"),
    "written": lambda f: f.traced_pass(), "without a graph": lambda f: f.traced_pass(mode="eval", graph=False),
    "gradients": lambda f: f.backward().gradients, "of outputs": lambda f: f.backward(f.batch.raw, of_output=True),
    "again": lambda f: f.forward_in_sequence((f.batch.raw, "eval"), (f.other.raw, "eval"), (f.batch.raw, "train")),
    "edited": lambda f: f.forward_in_context(f.batch.raw, lambda: torch.autocast("cpu")),
    "run": lambda f: f.new_pass(f.batch.raw),
    "row": lambda f: repeated_passes(f, "train"), "first": lambda f: f.first_pass(f.batch.raw)}


def in_place(store): return lambda m, x: (getattr(m, store).add_(x.detach().sum(0)), x)[1]


def grows(m, x):
    m.memory.append(x)
    m.facts["n"] += 1
    m.facts["new"] = m.last = x
    m.new = m.held = [x]
    return x


def draws(m, x): return x + random.random() + float(np.random.rand()) + torch.rand(1)


def to_the_batch(m, x): return x.mul_(2)


def to_the_weights(m, x):
    with torch.no_grad(): m.linear.weight.mul_(2)
    m.linear.bias.data = m.linear.bias.data + 1
    return x


def to_a_container(m, x):
    m.held[0].add_(x.detach().sum(0))
    return x


def goes_backward(m, x):
    with torch.enable_grad(): m.linear(x).sum().backward()
    return x


def switches(m, x):
    m.drop.eval()
    return x


def snapshot(model, flight):
    "All that a pass may change, as numbers and texts."
    tensors = [*model.parameters(), *model.buffers(), model.places, *model.held, torch.get_rng_state(),
               *flight.batch.raw, *flight.other.raw]
    own = {name: x for name, x in vars(model).items() if not name.startswith("_")}
    texts = model.memory, model.facts, model.last, [*own], [m.training for m in model.modules()]
    grads = [p.grad for p in model.parameters()]
    draws = random.getstate(), str(np.random.get_state())
    return [t.tolist() for t in tensors], [*map(id, tensors[:3])], repr(texts), grads, draws


@pytest.mark.parametrize("make", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize("change", [in_place("sums"), in_place("places"), grows, draws, to_the_batch, to_the_weights,
                                    to_a_container, goes_backward, switches],
                         ids=["buffer", "attribute", "containers", "random numbers", "batch", "weights", "in a list",
                              "gradients", "modes"])
def test_a_pass_puts_back_what_it_changes(make, change):
    model = Model(change)
    flight = flight_of(model)
    before = snapshot(model, flight)
    make(flight)
    assert model.passes.n and snapshot(model, flight) == before


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("change", [in_place("sums"), in_place("places"), draws, to_the_batch, to_the_weights,
                                    to_a_container])
def test_a_pass_starts_from_the_same_state_whatever_ran_before(mode, change):
    def sees(m, y): return y + m.sums.sum() + m.places.sum() + m.held[0].sum()
    flight, fresh = flight_of(Model(change, sees)), flight_of(Model(change, sees))
    fresh.model.load_state_dict(flight.model.state_dict())
    for make in PASSES.values(): make(flight)
    flight.cache.clear()
    fresh.batch, fresh.start["eval"] = flight.batch, flight.start["eval"]
    assert torch.equal(flight.forward(flight.batch.raw, mode).output, fresh.forward(flight.batch.raw, mode).output)


def test_gradients_of_the_user_stay_in_preflight():
    model = Model(goes_backward)
    model(torch.ones(2, 4)).sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    owned = {name: p.grad for name, p in model.named_parameters()}
    with restore_after(model, None, [], []): flight_of(model).backward()
    assert all(p.grad is owned[name] and torch.equal(p.grad, before[name]) for name, p in model.named_parameters())


# ---- what is one pass, and what is another

def n_passes(flight, *made):
    before = flight.model.passes.n
    for make in made: make()
    return flight.model.passes.n - before


def test_equal_changes_are_one_pass():
    flight = flight_of(Model())
    x, y = flight.batch.raw
    first = flight.forward((x, y))
    for other in ((x.clone(), y.clone()), [x, y], flight.batch.put({}), flight.batch.put({0: x + 0})):
        assert n_passes(flight, lambda other=other: flight.forward(other)) == 0
    assert torch.equal(flight.forward((x.clone(), y)).output, first.output)
    assert n_passes(flight, lambda: flight.forward((x, (y + 1) % 3)), lambda: flight.forward((x.roll(1, 0), y)),
                    lambda: flight.forward((x.double().float() + 1e-3, y))) == 3


def test_parameters_that_are_moved_to_equal_numbers_are_one_pass():
    flight = flight_of(Model())
    own, bias = flight.forward(flight.batch.raw), flight.parameters["linear.bias"]
    def moved(by):
        with replace_parameters(flight, {"linear.bias": bias.data + by}): return flight.forward(flight.batch.raw)
    assert n_passes(flight, lambda: moved(1), lambda: moved(1), lambda: moved(2)) == 2
    assert torch.allclose(moved(1).output, own.output + 1)
    assert torch.equal(flight.forward(flight.batch.raw).output, own.output)


@pytest.mark.parametrize("other", [
    lambda f, raw: f.forward(raw, "train"), lambda f, raw: f.forward(raw, "eval", seed=1),
    lambda f, raw: f.forward(f.other.raw, "eval"), lambda f, raw: f.traced_pass(raw, "eval", graph=False),
    lambda f, raw: f.traced_pass(raw, "eval"), lambda f, raw: f.backward(raw)],
    ids=["mode", "seed", "batch", "written", "with a graph", "backward"])
def test_other_passes_are_kept_apart(other):
    flight = flight_of(Model())
    raw = flight.batch.raw
    made = (lambda: flight.forward(raw, "eval")), (lambda: other(flight, raw))
    assert n_passes(flight, *made) == 2 and n_passes(flight, *made[::-1]) == 0


def test_autocast_and_grad_mode_are_kept_apart():
    flight = flight_of(Model())
    def out(): return flight.forward(flight.batch.raw)
    plain = out().output
    with torch.autocast("cpu", torch.bfloat16): assert out().output.dtype == torch.bfloat16
    with torch.no_grad(): assert n_passes(flight, out) == 1
    assert n_passes(flight, out) == 0 and torch.equal(out().output, plain) and plain.dtype == torch.float32


# ---- nobody writes to what is kept

def test_what_a_rule_writes_to_is_its_own():
    flight = flight_of(Model())
    before = flight.forward(flight.batch.raw).output.clone()
    flight.forward(flight.batch.raw).output.zero_()
    assert torch.equal(flight.forward(flight.batch.raw).output, before)


def test_the_model_cannot_write_to_what_is_kept():
    made = []
    def reuses(m, y):
        for t in made: t.zero_()
        made.append(y.detach())
        return y
    flight = flight_of(Model(after=reuses))
    first = flight.forward(flight.batch.raw)
    own = first.output.clone()
    flight.forward(flight.other.raw)
    assert torch.equal(flight.forward(flight.batch.raw).output, own) and own.any()


def test_numbers_of_a_written_pass_stay_when_the_state_is_put_back():
    "A tensor in an attribute, to which a pass writes, has other numbers after the pass; what was written down has not."
    def adds(m, x):
        m.places.add_(1)
        return x*m.places
    flight = flight_of(Model(adds))
    trace = flight.traced_pass(mode="eval").trace
    product, = [op for op in trace.ops if op.function == "mul"]
    assert product.given[1].numbers.tolist() == [1]*4 and flight.model.places.tolist() == [0]*4
    assert torch.equal(product.made[0].numbers, flight.batch.raw[0])


# ---- models that go on, draw or play: asked by passes one after another

def remembers(m, x):
    last, m.last = m.last, x.detach()
    return x if last is None else x + last.mean()


def adds_up(m, x):
    m.sums += x.detach().mean(0)
    return x + m.sums


def said(model, call=None, loss_fn=F.cross_entropy, n=2):
    batches = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(n)]
    found = hl.preflight(model, None if call else loss_fn, batches, call=call, overfit=False)
    return [f.what for f in found], found.not_looked_at


@pytest.mark.parametrize("memory", [remembers, adds_up], ids=["in an attribute", "in a buffer"])
def test_memory_is_found_though_each_kept_pass_starts_without_it(memory):
    flight = flight_of(Model(memory))
    find_compare_mode(flight)
    row = repeated_passes(flight, "eval")
    assert not row.forgets and not row.is_steady and not flight.compare_mode
    assert are_same(flight.forward(flight.batch.raw, "eval"), flight.forward(flight.batch.raw, "eval"))
    whats, not_looked_at = said(Model(memory))
    assert "state goes on" in whats and "a different result each time" in not_looked_at[UNUSED]


def test_numbers_of_numpy_are_those_of_the_seed():
    def noisy(m, x): return x + torch.from_numpy(np.random.rand(*x.shape)).float()
    flight = flight_of(Model(noisy))
    find_compare_mode(flight)
    raw = flight.batch.raw
    assert flight.compare_mode == "eval" and flight.is_repeatable
    assert not are_same(flight.forward(raw), flight.forward(raw, seed=1))
    assert "random in eval" in said(Model(noisy))[0]


def test_a_generator_of_its_own_gives_something_else_each_time():
    own = np.random.default_rng(0)
    def noisy(m, x): return x + float(own.normal())
    flight = flight_of(Model(noisy))
    find_compare_mode(flight)
    assert not flight.compare_mode and not flight.is_repeatable
    assert n_passes(flight, *[lambda: flight.forward(flight.batch.raw, "eval")]*3) == 3
    assert not are_same(flight.forward(flight.batch.raw, "eval"), flight.forward(flight.batch.raw, "eval"))
    assert "a different result each time" in said(Model(noisy))[1][UNUSED]


def test_a_batch_that_is_edited_in_place_is_a_new_one_in_each_pass():
    flight = flight_of(Model(to_the_batch))
    x = flight.batch.raw[0].clone()
    find_compare_mode(flight)
    assert flight.compare_mode == "eval" and torch.equal(flight.batch.raw[0], x)
    assert torch.equal(flight.forward(flight.batch.raw).output, flight.model.linear(2*x))
    assert said(Model(to_the_batch))[0] == said(Model(lambda m, x: 2*x))[0]


def test_an_iterator_in_call_gives_something_else_each_time():
    def playing():
        scales = count(1)
        return lambda model, batch: F.cross_entropy(model(batch[0]*next(scales)), batch[1])
    flight = flight_of(Model(), playing())
    find_compare_mode(flight)
    assert not flight.compare_mode and not flight.is_repeatable
    assert n_passes(flight, *[lambda: PASSES["out in eval"](flight)]*2) == 2
    with pytest.raises(NotLookedAt, match="a different result each time"): flight.forward(flight.batch.raw)
    assert "a different result each time" in said(Model(), playing())[1][UNUSED]


# ---- passes that fail

def test_a_pass_that_raises_is_not_made_again():
    def raises(m, x): raise ValueError("not like this")
    flight = flight_of(Model(raises))
    for _ in range(2):
        with pytest.raises(NotLookedAt, match=r"can't run like this \(ValueError: not like this\)"):
            flight.forward(flight.batch.raw)
    assert flight.model.passes.n == 1
    with pytest.raises(ValueError, match="not like this"): flight.new_pass(flight.batch.raw)


@pytest.mark.parametrize("make", [PASSES["out in train"], PASSES["written"], PASSES["gradients"], PASSES["again"]])
def test_a_pass_that_raises_puts_back_what_it_changed(make):
    def writes_and_raises(m, x):
        grows(m, to_the_weights(m, in_place("sums")(m, draws(m, x))))
        raise ValueError("in the middle")
    model = Model(writes_and_raises)
    flight = flight_of(model)
    before = snapshot(model, flight)
    with pytest.raises(NotLookedAt): make(flight)
    assert snapshot(model, flight) == before


def test_a_model_that_raises_the_second_time():
    def once(m, x):
        if m.passes.n > 1: raise RuntimeError("only once")
        return x
    flight = flight_of(Model(once))
    first = flight.forward(flight.batch.raw, "eval")
    assert flight.forward(flight.batch.raw, "eval").loss == first.loss  # kept
    with pytest.raises(NotLookedAt, match="only once"): repeated_passes(flight, "eval")
    with pytest.raises(NotLookedAt, match="only once"): flight.backward().gradients
    assert "a different result each time" in said(Model(once))[1][UNUSED]  # or no second time


# ---- the end

def test_after_the_end_nothing_is_alive():
    alive = []
    def watched(m, y):
        alive.append(weakref.ref(y))
        return y
    flight = flight_of(Model(after=watched))
    for name in PASSES.keys() - {"run", "first"}: PASSES[name](flight)
    def held_in(written):
        values = [value for op in written.trace.ops for value in op.made]
        return [*written.trace.ops, *written.trace.calls, *(value.numbers for value in values)]
    alive += map(weakref.ref, [*held_in(flight.traced_pass()), *held_in(flight.traced_pass(mode="eval", graph=False)),
                               *flight.backward().gradients.values()])
    assert sum(one() is not None for one in alive) > 20
    flight.close()
    assert not flight.cache and not [one() for one in alive if one() is not None]  # without a collection of garbage

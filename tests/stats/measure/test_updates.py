"""How far steps move parameters, where several optimizers move the same ones, or one optimizer has another in it."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from support.optimizers import Clears

torch.set_num_threads(1)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


class ByHand:
    "A record, and beside it how far each parameter really moves."
    def __init__(self, model, optimizer, **options):
        self.model, self.optimizer, self.moved, self.long = model, optimizer, [], []
        self.stats = hl.ActivationStats(**{"loop": True} | options).on(model, optimizer=optimizer)
        self.copy()

    def copy(self): self.before = [p.detach().clone() for p in self.model.parameters()]

    def end_step(self):
        pairs = list(zip(self.model.parameters(), self.before))
        self.moved.append(torch.stack([(p.detach() - b).norm() for p, b in pairs]))
        self.long.append(torch.stack([b.norm() for _, b in pairs]))
        self.copy()
        self.stats.step()

    def check(self, rtol=1e-4):
        self.stats.remove()
        updates, names = self.stats.updates, [name for name, _ in self.model.named_parameters()]
        assert sorted(updates.names) == sorted(names) and not hooks_on(self.model)
        rows = [updates.names.index(name) for name in names]
        moved, long = torch.stack(self.moved, 1), torch.stack(self.long, 1)
        torch.testing.assert_close(updates.values("update")[rows], moved, rtol=rtol, atol=1e-6)
        torch.testing.assert_close(updates.values("data")[rows][moved > 0], long[moved > 0], rtol=rtol, atol=1e-6)


def batch(i):
    g = torch.Generator().manual_seed(i)
    return torch.randn(12, 6, generator=g), torch.randint(3, (12,), generator=g)


def backward(model, i):
    model.zero_grad()
    loss = F.cross_entropy(model(batch(i)[0]), batch(i)[1])
    loss.backward()
    return loss


@pytest.mark.parametrize("options", [{}, {"samples": True}], ids=["all", "samples"])
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned round"])
@pytest.mark.parametrize("steps", ["AABB", "ABBA", ["AB", "BA", "A", "AB"]], ids=str)
def test_optimizers_that_share_parameters(steps, turned, options):
    model = net()
    adam = torch.optim.Adam(model.parameters(), .01)
    lbfgs = torch.optim.LBFGS(model[2].parameters(), .5, max_iter=2)
    hand = ByHand(model, [lbfgs, adam] if turned else [adam, lbfgs], **options)
    for i, names in enumerate(steps):
        for name in names:
            backward(model, i)
            if name == "A": adam.step()
            else: lbfgs.step(lambda i=i: backward(model, i))
        hand.end_step()
    hand.check()


def test_blocks_of_a_large_parameter_are_the_same_for_all_optimizers():
    torch.manual_seed(0)
    model = nn.Linear(1024, 600)
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3), torch.optim.SGD(model.parameters(), 2e-3)]
    hand = ByHand(model, optimizers, samples=True)
    for i in range(4):
        optimizers[0].zero_grad()
        model(torch.randn(64, 1024)).square().mean().backward()
        for optimizer in optimizers[:1 + i % 2]: optimizer.step()
        hand.end_step()
    hand.check(rtol=.1)  # of a sample


def test_shared_parameters_are_measured_together_in_few_steps():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(9)))
    optimizers = [torch.optim.SGD(model[half].parameters(), .1) for half in (slice(6), slice(3, None))]
    with hl.ActivationStats(turns=2).on(model, optimizer=optimizers) as s:
        for i in range(42):
            backward(model, i)
            for optimizer in optimizers: optimizer.step()
            s.step()
    assert s.updates.names == [name for name, _ in model.named_parameters()]
    assert s.updates.steps == s.steps == [0, 1, 8, 16, 36] and (s.updates.values("update") > 0).all()


class Uphill(torch.optim.Optimizer):
    "As SAM: a step uphill, and from there the step of another optimizer, which begins where the parameters were."
    def __init__(self, params, held=lambda base: base):
        super().__init__(params, {"by": .05})
        self.inner = held(torch.optim.SGD(self.param_groups, .1, momentum=.9))

    @torch.no_grad()
    def first_step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["old"] = p.clone()
            p.add_(p.grad, alpha=.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.param_groups[0]["params"]: p.data = self.state[p]["old"]
        for inner in self.inner if isinstance(self.inner, list) else [self.inner]: inner.step()
        self.zero_grad()

    def step(self, closure=None):
        with torch.enable_grad(): closure()
        self.first_step()
        with torch.enable_grad(): closure()
        self.second_step()


class Loose:
    "No optimizer, and holds two."
    def __init__(self, *optimizers): self.several = {str(i): o for i, o in enumerate(optimizers)}
    def step(self):
        for optimizer in self.several.values(): optimizer.step()


def in_halves(model, optimizer, i):
    backward(model, i)
    optimizer.first_step()
    backward(model, i)
    optimizer.second_step()


def with_closure(model, optimizer, i): optimizer.step(lambda: backward(model, i))


def usual(model, optimizer, i):
    backward(model, i)
    optimizer.step()


def clears(params):
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], .1)  # only now SGD calls hooks, and Clears beside it
    return Clears(params, .1)


def pair(params):
    params = list(params)
    return Loose(torch.optim.SGD(params[::2], .1), torch.optim.AdamW(params[1::2], .01))


NESTED = [(clears, usual), (clears, with_closure), (Uphill, in_halves), (Uphill, with_closure), (pair, usual),
          (lambda params: Uphill(params, lambda base: [base]), in_halves)]


@pytest.mark.parametrize("make, step", NESTED)
def test_a_step_within_a_step_is_a_part_of_it(make, step):
    model = net()
    optimizer = make(model.parameters())
    hand = ByHand(model, optimizer)
    for i in range(5):
        step(model, optimizer, i)
        hand.end_step()
    hand.check()
    assert hand.stats.log.values("updates").tolist() == [2 if make is pair else 1]*5
    by_itself, model = hl.ActivationStats(), net()
    optimizer = make(model.parameters())
    with by_itself.on(model, optimizer=optimizer, auto=True):
        for i in range(5): step(model, optimizer, i)
    assert torch.equal(by_itself.updates.tables(), hand.stats.updates.tables()) and by_itself.steps == [*range(5)]
    assert not hooks_on(model)


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("make", [clears, Uphill, torch.optim.LBFGS])
def test_an_error_in_a_step_does_not_hide_the_next_ones(make, auto):
    model = net()
    optimizer, ended = make(model.parameters()), []
    with hl.ActivationStats().on(model, optimizer=optimizer, auto=auto) as s:
        for i in range(8):
            def closure(i=i):
                if i == 3: raise MemoryError
                return backward(model, i)
            try: optimizer.step(closure)
            except MemoryError: continue
            if not auto: s.step()
            ended.append(i)
    moved = (s.updates.values("update") > 0).all(0)
    assert len(s.steps) >= 6 and moved.sum() >= len(moved) - 1 and moved[-3:].all()


def test_an_optimizer_that_was_given_beside_the_one_in_it():
    model = net()
    outer = Uphill(model.parameters())
    hand = ByHand(model, [outer, outer.inner])
    for i in range(3):
        in_halves(model, outer, i)
        hand.end_step()
    hand.check()


def test_an_optimizer_of_other_parameters_inside_is_left_alone():
    model, other = net(), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), .1)
    optimizer.of_rate = torch.optim.SGD(other.parameters(), .1)
    with hl.ActivationStats(loop=True).on(model, optimizer=optimizer) as s:
        for i in range(3):
            usual(model, optimizer, i)
            optimizer.of_rate.step()
            s.step()
    assert s.log.values("updates").tolist() == [1]*3 and (s.updates.values("update") > 0).all()

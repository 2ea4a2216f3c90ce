"""A copy of an optimizer that torch did not write makes steps whose effect is known."""
import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.stats.checking.own_optimizers import copy_with, small_ones

pytestmark = pytest.mark.usefixtures("one_thread")


def by(change):
    "An optimizer that changes each parameter by `change(optimizer, group, p, gradient, state)`."
    class Own(torch.optim.Optimizer):
        def __init__(self, params): super().__init__(params, {"lr": .01})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None: continue
                    state = self.state[p]
                    state["n"] = state.get("n", 0) + 1
                    change(self, group, p, p.grad, state)
    return Own


def kept(state, name, p): return state.setdefault(name, torch.zeros_like(p))


def adam(g, p, state, scale):
    mean, square = kept(state, "mean", p).lerp_(g, .1), kept(state, "square", p).lerp_(g*g, .001)
    p.sub_(.01*mean/scale/((square/(1 - .999**state["n"])).sqrt() + 1e-8))


def corrected_twice(o, group, p, g, state): adam(g, p, state, .9**state["n"])
def grows(o, group, p, g, state): p.sub_(.01*kept(state, "mean", p).mul_(1.05).add_(g))
def never_adds(o, group, p, g, state): p.sub_(.01*g/state.setdefault("square", torch.ones_like(p)).mul_(.9).sqrt())
def one_memory(o, group, p, g, state): p.sub_(.01*o.state["all"].setdefault(p.shape, torch.zeros_like(p)).add_(g))


def counts_parameters(o, group, p, g, state):
    group["n"] = group.get("n", 0) + 1
    adam(g, p, state, 1 - .9**group["n"])


def fixed_decay(o, group, p, g, state): p.sub_(.01*(g + .1))
def decay_grows(o, group, p, g, state): p.mul_(1.001).sub_(.01*g)
def goes_up(o, group, p, g, state): p.add_(.01*g)


ODD, DECAY = "optimizer makes odd steps", "weight decay too strong"
FAULTY = {corrected_twice: ODD, grows: ODD, never_adds: ODD, one_memory: ODD, counts_parameters: ODD,
          fixed_decay: DECAY, decay_grows: DECAY, goes_up: "wrong sign"}


def looked(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    optimizer = kind(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    found = hl.preflight(model, nn.CrossEntropyLoss(), (torch.randn(16, 2, 6), torch.arange(16) % 3), optimizer,
                         overfit=False)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters())) and not any(optimizer.state.values())
    assert optimizer.param_groups[0].keys() <= {"params", "lr"}
    return [f.what for f in found if f.what in {*FAULTY.values()}]


@pytest.mark.parametrize("change", FAULTY, ids=lambda change: change.__name__)
def test_odd_steps_are_named(change): assert looked(by(change)) == [FAULTY[change]]


def lion(o, group, p, g, state):
    mean = kept(state, "mean", p)
    p.mul_(1 - .001).sub_(.01*(.9*mean + .1*g).sign())
    mean.lerp_(g, .01)


def rprop(o, group, p, g, state):
    same = g.sign()*kept(state, "last", p).sign()
    size = state.setdefault("size", torch.full_like(p, .01))
    size.mul_(torch.where(same > 0, 1.2, torch.where(same < 0, .5, 1.))).clamp_(1e-6, 50)
    p.sub_(size*g.sign())
    state["last"].copy_(g)


def prodigy(o, group, p, g, state):
    first, far = state.setdefault("first", p.clone()), state.get("far", 1e-6)
    state["up"] = .99*state.get("up", 0.) + far*(g*(first - p)).sum().item()
    down = kept(state, "down", p).mul_(.99).add_(far*g).abs().sum().item()
    state["far"] = max(far, state["up"]/(down + 1e-30))
    p.sub_(state["far"]*g.sign())


def free_of_schedules(o, group, p, g, state):
    z, x = state.setdefault("z", p.clone()).sub_(.01*g), state.setdefault("x", p.clone())
    p.copy_(.1*z + .9*x.lerp_(z, 1/state["n"]))


def orthogonal(o, group, p, g, state):
    mean = kept(state, "mean", p).mul_(.95).add_(g)
    if p.dim() > 1:
        u, _, v = torch.linalg.svd(mean.flatten(1), full_matrices=False)
        mean = (u @ v).view_as(p)
    p.sub_(.02*mean)


def trust_ratio(o, group, p, g, state): p.sub_(.001*p.norm()/(g.norm() + 1e-9)*g)
def warms_up(o, group, p, g, state): p.sub_(.01*min(1, (state["n"]/4000)**2)*g)
def long_momentum(o, group, p, g, state): p.sub_(.01*kept(state, "mean", p).mul_(.999).add_(g))
def plain_adam(o, group, p, g, state): adam(g + .1*p, p, state, 1 - .9**state["n"])
def of_signs(o, group, p, g, state): p.sub_(.01*(g.sign() + .01*p.sign()))
def with_noise(o, group, p, g, state): p.sub_(.01*g + .01*torch.randn_like(p))


@pytest.mark.parametrize("change", [lion, rprop, prodigy, free_of_schedules, orthogonal, trust_ratio, warms_up,
                                    long_momentum, plain_adam, of_signs, with_noise],
                         ids=lambda change: change.__name__)
def test_other_ways_to_step_are_no_finding(change): assert not looked(by(change))


class NeedsClosure(torch.optim.SGD):
    def step(self, closure): return super().step(closure)


class Slow(torch.optim.Optimizer):
    "Keeps slow weights of its own, in lists that belong to its parameters."
    def __init__(self, params):
        self.fast = torch.optim.SGD(params, .1)
        super().__init__(self.fast.param_groups, {})
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self):
        self.fast.step()
        for p, slow in zip(self.fast.param_groups[0]["params"], self.slow): p.data.copy_(slow.lerp_(p.data, .5))


@pytest.mark.parametrize("kind", [lambda params: NeedsClosure(params, .1), Slow], ids=["closure", "slow weights"])
def test_what_cannot_be_tried_is_left_alone(kind):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    found = hl.preflight(model, nn.CrossEntropyLoss(), (torch.randn(16, 4), torch.arange(16) % 3),
                         kind(model.parameters()), overfit=False)
    assert not found
    assert any("cannot be tried" in why for why in found.not_looked_at.values())


def test_a_scheduler_of_the_optimizer_does_not_see_the_copy():
    layer = nn.Linear(4, 3)
    optimizer = by(lion)(layer.parameters())
    plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: .1)
    own = small_ones([*layer.parameters()])
    made = copy_with(optimizer, own)
    for p in own: p.grad = torch.ones_like(p)
    made.step()
    assert made.param_groups[0]["lr"] == .01 and optimizer.param_groups[0]["lr"] == .001 and plan.last_epoch == 0
    assert not any(optimizer.state.values()) and len(optimizer.param_groups[0]["params"]) == 2

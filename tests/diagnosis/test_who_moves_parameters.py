"""What is said of optimizers in optimizers, of steps that nobody sees, and of parameters that somebody else moves."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from support.optimizers import Clears

pytestmark = pytest.mark.usefixtures("one_thread")
steps = 25


def net(norm=False):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), *([nn.BatchNorm1d(32)] if norm else []), nn.ReLU(), nn.Linear(32, 3))


def batches(n=steps):
    "Two noisy directions decide the class."
    torch.manual_seed(1)
    ways = torch.randn(12, 3)
    for _ in range(n):
        x = torch.randn(32, 12)
        yield x, (x@ways).argmax(1)


def said(step, model, optimizer, n=steps):
    "What is found, without notes, by its id. `step(model, optimizer, ask)` makes a step of the loop."
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for x, y in batches(n):
            def ask(x=x, y=y):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss
            s.step(step(model, optimizer, ask))
    diagnosis = hl.diagnose(s)
    return {f.what: f for f in diagnosis if f.sure != "note"}, diagnosis


class Sam(torch.optim.Optimizer):
    "Goes uphill, and has another optimizer make the step from where it came, with the gradients from up there."
    def __init__(self, params, decay=0.):
        super().__init__(params, {"by": .05, "weight_decay": decay})
        self.base_optimizer = torch.optim.SGD(self.param_groups, .1, momentum=.9, weight_decay=decay)
        self.loss = None

    def params(self): return self.param_groups[0]["params"]

    @torch.no_grad()
    def first_step(self):
        length = torch.stack([p.grad.norm() for p in self.params()]).norm()
        for p in self.params():
            self.state[p]["old"] = p.clone()
            p.add_(.05*p.grad/length)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.params(): p.data = self.state[p]["old"]
        self.base_optimizer.step()
        self.zero_grad()

    def step(self, closure=None):
        ask = closure or self.loss
        with torch.enable_grad(): loss = ask()
        self.first_step()
        with torch.enable_grad(): ask()
        self.second_step()
        return loss


class ByItself(torch.optim.Optimizer):
    "Writes where torch does not count, and clears."
    def __init__(self, params): super().__init__(params, {})
    def step(self, closure=None):
        loss = closure() if closure else None
        for p in self.param_groups[0]["params"]: p.data.sub_(.1*p.grad)
        self.zero_grad()
        return loss


def in_halves(model, optimizer, ask):
    loss = ask()
    optimizer.first_step()
    ask()
    optimizer.second_step()
    return loss


def with_still_norms(model, optimizer, ask):
    norms = [m for m in model if isinstance(m, nn.BatchNorm1d)]
    for m in norms: m.momentum = .1
    loss = ask()
    optimizer.first_step()
    for m in norms: m.momentum = 0
    ask()
    optimizer.second_step()
    return loss


def with_closure(model, optimizer, ask): return optimizer.step(ask)


def with_stored_closure(model, optimizer, ask):
    optimizer.loss = ask
    return optimizer.step()


def usual(model, optimizer, ask):
    loss = ask()
    optimizer.step()
    return loss


def by_hand(model, optimizer, ask):
    model.zero_grad()
    loss = ask()
    for p in model.parameters(): p.data.sub_(.1*p.grad)
    return loss


HEALTHY = {
    "SAM, its two halves": (in_halves, Sam), "SAM, a closure": (with_closure, Sam),
    "SAM, a closure and decay": (with_closure, lambda params: Sam(params, 1e-4)),
    "SAM, a closure that it keeps": (with_stored_closure, Sam),
    "a step that clears": (usual, lambda params: Clears(params, .1)),
    "a step that clears, a closure": (with_closure, lambda params: Clears(params, .1)),
    "a step of its own that clears": (usual, ByItself), "the same with a closure": (with_closure, ByItself),
    "a step by hand, beside an optimizer": (by_hand, lambda params: torch.optim.SGD(params, .1))}


@pytest.mark.parametrize("name", HEALTHY)
def test_parameters_that_move_are_trained(name):
    step, make = HEALTHY[name]
    model = net()
    found, _ = said(step, model, make(model.parameters()), 60)
    assert not found


def test_where_steps_are_not_seen_that_is_said():
    model = net()
    _, diagnosis = said(by_hand, model, torch.optim.SGD(model.parameters(), .1))
    assert any("not in a step of the optimizer" in text for text in diagnosis.unknown)


@pytest.mark.parametrize("as_list", [True, False])
def test_steps_in_the_backward_pass(as_list):
    model = net()
    optimizers = {p: torch.optim.SGD([p], .1) for p in model.parameters()}
    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in model.parameters(): p.register_post_accumulate_grad_hook(update)
    given = list(optimizers.values()) if as_list else torch.optim.SGD(model.parameters(), .1)
    assert not said(lambda model, optimizer, ask: ask(), model, given)[0]


def test_a_batch_norm_that_rests_in_the_second_pass_only():
    model = net(norm=True)
    assert not said(with_still_norms, model, Sam(model.parameters()))[0]
    model = net(norm=True)
    model[1].momentum = 0
    assert "never change" in said(in_halves, model, Sam(model.parameters()))[0]["batch norm"].evidence


class Replaces(nn.Module):
    "A running mean that is a parameter, and a new one each time."
    def __init__(self, moves):
        super().__init__()
        self.first, self.last, self.moves = nn.Linear(12, 32), nn.Linear(32, 3), moves
        self.mean = nn.Parameter(torch.randn(32))

    def forward(self, x):
        x = self.first(x)
        self.mean = nn.Parameter(torch.lerp(self.mean.detach(), x.detach().mean(0), .1*self.moves))
        return self.last((x - self.mean.detach()).relu())


@pytest.mark.parametrize("moves", [True, False])
def test_a_parameter_that_forward_replaces(moves):
    torch.manual_seed(0)
    model = Replaces(moves)
    found, _ = said(usual, model, Clears(model.parameters(), .1))
    assert ("not trained" in found) is not moves
    if not moves: assert found["not trained"].layers == ["mean"] and found["not trained"].sure == "certain"


def cleared_too_early(model, optimizer, ask):
    loss = ask()
    optimizer.zero_grad()
    optimizer.step()
    return loss


def never(model, optimizer, ask): return ask()


def without_backward(model, optimizer, ask):
    with torch.no_grad(): model[0].bias.grad = None
    optimizer.step(lambda: model(torch.randn(8, 12)).sum())


@pytest.mark.parametrize("step, make, what", [
    (cleared_too_early, lambda params: torch.optim.SGD(params, .1), "step before backward"),
    (cleared_too_early, lambda params: torch.optim.AdamW(params, 1e-3), "step before backward"),
    (never, lambda params: torch.optim.SGD(params, .1), "no step"), (never, Sam, "no step"),
    (without_backward, lambda params: torch.optim.LBFGS(params), "not trained")])
def test_parameters_that_rest_are_not(step, make, what):
    model = net()
    found, diagnosis = said(step, model, make(model.parameters()))
    assert found[what].sure == "certain" and diagnosis.first.what == what


def test_frozen_parameters_alone_get_no_gradients_too_late():
    model = net()
    model[0].requires_grad_(False)
    found, diagnosis = said(usual, model, torch.optim.SGD(model[0].parameters(), .1))
    assert diagnosis.first.what == "not in the optimizer" and diagnosis.first.sure == "certain" and len(found) == 1


def test_a_part_that_is_trained_by_hand_is_not_missing():
    def half_by_hand(model, optimizer, ask):
        model.zero_grad()
        loss = ask()
        optimizer.step()
        for p in model[2].parameters(): p.data.sub_(.1*p.grad)
        return loss
    model = net()
    assert not said(half_by_hand, model, torch.optim.SGD(model[0].parameters(), .1))[0]


def test_gradients_that_an_earlier_training_has_left_are_none_of_this_one():
    torch.manual_seed(0)
    for comes_again in False, True:
        teacher, student = (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(2))
        x, y = torch.randn(64, 8), torch.randint(3, (64,))
        F.cross_entropy(teacher(x), y).backward()
        model = nn.ModuleDict({"teacher": teacher, "student": student})
        optimizer = torch.optim.Adam(student.parameters())
        with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
            for _ in range(20):
                optimizer.zero_grad()
                with torch.set_grad_enabled(comes_again): wanted = teacher(x).softmax(1)
                loss = F.cross_entropy(student(x), wanted)
                loss.backward()
                optimizer.step()
                stats.step(loss)
        assert ("not in the optimizer" in hl.diagnose(stats)) == comes_again

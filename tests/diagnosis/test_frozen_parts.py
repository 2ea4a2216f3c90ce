"Parts that require no gradient and change all the same, and those that change on purpose."
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def part(n, norm=nn.BatchNorm1d): return nn.Sequential(nn.Linear(n, 12), norm(12), nn.Tanh())


class Net(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.last = nn.Sequential(part(6, norm), part(12, norm)), nn.Linear(12, 3)

    def forward(self, x): return self.last(self.encoder(x))


class WithTeacher(Net):
    "A slow copy of the encoder is a part of the model, and runs in train mode."
    follows = True
    def __init__(self):
        super().__init__()
        self.teacher = deepcopy(self.encoder).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad(): slow = self.teacher(x)
        return self.last(self.encoder(x) + 0*slow)

    def move(self):
        if not self.follows: return
        with torch.no_grad():
            for slow, p in zip(self.teacher.parameters(), self.encoder.parameters()): slow.lerp_(p, .05)


class Stays(WithTeacher): follows = False


def sgd(model, **options): return torch.optim.SGD(model.parameters(), .05, **options)


def found(model, before=lambda model, step: None, optimizer=sgd, in_place=False, steps=60):
    optimizer = optimizer(model)
    before(model, 0)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for step in range(steps):
            model.train()
            before(model, step)
            x = torch.randn(24, 6) + torch.arange(6)
            optimizer.zero_grad(set_to_none=not in_place)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            loss.backward()
            optimizer.step()
            if hasattr(model, "move"): model.move()
            stats.step(loss)
    return [f for f in hl.diagnose(stats) if f.what == "frozen part moves"]


def frozen(model, step): model.encoder.requires_grad_(False)
def frozen_and_quiet(model, step): model.encoder.requires_grad_(False).eval()
def first_half(model, step): model.encoder[0].requires_grad_(False)


def late(model, step):
    if step >= 20: frozen_and_quiet(model, step)


def without_scale(n): return nn.BatchNorm1d(n, affine=False)


@pytest.mark.parametrize("model, before, layers, part", [
    (Net, frozen, ["encoder.0.1", "encoder.1.1"], "encoder"), (Net, first_half, ["encoder.0.1"], "encoder.0"),
    (lambda: Net(without_scale), first_half, ["encoder.0.1"], "encoder.0"),
    (Stays, lambda *_: None, ["teacher.0.1", "teacher.1.1"], "teacher"),
    (lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Linear(9, 3)),
     lambda model, step: model[:2].requires_grad_(False), ["1"], "these layers")])
def test_statistics_of_a_frozen_part(model, before, layers, part):
    finding, = found(model(), before)
    assert finding.sure == "possible" and finding.layers == layers
    assert finding.advice.startswith(f"Call eval() on {part} after each model.train()")


@pytest.mark.parametrize("model, before", [
    (Net, frozen_and_quiet), (Net, late), (Net, lambda *_: None), (WithTeacher, lambda *_: None),
    (lambda: Net(nn.LayerNorm), frozen),
    (lambda: Net(lambda n: nn.BatchNorm1d(n, track_running_stats=False)), frozen),
    (Net, lambda model, step: model.encoder[0][1].requires_grad_(False)),  # what lies before is trained
    (Net, lambda model, step: [m.requires_grad_(False) for m in model.modules() if isinstance(m, nn.Linear)])])
def test_parts_that_rest_or_are_trained_and_copies_that_follow(model, before): assert not found(model(), before)


def decays(model): return sgd(model, weight_decay=.1)
def rolls(model): return sgd(model, momentum=.9)
def adam(model): return torch.optim.Adam(model.parameters(), 1e-2)


@pytest.mark.parametrize("optimizer, how", [(decays, "by weight decay"), (rolls, ""), (adam, "")])
def test_weights_that_the_optimizer_moves_on(optimizer, how):
    finding, = found(Net(), late, optimizer, in_place=True)
    assert finding.sure == "possible" and len(finding.layers) >= 6 and finding.layers[0] == "encoder.0.0.weight"
    assert how in finding.evidence and "zero_grad() does unless set_to_none=False" in finding.advice


def rest(model): return torch.optim.SGD(model.last.parameters(), .05, weight_decay=.1)


def test_an_old_gradient_goes_on():
    "Gradients are cleared of what is trained only."
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none=True):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.requires_grad: p.grad = None
    finding, = found(Net(), late, lambda model: Keeps(model.parameters(), .05))
    assert finding.layers[-1] == "encoder.1.1.bias" and not any(name.startswith("last") for name in finding.layers)


@pytest.mark.parametrize("optimizer, in_place", [(decays, False), (rolls, False), (sgd, True), (rest, True)])
def test_weights_that_stay(optimizer, in_place): assert not found(Net(), late, optimizer, in_place)


def test_a_player_that_is_frozen_while_the_other_one_learns():
    "The critic is trained at the beginning of each step, and frozen at its end."
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    model = nn.ModuleDict({"maker": nn.Linear(4, 6), "critic": critic})
    optimizers = [torch.optim.Adam(part.parameters(), 1e-2) for part in model.values()]
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizers) as stats:
        for _ in range(60):
            critic.requires_grad_(True)
            optimizers[1].zero_grad()
            made = model["maker"](torch.randn(16, 4))
            loss = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(torch.randn(16, 6))).mean()
            loss.backward()
            optimizers[1].step()
            critic.requires_grad_(False)
            optimizers[0].zero_grad()
            F.softplus(-critic(made)).mean().backward()
            optimizers[0].step()
            stats.step(loss)
    assert "frozen part moves" not in hl.diagnose(stats)

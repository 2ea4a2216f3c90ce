"Layers that let nothing through, or only through a few units, and what follows from them."
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def closed(layer, n, value=-9.):
    "Some units, evenly spread, never return more than zero."
    with torch.no_grad(): layer.bias[torch.linspace(0, len(layer.bias) - 1, n).round().long()] = value
    return layer


class Apart(nn.Module):
    "ReLUs that no Sequential holds."
    def __init__(self, n):
        super().__init__()
        self.first, self.act, self.last = closed(nn.Linear(16, 40), n), nn.ReLU(), nn.Linear(40, 4)

    def forward(self, x): return self.last(self.act(self.first(x.flatten(1))))


def dense(n, act=nn.ReLU, units=40):
    return nn.Sequential(nn.Flatten(), closed(nn.Linear(16, units), n), act(), nn.Linear(units, 4))


def images(n):
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), closed(nn.Conv2d(8, 20, 3), n),
                         nn.ReLU6(), nn.Flatten(), nn.Linear(80, 4))


def data(n=32):
    x = torch.randn(n, 1, 4, 4)
    return x, x.flatten(1)[:, :4].argmax(1)


def record(model, optimizer=None, steps=130, known=True):
    torch.manual_seed(0)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer if known else None) as stats:
        for _ in range(steps):
            x, y = data()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            stats.step(loss)
    return stats


def found(model, **options): return [f for f in hl.diagnose(record(model, **options)) if f.sure != "note"]
def checked(model): return [f for f in hl.preflight(model, F.cross_entropy, [data(), data()]) if f.sure != "note"]


@pytest.mark.parametrize("make, n, layer, share", [
    (dense, 34, "1", 34/40), (images, 17, "3", 17/20), (Apart, 36, "act", 36/40),
    (lambda n: dense(n, units=200), 164, "1", 164/200)])
def test_most_units_are_dead(make, n, layer, share):
    torch.manual_seed(0)
    finding, = found(make(n))
    assert (finding.what, finding.sure, finding.layers) == ("dead units", "possible", [layer]) and finding.steps[0] == 0
    said, where = re.search(r"(\d+)% in (\S+?)\.", finding.evidence).groups()
    assert where == layer and abs(float(said)/100 - share) < .07  # of 32 of its units
    before, = checked(make(n))
    where = "first" if layer == "act" else layer
    assert (before.what, before.sure, before.layers) == ("dead units", "possible", [where])
    assert before.evidence.startswith(f"{share:.0%} of the ")


@pytest.mark.parametrize("make", [
    lambda: dense(24), lambda: dense(34, nn.LeakyReLU), lambda: dense(34, nn.SiLU), lambda: dense(9, units=12),
    lambda: images(12), lambda: Apart(20), lambda: dense(0),
    lambda: nn.Sequential(dense(0)[:-1], closed(nn.Linear(40, 4), 3))])
def test_half_of_them_few_units_other_activations_and_the_last_layer(make):
    torch.manual_seed(0)
    assert not [f for f in found(make()) if f.what == "dead units"]
    assert not [f for f in checked(make()) if f.what == "dead units"]


def test_units_that_are_silent_for_a_sample_are_not_dead():
    "Each sample wakes a few of many units only: half of the inputs are on, and biases are low."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    with torch.no_grad(): model[1].bias.fill_(-.9)
    assert (model[:3](data(512)[0]) > 0).float().mean() < .25 and not found(model) and not checked(model)


# One layer that lets nothing through, and all that follows

def deep():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), *[part for _ in range(3) for part in (nn.Linear(16, 16), nn.ReLU())],
                         nn.Linear(16, 4))


class Dies(torch.optim.SGD):
    "In one step, biases of a layer in the middle become very negative."
    steps = 0
    def step(self):
        super().step()
        self.steps += 1
        if self.steps != 25: return
        with torch.no_grad(): self.param_groups[0]["params"][3].fill_(-40)


@pytest.mark.parametrize("steps", [45, 80, 200])
@pytest.mark.parametrize("known", [True, False])
def test_a_dead_layer_comes_before_what_follows_from_it(steps, known):
    model = deep()
    first, *others = found(model, optimizer=Dies(model.parameters(), .1), steps=steps, known=known)
    assert (first.what, first.layers) == ("dead units", ["3"])
    assert "input unused" not in [f.what for f in others]
    for other in others: assert other.follows or other.what == "loss does not fall"
    alike, = [f for f in others if f.what == "samples alike"]
    assert alike.follows == "dead units" and alike.layers == ["4"] and "only zeros" in alike.evidence


class Ignores(nn.Module):
    "Does without its input, from the start or later."
    def __init__(self, since):
        super().__init__()
        self.since, self.n, self.body = since, 0, deep()

    def forward(self, x):
        self.n += 1
        return self.body(x if self.n <= self.since else torch.ones_like(x))


@pytest.mark.parametrize("since", [0, 30])
def test_an_input_that_is_not_used(since):
    torch.manual_seed(0)
    stats = record(Ignores(since), steps=120)
    assert [f.layers for f in hl.diagnose(stats) if f.what == "input unused"] == [["body.0"]]


class Branches(nn.Module):
    "Branches that begin at zero, and an end that lets nothing through."
    def __init__(self):
        super().__init__()
        self.body, self.branch = nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        self.end = nn.Sequential(closed(nn.Linear(16, 16), 16, -50.), nn.ReLU(), nn.Linear(16, 4))
        for p in self.branch[2].parameters(): nn.init.zeros_(p)

    def forward(self, x):
        x = self.body(x.flatten(1))
        return self.end(x + self.branch(x))


def test_a_branch_that_begins_at_zero_is_not_where_samples_become_alike():
    torch.manual_seed(0)
    alike, = [f for f in found(Branches()) if f.what == "samples alike"]
    assert alike.layers == ["end.1"] and alike.follows == "dead units"

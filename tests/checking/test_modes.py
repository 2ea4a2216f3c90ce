"preflight looks whether a pass in eval mode leaves something behind."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


class Drop(nn.Module):
    "Dropout with a rate of its own, which eval mode may set to zero for good."
    def __init__(self, keeps):
        super().__init__()
        self.rate, self.keeps = .5, keeps

    def forward(self, x):
        rate = self.rate if self.training else 0.
        if self.keeps: self.rate = rate
        return F.dropout(x, rate)


class Counts(nn.Module):
    "Something else in each pass."
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += self.training
        return x*(1 + .1*self.n)


class Caches(nn.Module):
    "Places that are computed once."
    def __init__(self):
        super().__init__()
        self.places = None

    def forward(self, x):
        if self.places is None: self.places = torch.arange(x.size(1))/10
        return x + self.places


class Fuses(nn.Module):
    "A scale that is multiplied into the weights in eval mode, and not taken out again."
    def __init__(self, inside):
        super().__init__()
        self.inside, self.scale, self.fused = inside, 3., False

    def forward(self, x):
        if not self.training: self.fused = True
        x = self.inside(x)
        return x if self.fused and self.training else self.scale*x


def said(*parts):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), *parts, nn.Linear(8, 2))
    batch = torch.randn(16, 6), torch.arange(16) % 2
    return [f.sure for f in hl.preflight(model, F.cross_entropy, batch, overfit=False) if f.what == "eval mode"]


@pytest.mark.parametrize("layer", [Drop(True), Fuses(nn.Linear(8, 8))])
def test_what_eval_mode_leaves_behind(layer): assert said(layer) == ["likely"]


@pytest.mark.parametrize("layer", [
    Drop(False), nn.Dropout(.5), nn.BatchNorm1d(8), Counts(), Caches(),
    nn.utils.spectral_norm(nn.Linear(8, 8)), nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))])
def test_layers_that_are_the_same_afterwards(layer): assert not said(layer)


class Remembers(nn.Module):
    "A recurrent net that may begin where the batch before has ended."
    def __init__(self, keeps):
        super().__init__()
        self.rnn, self.out, self.state, self.keeps = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3), None, keeps

    def forward(self, x):
        rows, state = self.rnn(x, self.state)
        if self.keeps: self.state = state.detach()
        return self.out(rows[:, -1])


class Normed(nn.Sequential):
    def __init__(self): super().__init__(nn.Flatten(), nn.BatchNorm1d(20), nn.Linear(20, 3), nn.Dropout())


@pytest.mark.parametrize("model, goes_on", [
    (lambda: Remembers(True), True), (lambda: Remembers(False), False), (Normed, False)])
def test_what_goes_on_from_batch_to_batch(model, goes_on):
    torch.manual_seed(0)
    data = [(torch.randn(8, 5, 4), torch.arange(8) % 3) for _ in range(2)]
    found = hl.preflight(model(), F.cross_entropy, data, overfit=False)
    assert [f.sure for f in found if f.what == "state goes on"] == (["note"] if goes_on else [])

"""preflight measures which places a prediction sees, and how far ahead its target is."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checking.sequences import shift_between

pytestmark = pytest.mark.usefixtures("one_thread")


class Model(nn.Module):
    "Embeddings, something that looks at other places, and a last layer."
    def __init__(self, mix, n=20):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places, self.mix, self.last = nn.Embedding(n, 16), nn.Embedding(40, 16), mix, nn.Linear(16, n)

    def forward(self, ids): return self.last(self.mix(self.words(ids) + self.places(torch.arange(ids.size(1)))))


class Rnn(nn.Module):
    def __init__(self, both):
        super().__init__()
        self.rnn = nn.GRU(16, 8 if both else 16, batch_first=True, bidirectional=both)

    def forward(self, x): return self.rnn(x)[0]


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.all, self.causal = nn.Linear(16, 48), causal

    def forward(self, x): return x + F.scaled_dot_product_attention(*self.all(x).chunk(3, -1), is_causal=self.causal)


class Filter(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv, self.pad = nn.Conv1d(16, 16, 3), (before, after)

    def forward(self, x): return self.conv(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2)


def words(n=24, long=13): return torch.randint(20, (n, long), generator=torch.Generator().manual_seed(2))
def token_loss(out, y): return F.cross_entropy(out.flatten(0, 1), y.flatten())


def said(model, loss_fn, batch, call=None):
    found = hl.preflight(model, loss_fn, batch, torch.optim.Adam(model.parameters(), 1e-3), overfit=False, call=call)
    new = "later places are seen", "target too far ahead"
    return [(f.what, f.sure, f.layers) for f in found if f.what in new]


@pytest.mark.parametrize(("good", "bad", "layer"), [
    (Rnn(False), Rnn(True), "mix.rnn"), (Attention(True), Attention(False), "mix"),
    (Filter(2, 0), Filter(1, 1), "mix.conv")])
def test_later_places_that_are_seen(good, bad, layer):
    ids = words()
    batch = ids[:, :-1], ids[:, 1:]
    assert not said(Model(good), token_loss, batch)
    (what, sure, layers), = said(Model(bad), token_loss, batch)
    assert (what, sure) == ("later places are seen", "likely") and layers in ([layer], ["last"])
    def inside(m, ids): return token_loss(m(ids)[:, :-1], ids[:, 1:])
    assert not said(Model(good), None, ids, call=inside)
    assert [what for what, *_ in said(Model(bad), None, ids, call=inside)] == ["later places are seen"]
    assert not said(Model(bad), token_loss, (ids, ids))  # an autoencoder
    assert not said(Model(bad), token_loss, (ids, words().flip(0)))  # tags


class Expert(nn.Module):
    "An expert with room for half of all places: those with the highest scores, of the whole batch."
    def __init__(self):
        super().__init__()
        self.score, self.expert = nn.Linear(16, 1), nn.Linear(16, 16)

    def forward(self, x):
        score = self.score(x)
        return x + (score > score.median())*score.sigmoid()*self.expert(x)


def test_places_that_share_the_room_of_an_expert():
    ids = words()
    (what, sure, _), = said(Model(Expert()), token_loss, (ids[:, :-1], ids[:, 1:]))
    assert (what, sure) == ("later places are seen", "note")


@pytest.mark.parametrize("ignored", [False, True])
def test_targets_that_are_moved_twice(ignored):
    ids = words()
    def again(out, y):
        if ignored: return F.cross_entropy(out.flatten(0, 1), F.pad(y[:, 1:], (0, 1), value=-100).flatten())
        return token_loss(out[:, :-1], y[:, 1:])
    (what, sure, _), = said(Model(Attention(True)), again, (ids[:, :-1], ids[:, 1:]))
    assert (what, sure) == ("target too far ahead", "likely")
    assert not said(Model(Attention(True)), again, (ids, ids))


def test_series_of_numbers():
    x = torch.randn(24, 12, 3, generator=torch.Generator().manual_seed(0))
    for both in (False, True):
        model = nn.Sequential(nn.Linear(3, 16), Rnn(both), nn.Linear(16, 3))
        for loss in (F.mse_loss, lambda out, y: (out - y).abs().mean()):
            found = said(model, loss, (x[:, :-1], x[:, 1:]))
            assert [what for what, *_ in found] == both*["later places are seen"]


def test_shifts():
    x = torch.arange(40).reshape(2, 20, 1) % 17
    for shift in (-2, 0, 1, 3):
        y = x.roll(-shift, 1)
        end = slice(-shift, None) if shift < 0 else slice(0, 20 - shift)
        assert shift_between(x, y[:, end] if shift > 0 else x if not shift else x[:, :shift], -100) in (shift, 0)
    assert shift_between(x, x[:, 1:], -100) == 1 and shift_between(x, torch.zeros_like(x), -100) is None
    assert shift_between(torch.zeros_like(x), torch.zeros_like(x), -100) is None  # more than one would fit

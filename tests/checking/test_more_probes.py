"""preflight tries other orders, tokens, outputs and halves, and compares what a model makes with what is real."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")
N = 24


def found_in(what, model, loss_fn, batch, call=None):
    torch.manual_seed(0)
    found = hl.preflight(model, loss_fn, batch, call=call, overfit=False)
    return [(f.sure, f.layers, f.evidence) for f in found if f.what == what]


# The order of the samples

class Positions(nn.Module):
    "Tokens with their positions, which are counted along one of the dimensions."
    def __init__(self, along, noise=False):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last, self.along, self.noise = nn.Embedding(9, 16), nn.Linear(16, 5), along, noise
        self.register_buffer("where", torch.randn(64, 16))

    def forward(self, text):
        x = self.words(text)
        where = self.where[:text.size(self.along)]
        x = x + (where if self.along else where[:, None])
        if self.noise: x = x + torch.randn_like(x)
        return self.last(x.mean(1))


def texts(length=10):
    torch.manual_seed(1)
    return torch.randint(9, (N, length)), torch.arange(N) % 5


def test_positions_along_the_batch():
    (sure, layers, said), = found_in("samples leak", Positions(0), F.cross_entropy, texts())
    assert sure == "likely" and not layers and "a sample's position in the batch" in said


@pytest.mark.parametrize("model", [Positions(1), Positions(1, noise=True)], ids=["along the text", "noise"])
def test_positions_along_the_text(model): assert not found_in("samples leak", model, F.cross_entropy, texts())


def test_what_call_mixes_goes_along():
    def call(model, batch): return (model(batch[0] + batch[1]) - batch[1]).square().mean()
    batch = torch.randn(N, 4), torch.randn(N, 4)
    assert not found_in("samples leak", nn.Linear(4, 4), None, batch, call)


# Padding only

class Pooled(nn.Module):
    "The mean of the tokens that a mask of its own shows."
    def __init__(self, shows):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last, self.shows = nn.Embedding(9, 16), nn.Linear(16, 5), shows

    def forward(self, text):
        shown = self.shows(text)[..., None].float()
        return self.last((self.words(text)*shown).sum(1)/12)


def padded():
    text, y = texts(12)
    return torch.where(torch.arange(12) < torch.arange(N)[:, None] % 7 + 4, text.clamp(min=1), 0), y


def test_a_mask_that_shows_the_padding_only():
    (sure, layers, _), = found_in("mask ignored", Pooled(lambda text: text == 0), F.cross_entropy, padded())
    assert (sure, layers) == ("likely", ["text"])
    assert not found_in("mask ignored", Pooled(lambda text: text > 0), F.cross_entropy, padded())
    (sure, _, evidence), = found_in("mask ignored", Pooled(torch.ones_like), F.cross_entropy, padded())
    assert sure == "note" and evidence.startswith("One more position of padding")


# The sign of a loss that is written by hand

def overlap(out, y): return 2*(out.sigmoid()*y).sum()/(out.sigmoid().sum() + y.sum())
def chance(out, y): return out.softmax(1).gather(1, y[:, None]).mean()
def margin(out, y): return F.relu(1 + out - out.gather(1, y[:, None])).mean()
def far(out, y): return 1/(1 + (out - y).abs().mean())


NUMBERS = torch.randn(N, 8), torch.randn(N, 3)
ANSWERS = NUMBERS[0], (NUMBERS[1] > 0).float()
CLASSES = NUMBERS[0], torch.arange(N) % 3


@pytest.mark.parametrize(("score", "batch", "rises"), [
    (overlap, ANSWERS, True), (chance, CLASSES, True), (far, NUMBERS, True), (margin, CLASSES, False)])
def test_a_score_in_the_place_of_a_loss(score, batch, rises):
    as_it_is = found_in("wrong sign", nn.Linear(8, 3), score, batch)
    turned = found_in("wrong sign", nn.Linear(8, 3), lambda out, y: -score(out, y), batch)
    assert [bool(as_it_is), bool(turned)] == [rises, not rises]
    assert [sure for sure, *_ in as_it_is + turned] == ["likely"]


# A sum over the batch that each sample gets again

def test_a_sum_of_the_batch_within_a_mean():
    def call(summed):
        def loss(model, batch):
            out = model(batch[0])
            far = (out - batch[1]).square().sum(1)
            return (far + (out.abs().sum() if summed else out.abs().sum(1))).mean()
        return loss
    (sure, _, said), = found_in("sum over the batch", nn.Linear(8, 3), None, NUMBERS, call(True))
    assert sure == "likely" and f"With {N} samples, one sample counts {N} times as much" in said
    assert not found_in("sum over the batch", nn.Linear(8, 3), None, NUMBERS, call(False))


# What is made and what is real

class Gan(nn.ModuleDict):
    def __init__(self, last):
        torch.manual_seed(0)
        super().__init__({"makes": nn.Sequential(nn.Linear(4, 8), last), "judges": nn.Linear(8, 1)})


def fooled(model, real): return -model["judges"](model["makes"](torch.randn(len(real), 4))).mean()


REAL = torch.rand(N, 8)


@pytest.mark.parametrize(("last", "real", "odd"), [
    (nn.Tanh(), REAL, True), (nn.Tanh(), 2*REAL - 1, False), (nn.Sigmoid(), 2*REAL - 1, True),
    (nn.Sigmoid(), REAL, False), (nn.Tanh(), 3*REAL, True), (nn.Identity(), REAL, False)], ids=range(6))
def test_real_and_made_have_one_range(last, real, odd):
    found = found_in("inputs not scaled", Gan(last), None, real, fooled)
    assert [sure for sure, *_ in found] == (["possible"] if odd else [])


def test_a_generator_that_is_given_noise_uses_no_batch():
    assert not hl.preflight(Gan(nn.Sigmoid()), None, REAL, call=fooled, overfit=False)


def test_an_input_beside_the_first_is_all_zero():
    model = nn.Bilinear(8, 4, 3)
    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])
    (sure, layers, _), = found_in("constant inputs", model, None, (NUMBERS[0], torch.zeros(N, 4), NUMBERS[1]), call)
    assert (sure, layers) == ("possible", ["input2"])
    assert not found_in("constant inputs", model, None, (NUMBERS[0], torch.ones(N, 4), NUMBERS[1]), call)


def test_most_words_are_in_no_list():
    text, y = texts()
    unknown = torch.where(torch.rand(text.shape) < .95, 1, text)
    (sure, layers, _), = found_in("constant inputs", Positions(1), F.cross_entropy, (unknown, y))
    assert (sure, layers) == ("possible", ["text"])
    short = torch.where(torch.arange(10) < 1, text, 0)  # padded, at the end or at the beginning
    for fine in (text, short, short.flip(1)):
        assert not found_in("constant inputs", Positions(1), F.cross_entropy, (fine, y))


# A state that goes on from batch to batch

class Remembers(nn.Module):
    "A recurrent layer that goes on where it was, or begins anew with each batch."
    def __init__(self, kind, goes_on):
        super().__init__()
        self.words, self.layer, self.last = nn.Embedding(9, 12), kind(12, 12, batch_first=True), nn.Linear(12, 5)
        self.goes_on, self.state = goes_on, None

    def forward(self, text):
        before = self.state if self.goes_on else None
        y, state = self.layer(self.words(text), before)
        self.state = tuple(t.detach() for t in state) if isinstance(state, tuple) else state.detach()
        return self.last(y[:, -1])


class Mean(nn.Module):
    "Compares with a mean over all batches up to now, in a buffer or an attribute of the model."
    def __init__(self, goes_on):
        super().__init__()
        self.words, self.last, self.goes_on, self.mean = nn.Embedding(9, 12), nn.Linear(12, 5), goes_on, torch.zeros(12)

    def forward(self, text):
        x = self.words(text).mean(1)
        if self.goes_on: self.mean = .5*self.mean + .5*x.detach().mean(0)
        return self.last(x - self.mean)


@pytest.mark.parametrize("make", [lambda on: Remembers(nn.LSTM, on), lambda on: Remembers(nn.GRU, on), Mean])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_state_that_goes_on_is_no_leak(make, goes_on):
    torch.manual_seed(0)
    batches = [(torch.randint(9, (N, 4)), torch.arange(N) % 5) for _ in range(2)]
    found = hl.preflight(make(goes_on), F.cross_entropy, batches, overfit=False)
    assert not found, f"{found!r}"
    assert ("No sample changes the output of another." in found.not_looked_at) == goes_on

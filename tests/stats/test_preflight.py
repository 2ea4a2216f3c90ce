"""preflight names what is planted, leaves healthy models alone, and leaves no trace, whatever happens inside."""
import copy
import random
import time
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hooklab as hl
from hooklab.stats.preflight import PREFLIGHT_ADVICE, SURE
from hooklab.stats.preflight_restore import fresh

seeds = [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
adam, sgd = partial(torch.optim.Adam, lr=3e-3), partial(torch.optim.SGD, lr=.05, momentum=.9)
ce, bce, mse = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), nn.MSELoss()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- Models that are right

class Flat(nn.Module):
    "A function of the input and of some layers."
    def __init__(self, f, **layers):
        super().__init__()
        self.f = f
        for name, m in layers.items(): setattr(self, name, m)

    def forward(self, *args, **kwargs): return self.f(self, *args, **kwargs)


def mlp(n_in=20, n_out=5, *more): return nn.Sequential(nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, n_out), *more)


def cnn(n_out=5):
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Dropout(.2), nn.Linear(16, n_out))


def lstm(batch_first=True, n_out=5):
    def f(m, x): return m.out(m.rnn(x)[0][:, -1] if batch_first else m.rnn(x)[0][-1])
    return Flat(f, rnn=nn.LSTM(8, 32, batch_first=batch_first), out=nn.Linear(32, n_out))


class Words(nn.Module):
    "A transformer with a padding mask, in which True hides."
    def __init__(self, obeys=True, pooled=True, n_out=5, batch_first=True):
        super().__init__()
        self.obeys, self.pooled, self.turned = obeys, pooled, not batch_first
        self.words, self.places = nn.Embedding(50, 32), nn.Parameter(torch.randn(12, 32)*.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first)
        self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, n_out)

    def forward(self, ids, padding_mask):
        h = self.body(self.words(ids) + self.places[:ids.size(1)], src_key_padding_mask=padding_mask if self.obeys else None)
        if not self.pooled: return self.out(h)
        return self.out((h*~padding_mask[..., None]).sum(1)/(~padding_mask).sum(1, keepdim=True))


class GPT(nn.Module):
    def __init__(self, n=40, d=32, tied=True):
        super().__init__()
        self.words, self.places = nn.Embedding(n, d), nn.Embedding(16, d)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 4*d, .1, batch_first=True, norm_first=True), 2,
                                          enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, n, bias=False)
        nn.init.normal_(self.words.weight, std=.02)
        if tied: self.head.weight = self.words.weight

    def forward(self, ids):
        n = ids.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        h = self.words(ids) + self.places(torch.arange(n))
        return self.head(self.norm(self.body(h, mask=mask, is_causal=True)))


class LoRA(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear, self.a, self.b = linear.requires_grad_(False), nn.Linear(linear.in_features, rank, bias=False), nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x): return self.linear(x) + self.b(self.a(x))


class ZeroBranch(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        self.inner, self.gain = nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)), nn.Parameter(torch.zeros(1))

    def forward(self, x): return x + self.gain*self.inner(x)


class Experts(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.gate, self.experts, self.out = nn.Linear(20, n), nn.ModuleList(nn.Linear(20, 32) for _ in range(n)), nn.Linear(32, 5)

    def forward(self, x):
        share, which = self.gate(x).softmax(1).max(1)
        h = torch.zeros(len(x), 32)
        for i, expert in enumerate(self.experts):
            if (which == i).any(): h = h.index_put((which == i,), expert(x[which == i])*share[which == i, None])
        return self.out(h.relu())


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)), mlp(8, 64)

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean)*(.5*log_var).exp()), mean, log_var


def vae_loss(model, batch):
    out, mean, log_var = model(batch[0])
    return F.binary_cross_entropy_with_logits(out, batch[0]) - .001*(1 + log_var - mean**2 - log_var.exp()).sum(1).mean()


class GCN(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(20, 32), nn.Linear(32, 5)
        edges = (torch.rand(n, n) < .2).float() + torch.eye(n)
        self.register_buffer("edges", edges/edges.sum(1, keepdim=True))

    def forward(self, x): return self.edges @ self.b((self.edges @ self.a(x)).relu())


def classes(n, k=5): return torch.arange(n)[torch.randperm(n)] % k
def points(n=32, n_in=20): return torch.randn(n, n_in), classes(n)
def images(n=32): return torch.randn(n, 1, 12, 12), classes(n)
def series(n=32): return torch.randn(n, 10, 8), classes(n)


def texts(n=32, long=12):
    lengths = torch.randint(3, long + 1, (n,))
    mask = torch.arange(long) >= lengths[:, None]
    return {"ids": torch.randint(1, 50, (n, long)).masked_fill(mask, 0), "padding_mask": mask, "labels": classes(n)}


def whole(kind, **more): return lambda m: kind(m.parameters(), **more)


def case(make, loss, data, optimizer=whole(adam), **options): return make, loss, data, optimizer, options


def frozen_backbone():
    m = mlp(20, 5)
    m[0].requires_grad_(False)
    return m


def zero_head():
    m = mlp()
    nn.init.zeros_(m[2].weight)
    nn.init.zeros_(m[2].bias)
    return m


def siamese_loss(model, batch):
    a, b, y = batch
    return F.cosine_embedding_loss(model(a), model(b), y, margin=.2)


def pairs(n=32): return torch.randn(n, 20), torch.randn(n, 20), torch.where(torch.rand(n) < .5, 1., -1.)


def clip_loss(model, batch):
    a, b = (F.normalize(part, dim=1) for part in model(*batch))
    return F.cross_entropy(a @ b.T/.1, torch.arange(len(a)))


def of_trained(kind): return lambda m: kind([p for p in m.parameters() if p.requires_grad])


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.out = nn.Embedding(30, 32), nn.LSTM(32, 32), nn.Linear(32, 30)

    def forward(self, ids): return self.out(self.rnn(self.words(ids))[0])


def token_loss(out, y): return F.cross_entropy(out.reshape(-1, out.size(-1)), y.reshape(-1))
def dice(out, y):
    p = out.sigmoid()
    return 1 - (2*(p*y).sum() + 1)/(p.sum() + y.sum() + 1)


healthy = {
    "MLP": case(mlp, ce, points),
    "MLP, SGD": case(mlp, ce, points, whole(sgd)),
    "MLP, a loss as a function": case(mlp, F.cross_entropy, points),
    "MLP, label smoothing": case(mlp, nn.CrossEntropyLoss(label_smoothing=.1), points),
    "MLP, class weights": case(mlp, nn.CrossEntropyLoss(torch.tensor([1., 2., .5, 1., 1.])), points),
    "MLP, log_softmax and NLL": case(partial(mlp, 20, 5, nn.LogSoftmax(1)), nn.NLLLoss(), points),
    "MLP, a multi-margin loss": case(mlp, nn.MultiMarginLoss(), points),
    "a last layer of zeros": case(zero_head, ce, points),
    "CNN with batch norm": case(cnn, ce, images),
    "CNN of raw pixels, scaled in the model": case(lambda: nn.Sequential(Flat(lambda m, x: x/128 - 1), cnn()), ce, lambda: (torch.rand(32, 1, 12, 12)*255, classes(32))),
    "LSTM": case(lstm, ce, series),
    "LSTM, time first": case(partial(lstm, False), ce, lambda: (torch.randn(10, 32, 8), classes(32))),
    "LSTM language model, time first": case(TimeFirst, token_loss, lambda: (torch.randint(30, (9, 16)), torch.randint(30, (9, 16)))),
    "LSTM language model, flat targets": case(lambda: Flat(lambda m, x: m.net(x).flatten(0, 1), net=TimeFirst()), ce, lambda: (torch.randint(30, (9, 16)), torch.randint(30, (144,)))),
    "transformer with a mask": case(Words, ce, texts),
    "transformer that tags words": case(partial(Words, pooled=False), lambda out, y: F.cross_entropy(out.transpose(1, 2), y, ignore_index=-100),
                                        lambda: {**(t := texts()), "labels": torch.where(t["padding_mask"], -100, t["ids"] % 5)}),
    "transformer, nothing hidden": case(Words, ce, lambda: {**texts(), "padding_mask": torch.zeros(32, 12).bool()}),
    "GPT, tied weights": case(GPT, token_loss, lambda: (torch.randint(40, (16, 12)), torch.randint(40, (16, 12)))),
    "autoencoder": case(partial(mlp, 20, 20), mse, lambda: torch.randn(32, 20)),
    "autoencoder, a list of one": case(partial(mlp, 20, 20), mse, lambda: [torch.randn(32, 20)]),
    "autoencoder of pixels": case(partial(mlp, 64, 64, nn.Sigmoid()), nn.BCELoss(), lambda: torch.rand(32, 64)),
    "VAE": case(VAE, None, lambda: (torch.rand(32, 64), classes(32)), call=vae_loss),
    "siamese": case(partial(mlp, 20, 16), None, pairs, call=siamese_loss),
    "two towers, a contrastive loss": case(lambda: Flat(lambda m, a, b: (m.a(a), m.b(b)), a=mlp(20, 8), b=mlp(20, 8)), None, lambda: (torch.randn(32, 20), torch.randn(32, 20)), call=clip_loss),
    "regression": case(partial(mlp, 20, 1), mse, lambda: ((x := torch.randn(32, 20)), x[:, :2].sum(1, keepdim=True))),
    "regression, own loss": case(lambda: Flat(lambda m, x: m.net(x).squeeze(1), net=mlp(20, 1)), lambda a, b: (a - b).abs().mean(), lambda: ((x := torch.randn(32, 20)), x[:, :2].sum(1))),
    "regression of mean and variance": case(lambda: Flat(lambda m, x: (m.net(x)[:, 0], m.net(x)[:, 1].exp()), net=mlp(20, 2)), lambda out, y: F.gaussian_nll_loss(out[0], y, out[1]), lambda: ((x := torch.randn(32, 20)), x[:, :2].sum(1))),
    "multi-label": case(partial(mlp, 20, 6), bce, lambda: (torch.randn(32, 20), (torch.rand(32, 6) < .3).float())),
    "binary": case(lambda: Flat(lambda m, x: m.net(x).squeeze(1), net=mlp(20, 1)), bce, lambda: (torch.randn(32, 20), (torch.rand(32) < .5).float())),
    "segmentation": case(lambda: nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1)), ce, lambda: ((x := torch.randn(8, 1, 12, 12)), (x[:, 0] > 0).long() + (x[:, 0] > 1))),
    "segmentation, dice": case(lambda: nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1)), dice, lambda: ((x := torch.randn(8, 1, 12, 12)), (x > .5).float())),
    "frozen backbone": case(frozen_backbone, ce, points),
    "frozen backbone, own optimizer": case(frozen_backbone, ce, points, of_trained(adam)),
    "LoRA": case(lambda: nn.Sequential(LoRA(nn.Linear(20, 64)), nn.ReLU(), LoRA(nn.Linear(64, 5))), ce, points, of_trained(partial(torch.optim.Adam, lr=1e-2))),
    "branches that begin at zero": case(lambda: nn.Sequential(nn.Linear(20, 64), ZeroBranch(), ZeroBranch(), nn.Linear(64, 5)), ce, points),
    "experts": case(Experts, ce, lambda: points(128)),
    "graph": case(partial(GCN, 40), ce, lambda: points(40)),
    "several optimizers": case(mlp, ce, points, lambda m: [adam(m[0].parameters()), sgd(m[2].parameters())]),
    "no optimizer": case(mlp, ce, points, lambda m: None),
    "fine-tuning, a small rate": case(mlp, ce, points, whole(torch.optim.AdamW, lr=2e-5)),
    "eval mode, as from a file": case(lambda: cnn().eval(), ce, images),
    "instance norm, group norm": case(lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8), nn.Flatten(), nn.Linear(512, 5)), ce, images),
    "dropout of a half": case(lambda: nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(.5), nn.Linear(128, 5)), ce, points),
    "spectral norm": case(lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(20, 32)), nn.ReLU(), nn.Linear(32, 5)), ce, points),
    "a batch of one": case(mlp, ce, lambda: points(1)),
    "bag of words": case(lambda: nn.Sequential(nn.EmbeddingBag(50, 16), nn.Linear(16, 5)), ce, lambda: (torch.randint(50, (32, 7)), classes(32))),
    "sparse embedding": case(lambda: nn.Sequential(nn.Embedding(50, 16, sparse=True), Flat(lambda m, h: h.mean(1)), nn.Linear(16, 5)), ce, lambda: (torch.randint(50, (32, 7)), classes(32)), whole(torch.optim.SGD, lr=.5)),
    "float64": case(lambda: mlp().double(), ce, lambda: (torch.randn(32, 20).double(), classes(32))),
    "warm-up": case(mlp, ce, points, lambda m: warm(adam(m.parameters()))),
}


def warm(optimizer):
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step/100))
    return optimizer


def looked(make, loss, data, optimizer, options, seed=0, **more):
    torch.manual_seed(seed)
    model = make()
    batches = [data(), data()]
    if isinstance(model, GCN) or loss is None and not options: batches = batches[0]
    with warnings.catch_warnings(action="ignore"):
        return hl.preflight(model, loss, batches, optimizer(model), **options, **more)


@pytest.mark.parametrize("seed", seeds)
@pytest.mark.parametrize("name", healthy)
def test_healthy_models_are_left_alone(name, seed):
    found = looked(*healthy[name], seed)
    assert not found, f"\n{found!r}"
    assert found.title.startswith("Preflight: nothing wrong in ")


# ---- What is planted

class Norm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape, self.a, self.b = shape, nn.Linear(6, 6), nn.Linear(60, 5)

    def forward(self, x): return self.b(self.a(x.reshape(self.shape)).reshape(10, -1, 6).transpose(0, 1).reshape(-1, 60))


def copied_optimizer(m): return adam(copy.deepcopy(m).parameters())


def without(part):
    def make(m): return adam([p for name, p in m.named_parameters() if not name.startswith(part)])
    return make


def twice(m): return [adam(m.parameters()), adam(m[2].parameters())]


def dead():
    m = mlp()
    nn.init.constant_(m[0].bias, -100)
    return m


def labels_of(y): return lambda n=32: (torch.randn(n, 20), y(n))


planted = {
    "softmax before cross-entropy": ("activation before the loss", case(partial(mlp, 20, 5, nn.Softmax(1)), ce, points)),
    "sigmoid before cross-entropy": ("activation before the loss", case(partial(mlp, 20, 5, nn.Sigmoid()), ce, points)),
    "ReLU before cross-entropy": ("activation before the loss", case(partial(mlp, 20, 5, nn.ReLU()), ce, points)),
    "sigmoid twice": ("activation before the loss", case(partial(mlp, 20, 6, nn.Sigmoid()), bce, lambda: (torch.randn(32, 20), (torch.rand(32, 6) < .5).float()))),
    "logits into NLL": ("activation before the loss", case(mlp, nn.NLLLoss(), points)),
    "probabilities into NLL": ("activation before the loss", case(partial(mlp, 20, 5, nn.Softmax(1)), nn.NLLLoss(), points)),
    "ReLU before a regression": ("activation before the loss", case(partial(mlp, 20, 1, nn.ReLU()), mse, lambda: ((x := torch.randn(32, 20)), x[:, :1]))),
    "sigmoid, targets scaled": ("activation before the loss", case(partial(mlp, 20, 20, nn.Sigmoid()), mse, lambda: torch.randn(32, 20))),
    "softmax, label smoothing": ("activation before the loss", case(partial(mlp, 20, 5, nn.Softmax(1)), nn.CrossEntropyLoss(label_smoothing=.1), points)),
    "broadcast": ("labels broadcast", case(partial(mlp, 20, 1), mse, lambda: ((x := torch.randn(32, 20)), x[:, :2].sum(1)))),
    "broadcast, own loss": ("labels broadcast", case(partial(mlp, 20, 1), lambda a, b: (a - b).abs().mean(), lambda: ((x := torch.randn(32, 20)), x[:, :2].sum(1)))),
    "broadcast the other way": ("labels broadcast", case(lambda: Flat(lambda m, x: m.net(x).squeeze(1), net=mlp(20, 1)), mse, lambda: ((x := torch.randn(32, 20)), x[:, :1]))),
    "labels of the first half only": ("labels not used", case(mlp, lambda out, y: F.cross_entropy(out[:8], y[:8]), points)),
    "labels not used": ("labels not used", case(mlp, lambda out, y: F.cross_entropy(out, out.argmax(1)), points)),
    "batch_first forgotten, LSTM": ("samples leak", case(lambda: Flat(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=nn.LSTM(8, 32), out=nn.Linear(32, 5)), ce, series)),
    "batch_first forgotten, transformer": ("samples leak", case(lambda: Flat(lambda m, x: m.out(m.body(x).mean(1)), body=nn.TransformerEncoderLayer(8, 2, 16), out=nn.Linear(8, 5)), ce, series)),
    "view in place of permute": ("samples leak", case(lambda: Flat(lambda m, x: m.b(m.a(x.transpose(0, 1).reshape(len(x), -1))), a=nn.Linear(80, 32), b=nn.Linear(32, 5)), ce, series)),
    "softmax over samples": ("samples leak", case(lambda: Flat(lambda m, x: m.b(m.a(x).softmax(0)), a=nn.Linear(20, 32), b=nn.Linear(32, 5)), ce, points)),
    "mean over samples": ("samples leak", case(lambda: Flat(lambda m, x: m.b(m.a(x) - m.a(x).mean(0)), a=nn.Linear(20, 32), b=nn.Linear(32, 5)), ce, points)),
    "mask not passed on": ("mask ignored", case(partial(Words, obeys=False, pooled=False), lambda out, y: F.cross_entropy(out.mean(1), y), texts)),
    "mask not passed on, nothing hidden": ("mask ignored", case(partial(Words, obeys=False, pooled=False), lambda out, y: F.cross_entropy(out[:, 0], y), lambda: {**texts(), "padding_mask": torch.zeros(32, 12).bool()})),
    "detach": ("not trained", case(lambda: Flat(lambda m, x: m.b(m.a(x).relu().detach()), a=nn.Linear(20, 32), b=nn.Linear(32, 5)), ce, points)),
    "no_grad": ("not trained", case(lambda: Flat(lambda m, x: torch.no_grad()(m.b)(x), b=nn.Linear(20, 5)), ce, points)),
    "a layer that never runs": ("never ran", case(lambda: Flat(lambda m, x: m.b(x), a=nn.Linear(20, 32), b=nn.Linear(20, 5)), ce, points)),
    "everything frozen": ("frozen part", case(lambda: mlp().requires_grad_(False), ce, points)),
    "dead units": ("dead units", case(dead, ce, points)),
    "input not used": ("input unused", case(lambda: Flat(lambda m, x: m.b(torch.ones_like(m.a(x))), a=nn.Linear(20, 32), b=nn.Linear(32, 5)), ce, points)),
    "one of two inputs not used": ("input unused", case(lambda: Flat(lambda m, a, b: m.net(a), net=mlp()), ce, lambda: (torch.randn(32, 20), torch.randn(32, 20), classes(32)))),
    "optimizer of a copy": ("other parameters in the optimizer", case(mlp, ce, points, copied_optimizer)),
    "optimizer of another model": ("other parameters in the optimizer", case(mlp, ce, points, lambda m: adam(mlp(3, 3).parameters()))),
    "a layer left out of the optimizer": ("not in the optimizer", case(mlp, ce, points, without("0"))),
    "only biases in the optimizer": ("not in the optimizer", case(mlp, ce, points, lambda m: adam([m[0].bias, m[2].bias]))),
    "twice in optimizers": ("twice in the optimizers", case(mlp, ce, points, twice)),
    "wrong sign": ("wrong sign", case(mlp, lambda out, y: -F.cross_entropy(out, y), points)),
    "wrong sign, regression": ("wrong sign", case(partial(mlp, 20, 1), lambda out, y: -F.mse_loss(out, y), lambda: ((x := torch.randn(32, 20)), x[:, :1]))),
    "weights too large": ("first loss too high", case(lambda: nn.Sequential(mlp(20, 64), Flat(lambda m, x: 100*x), nn.Linear(64, 5)), ce, points)),
    "tied words, not scaled": ("first loss too high", case(tied_large := lambda: large(GPT()), token_loss, lambda: (torch.randint(40, (16, 12)), torch.randint(40, (16, 12))))),
    "pixels to 255": ("inputs not scaled", case(lambda: nn.Sequential(nn.Flatten(), mlp(144, 5)), ce, lambda: (torch.rand(32, 1, 12, 12)*255, classes(32)))),
    "one large column": ("inputs not scaled", case(mlp, ce, lambda: (torch.randn(32, 20)*torch.tensor([1e5, *[1.]*19]), classes(32)))),
    "scaled twice": ("inputs not scaled", case(lambda: nn.Sequential(nn.Flatten(), mlp(144, 5)), ce, lambda: (torch.rand(32, 1, 12, 12)/255, classes(32)))),
    "black images": ("constant inputs", case(cnn, ce, lambda: (torch.zeros(32, 1, 12, 12), classes(32)))),
    "one image for all": ("samples alike", case(cnn, ce, lambda: (torch.randn(1, 1, 12, 12).expand(32, -1, -1, -1), classes(32)))),
    "NaN in the input": ("NaN or Inf", case(mlp, ce, lambda: (torch.randn(32, 20).log(), classes(32)))),
    "NaN in the loss": ("NaN or Inf", case(lambda: Flat(lambda m, x: m.net(x).log(), net=mlp()), ce, points)),
    "NaN in the targets": ("NaN or Inf", case(partial(mlp, 20, 1), mse, lambda: (torch.randn(32, 20), torch.randn(32, 1).log()))),
    "one class only": ("constant targets", case(mlp, ce, labels_of(lambda n: torch.full((n,), 3)))),
    "one target only": ("constant targets", case(partial(mlp, 20, 1), mse, labels_of(lambda n: torch.full((n, 1), 7.)))),
    "targets in thousands": ("targets not scaled", case(partial(mlp, 20, 1), mse, labels_of(lambda n: 3000 + 500*torch.randn(n, 1)))),
    "batch norm of two": ("batch norm", case(lambda: nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5)), ce, lambda: points(2))),
    "rate far too large": ("learning rate too large", case(mlp, ce, points, whole(torch.optim.SGD, lr=1e4))),
    "rate far too small": ("learning rate too small", case(mlp, ce, points, whole(torch.optim.SGD, lr=1e-9))),
    "nothing is learned": ("cannot learn by heart", case(lambda: Flat(lambda m, x: m.b(m.a(x)*1e-6), a=nn.Linear(20, 32, bias=False), b=nn.Linear(32, 5, bias=False)), lambda out, y: F.cross_entropy(out*1e-6, y), points)),
}


def large(gpt):
    nn.init.normal_(gpt.words.weight, std=5)
    return gpt


@pytest.mark.parametrize("seed", seeds)
@pytest.mark.parametrize("name", planted)
def test_what_is_planted_is_named(name, seed):
    what, given = planted[name]
    found = looked(*given, seed)
    assert what in found and found, f"\n{found!r}"
    assert any(f.what == what and f.sure != "note" for f in found)


def test_every_finding_is_planted():
    assert {what for what, _ in planted.values()} == {*PREFLIGHT_ADVICE}

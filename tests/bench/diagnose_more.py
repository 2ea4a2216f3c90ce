"""A second set of training runs, of other people's shapes, on which `hl.diagnose` is tried and nothing is tuned.

    python -m tests.bench.diagnose_more [part of a kind or name]

runs them without hooklab: each fault beside the same run without it, each healthy run beside the bound it has to keep.
`more()` lists them. Models and data are others than those of diagnose_faults and diagnose_healthy; what counts as right
was written before any of them was diagnosed."""
import copy
import math
import sys
import time
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.bench.diagnose_parts import Case, Nothing, Run

listed: list[Case] = []


# Data: (tensors to learn from), (tensors held back)

def halves(held: int, *tensors): return tuple(t[held:] for t in tensors), tuple(t[:held] for t in tensors)


@cache
def pictures(seed: int, side: int = 14, channels: int = 1, classes: int = 6, count: int = 900, noise: float = .6):
    "Smooth pictures of a few classes, shifted and noisy, with mean 0 and deviation 1."
    g = torch.Generator().manual_seed(31 + seed)
    coarse = torch.randn(classes, channels, 4, 4, generator=g)
    kinds = F.interpolate(coarse, size=(side, side), mode="bilinear")
    y = torch.randint(0, classes, (count,), generator=g)
    x = torch.stack([kinds[k].roll((int(a), int(b)), (1, 2)) for k, (a, b) in
                     zip(y, torch.randint(-1, 2, (count, 2), generator=g))])
    x = x + noise*torch.randn(x.shape, generator=g)
    return halves(200, (x - x.mean())/x.std(), y)


def colored(seed: int): return pictures(seed, 32, 3, 5, 500)


@cache
def blobs(seed: int):
    "Pictures with a bright disc in them, and the mask of the disc."
    g = torch.Generator().manual_seed(57 + seed)
    n, side = 500, 16
    middle, radius = torch.rand(n, 2, 1, 1, generator=g)*10 + 3, torch.rand(n, 1, 1, generator=g)*3 + 2
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    mask = ((rows - middle[:, 0])**2 + (columns - middle[:, 1])**2 < radius**2).float()[:, None]
    x = mask + .45*torch.randn(mask.shape, generator=g)
    return halves(100, (x - x.mean())/x.std(), mask)


letters = 20


@cache
def lines(seed: int, length: int = 14):
    "Text in which a letter follows from the last one, mostly."
    g = torch.Generator().manual_seed(83 + seed)
    follows = torch.randperm(letters, generator=g)
    x = torch.randint(0, letters, (600, length + 1), generator=g)
    for t in range(length):
        keep = torch.rand(600, generator=g) < .85
        x[keep, t + 1] = follows[x[keep, t]]
    return halves(100, x[:, :-1], x[:, 1:])


@cache
def sentences(seed: int, length: int = 12):
    "Token ids; the class says whether there are more of the low tokens than of the high ones."
    g = torch.Generator().manual_seed(97 + seed)
    y = torch.randint(0, 2, (700,), generator=g)
    low = torch.rand(700, length, generator=g) < torch.where(y == 1, .75, .25)[:, None]
    x = torch.where(low, torch.randint(1, 15, (700, length), generator=g), torch.randint(15, 30, (700, length),
        generator=g))
    return halves(150, x, y)


@cache
def graph(seed: int):
    "Nodes of three communities: (normalized adjacency, features, labels); the same for training and test, by a mask."
    g = torch.Generator().manual_seed(113 + seed)
    n = 150
    y = torch.randint(0, 3, (n,), generator=g)
    close = torch.where(y[:, None] == y, .15, .02)
    a = (torch.rand(n, n, generator=g) < close).float().triu(1)
    a = a + a.T + torch.eye(n)
    d = a.sum(1).rsqrt()
    x = F.one_hot(y, 3).float()@torch.randn(3, 16, generator=g)*.7 + torch.randn(n, 16, generator=g)
    return (x, d[:, None]*a*d, y, torch.arange(n) < 90), (x, d[:, None]*a*d, y, torch.arange(n) >= 90)


@cache
def turned(seed: int, length: int = 5):
    "Short sequences, to be written backwards; token 0 begins."
    g = torch.Generator().manual_seed(131 + seed)
    x = torch.randint(1, 9, (900, length), generator=g)
    return halves(150, x, x.flip(1))


@cache
def tags(seed: int):
    "Rows of 20 numbers with five labels each, of which several may hold."
    g = torch.Generator().manual_seed(151 + seed)
    x = torch.randn(1000, 20, generator=g)
    hidden = (x@torch.randn(20, 8, generator=g)/20**.5).tanh()
    return halves(200, x, (hidden@torch.randn(8, 5, generator=g) > .2).float())


@cache
def noisy(seed: int):
    "A function of 6 numbers with noise that depends on one of them."
    g = torch.Generator().manual_seed(171 + seed)
    x = torch.randn(1200, 6, generator=g)
    y = (x[:, :2].sum(1)*1.2).sin() + .6*x[:, 2] + .4*torch.sigmoid(2*x[:, 3])*torch.randn(1200, generator=g)
    return halves(200, x, y[:, None])


@cache
def series(seed: int, length: int = 32):
    "Sums of two waves and noise; the target is the next value."
    g = torch.Generator().manual_seed(191 + seed)
    t = torch.arange(length + 1)
    speed, phase = .2 + .6*torch.rand(700, 2, 1, generator=g), 6.28*torch.rand(700, 2, 1, generator=g)
    x = (speed*t + phase).sin().sum(1) + .1*torch.randn(700, length + 1, generator=g)
    return halves(150, x[:, None, :-1], x[:, -1:])


@cache
def clicks(seed: int):
    "Whether somebody buys: two ids and four numbers."
    g = torch.Generator().manual_seed(211 + seed)
    users, items = torch.randint(0, 40, (1500,), generator=g), torch.randint(0, 30, (1500,), generator=g)
    taste, style = torch.randn(40, 2, generator=g), torch.randn(30, 2, generator=g)
    x = torch.randn(1500, 4, generator=g)
    score = (taste[users]*style[items]).sum(1) + x[:, 0] - x[:, 1]*x[:, 2]
    return halves(300, torch.cat([users[:, None], items[:, None]], 1).float(), x, (score > 0).float()[:, None])


@cache
def moons(seed: int):
    g = torch.Generator().manual_seed(231 + seed)
    t = 3.14*torch.rand(1200, generator=g)
    up = torch.rand(1200, generator=g) < .5
    x = torch.stack([torch.where(up, t.cos(), 1 - t.cos()), torch.where(up, t.sin(), .5 - t.sin())], 1)
    x = x + .08*torch.randn(1200, 2, generator=g)
    return halves(200, (x - x.mean(0))/x.std(0))


@cache
def folded(seed: int):
    "A relation of one number to another with several branches, for a mixture density."
    g = torch.Generator().manual_seed(251 + seed)
    y = 2*torch.rand(1200, 1, generator=g) - 1
    x = y + .4*(6.28*y).sin() + .05*torch.randn(1200, 1, generator=g)
    return halves(200, x*1.5, y*1.5)


# Models

class Mnist(nn.Module):
    "The net of PyTorch's first example, smaller; it returns log probabilities."
    def __init__(self, drop: float = .25, side: int = 14, last: Callable | None = None):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.dropout1, self.dropout2 = nn.Dropout(drop), nn.Dropout(min(2*drop, .99))
        self.fc1, self.fc2 = nn.Linear(16*(side//4)**2, 48), nn.Linear(48, 6)
        self.last = last or partial(F.log_softmax, dim=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout1(torch.flatten(x, 1))
        return self.last(self.fc2(self.dropout2(F.relu(self.fc1(x)))))


class BasicBlock(nn.Module):
    def __init__(self, a: int, b: int, stride: int = 1, norm: Callable = nn.BatchNorm2d):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), norm(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), norm(b)
        self.relu = nn.ReLU(inplace=True)
        self.down = None if a == b and stride == 1 else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), norm(b))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.down is None else self.down(x)))


class SmallResNet(nn.Module):
    def __init__(self, norm: Callable = nn.BatchNorm2d, width: int = 8, blocks: int = 1, channels: int = 1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), norm(width),
            nn.ReLU(inplace=True))
        self.layer1 = nn.Sequential(*[BasicBlock(width, width, norm=norm) for _ in range(blocks)])
        self.layer2 = nn.Sequential(BasicBlock(width, 2*width, 2, norm),
                                    *[BasicBlock(2*width, 2*width, norm=norm) for _ in range(blocks - 1)])
        self.fc = nn.Linear(2*width, 6)

    def forward(self, x): return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


def resnet18():
    from torchvision.models import resnet18 as made
    net = made(num_classes=5)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.MaxPool2d(2)
    return net


class UNet(nn.Module):
    def __init__(self, width: int = 8, last: nn.Module | None = None):
        super().__init__()
        def double(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1),
            nn.ReLU())
        self.down1, self.down2, self.middle = double(1, width), double(width, 2*width), double(2*width, 2*width)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.up2, self.up1 = double(4*width, width), double(2*width, width)
        self.out, self.last = nn.Conv2d(width, 1, 1), last

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.middle(self.pool(b))
        x = self.up2(torch.cat([self.up(c), b], 1))
        x = self.out(self.up1(torch.cat([self.up(x), a], 1)))
        return x if self.last is None else self.last(x)


class LetterLSTM(nn.Module):
    def __init__(self, width: int = 32, layers: int = 1, drop: float = 0., kind: Callable = nn.LSTM,
        tied: bool = False):
        super().__init__()
        self.encoder, self.drop = nn.Embedding(letters, width), nn.Dropout(drop)
        self.rnn, self.decoder = kind(width, width, layers, batch_first=True), nn.Linear(width, letters)
        if tied: self.decoder.weight = self.encoder.weight

    def forward(self, x): return self.decoder(self.drop(self.rnn(self.drop(self.encoder(x)))[0]))


class LetterTransformer(nn.Module):
    "torch's own encoder layers with a causal mask, as in its tutorial."
    def __init__(self, width: int = 32, layers: int = 2, drop: float = .1, first: bool = True,
        mask: Callable | None = None):
        super().__init__()
        self.width, self.mask = width, mask
        self.embedding, self.places = nn.Embedding(letters, width), nn.Embedding(64, width)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 2*width, drop, batch_first=True, norm_first=first), layers,
            enable_nested_tensor=False)
        self.decoder = nn.Linear(width, letters)

    def forward(self, x):
        t = x.shape[1]
        mask = self.mask(t) if self.mask else nn.Transformer.generate_square_subsequent_mask(t)
        return self.decoder(self.encoder(self.embedding(x) + self.places(torch.arange(t)), mask=mask))


def bert(**options):
    from transformers import BertConfig, BertForSequenceClassification
    return BertForSequenceClassification(BertConfig(**{
        "vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
        "max_position_embeddings": 32, **options}))


class Convolution(nn.Module):
    "One layer of a GCN."
    def __init__(self, a: int, b: int):
        super().__init__()
        self.linear = nn.Linear(a, b)

    def forward(self, x, adjacency): return adjacency@self.linear(x)


class GCN(nn.Module):
    def __init__(self, width: int = 24, layers: int = 2, act: Callable = torch.relu, drop: float = .3):
        super().__init__()
        sizes = [16, *[width]*(layers - 1), 3]
        self.layers = nn.ModuleList(Convolution(a, b) for a, b in zip(sizes, sizes[1:]))
        self.act, self.drop = act, nn.Dropout(drop)

    def forward(self, x, adjacency):
        for layer in self.layers[:-1]: x = self.drop(self.act(layer(x, adjacency)))
        return self.layers[-1](x, adjacency)


class Seq2Seq(nn.Module):
    "A GRU reads, a GRU writes, with attention on what was read; the true tokens go in."
    def __init__(self, width: int = 32, cut: bool = False):
        super().__init__()
        self.cut = cut
        self.source, self.target = nn.Embedding(9, width), nn.Embedding(9, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.key, self.softmax, self.out = nn.Linear(width, width), nn.Softmax(-1), nn.Linear(2*width, 9)

    def forward(self, x, y):
        seen, state = self.encoder(self.source(x))
        if self.cut: seen, state = seen.detach(), state.detach()
        begin = torch.zeros_like(y[:, :1])
        written, _ = self.decoder(self.target(torch.cat([begin, y[:, :-1]], 1)), state)
        share = self.softmax(written@self.key(seen).transpose(1, 2))
        return self.out(torch.cat([written, share@seen], 2))


class TCN(nn.Module):
    "Dilated causal convolutions with residuals."
    def __init__(self, width: int = 16, levels: int = 4, residual: float = 1.):
        super().__init__()
        self.residual = residual
        self.first = nn.Conv1d(1, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**(i % 4)) for i in range(levels))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(x)
        for conv in self.convs: x = self.residual*x + F.relu(conv(F.pad(x, (2*conv.dilation[0], 0))))
        return self.head(x[:, :, -1])


class VAE(nn.Module):
    def __init__(self, inputs: int = 196, width: int = 48, code: int = 6, blind: bool = False):
        super().__init__()
        self.blind = blind
        self.fc1, self.mu, self.logvar = nn.Linear(inputs, width), nn.Linear(width, code), nn.Linear(width, code)
        self.fc3, self.fc4 = nn.Linear(code, width), nn.Linear(width, inputs)

    def forward(self, x):
        h = F.relu(self.fc1(x.flatten(1)))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu)*(logvar/2).exp() if self.training else mu
        if self.blind: z = torch.randn_like(mu)
        return self.fc4(F.relu(self.fc3(z))), mu, logvar


class WideDeep(nn.Module):
    def __init__(self, width: int = 8, last: nn.Module | None = None):
        super().__init__()
        self.users, self.items, self.wide = nn.Embedding(40, width), nn.Embedding(30, width), nn.Linear(4, 1)
        self.deep = nn.Sequential(nn.Linear(2*width + 4, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.last = last

    def forward(self, ids, x):
        ids = ids.long()
        deep = self.deep(torch.cat([self.users(ids[:, 0]), self.items(ids[:, 1]), x], 1))
        out = self.wide(x) + deep
        return out if self.last is None else self.last(out)


class Mixer(nn.Module):
    def __init__(self, width: int = 24, depth: int = 2, scale: float = 1., norm: Callable = nn.LayerNorm):
        super().__init__()
        self.scale = scale
        self.patches = nn.Conv2d(1, width, 4, 4, padding=1)
        def mlp(n): return nn.Sequential(nn.Linear(n, 2*n), nn.GELU(), nn.Linear(2*n, n))
        self.blocks = nn.ModuleList(nn.ModuleDict({"norm1": norm(width), "tokens": mlp(16), "norm2": norm(width),
                                                   "channels": mlp(width)}) for _ in range(depth))
        self.norm, self.head = norm(width), nn.Linear(width, 6)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = x + self.scale*b["tokens"](b["norm1"](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.scale*b["channels"](b["norm2"](x))
        return self.head(self.norm(x).mean(1))


class ViT(nn.Module):
    def __init__(self, width: int = 32, depth: int = 2, drop: float = 0., cut: bool = False):
        super().__init__()
        self.cut = cut
        self.patches = nn.Conv2d(1, width, 4, 4, padding=1)
        self.cls, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 17, width)*.02)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 64, drop, "gelu", batch_first=True,
            norm_first=True)
                                    for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 6)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x)[:, 0])


class Coupling(nn.Module):
    def __init__(self, flip: bool, width: int = 32):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width,
            2))

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = s.tanh()*2
        out = torch.cat([a, b*s.exp() + t], 1)
        return (out.flip(1) if self.flip else out), s.sum(1)


class Flow(nn.Module):
    def __init__(self, depth: int = 6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(bool(i % 2)) for i in range(depth))

    def forward(self, x):
        total = 0.
        for layer in self.layers:
            x, s = layer(x)
            total = total + s
        return x, total


class Mixture(nn.Module):
    def __init__(self, parts: int = 5, width: int = 32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.weight, self.mean, self.spread = nn.Linear(width, parts), nn.Linear(width, parts), nn.Linear(width, parts)

    def forward(self, x):
        h = self.body(x)
        return self.weight(h), self.mean(h), self.spread(h)


class Tasks(nn.Module):
    "A trunk and two heads: the class of a picture, and how bright its middle is."
    def __init__(self, cut: bool = False):
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(196, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
        self.kind, self.light, self.cut = nn.Linear(32, 6), nn.Linear(32, 1), cut

    def forward(self, x):
        h = self.trunk(x)
        if self.cut: h = h.detach()
        return self.kind(h), self.light(h)


def dense(*sizes: int, act: Callable = nn.ReLU, last: nn.Module | None = None, flat: bool = False) -> nn.Sequential:
    parts = [nn.Flatten()] if flat else []
    for a, b in zip(sizes, sizes[1:]): parts += [nn.Linear(a, b), act()]
    return nn.Sequential(*parts[:-1], *[last] if last is not None else [])


def encoder() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 16))


def conv_autoencoder() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(392, 16), nn.Linear(16, 392), nn.ReLU(), nn.Unflatten(1, (8, 7, 7)),
                         nn.ConvTranspose2d(8, 1, 4, 2, 1))


# Losses of (model, *batch), and scores, lower is better

def nll(model, x, y): return F.nll_loss(model(x), y)
def crossed(model, x, y, **options): return F.cross_entropy(model(x), y, **options)
def letters_loss(model, x, y): return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
def bert_loss(model, x, y): return model(input_ids=x, labels=y).loss
def graph_loss(model, x, a, y, mask): return F.cross_entropy(model(x, a)[mask], y[mask])
def masks_loss(model, x, y): return F.binary_cross_entropy_with_logits(model(x), y)
def turned_loss(model, x, y): return F.cross_entropy(model(x, y).flatten(0, 1), y.flatten())
def squared(model, x, y): return F.mse_loss(model(x), y)
def huber(model, x, y): return F.huber_loss(model(x), y, delta=.5)
def click_loss(model, ids, x, y): return F.binary_cross_entropy_with_logits(model(ids, x), y)
def itself(model, x, y): return F.mse_loss(model(x), x)


def gauss(model, x, y):
    mean, log_var = model(x).chunk(2, 1)
    return .5*(log_var + (y - mean)**2/log_var.exp()).mean()


def elbo(model, x, y, beta: float = .02):
    out, mu, logvar = model(x)
    rebuilt = F.mse_loss(out, x.flatten(1))
    return rebuilt - beta*.5*(1 + logvar - mu**2 - logvar.exp()).sum(1).mean()


def likelihood(model, x):
    z, total = model(x)
    return (.5*(z**2).sum(1) + math.log(2*math.pi) - total).mean()


def mixture(model, x, y):
    weight, mean, spread = model(x)
    each = weight.log_softmax(1) - .5*((y - mean)/spread.exp())**2 - spread - .919
    return -each.logsumexp(1).mean()


def two_tasks(model, x, y, share: float = .5):
    kind, light = model(x)
    return F.cross_entropy(kind, y) + share*F.mse_loss(light, brightness(x))


def brightness(x): return x[:, :, 4:10, 4:10].mean((2, 3))*3


def others(y):
    "For each sample the number of one of its class, and of one of another class."
    same = y[:, None] == y
    apart = torch.rand(len(y), len(y))
    return (apart + same - 2*torch.eye(len(y))).argmax(1), (apart + ~same).argmax(1)


def triplet(model, x, y):
    z = model(x)
    like, unlike = others(y)
    return F.triplet_margin_loss(z, z[like], z[unlike])


def nt_xent(model, x, y, heat: float = .3):
    n = len(x)
    z = F.normalize(model(torch.cat([x + .5*torch.randn_like(x), x.roll(1, 3) + .5*torch.randn_like(x)])), dim=1)
    alike = z@z.T/heat
    alike = alike.masked_fill(torch.eye(2*n).bool(), -1e9)
    return F.cross_entropy(alike, torch.arange(2*n).roll(n))


def wrong(model, x, y): return (model(x).argmax(-1) != y).float().mean().item()
def bert_wrong(model, x, y): return (model(x).logits.argmax(-1) != y).float().mean().item()
def letters_wrong(model, x, y): return (model(x).argmax(-1) != y).float().mean().item()
def graph_wrong(model, x, a, y, mask): return (model(x, a).argmax(-1) != y)[mask].float().mean().item()
def turned_wrong(model, x, y): return (model(x, y).argmax(-1) != y).float().mean().item()
def tags_wrong(model, x, y): return ((model(x) > 0) != (y > .5)).float().mean().item()
def clicks_wrong(model, ids, x, y): return ((model(ids, x) > 0) != (y > .5)).float().mean().item()
def left_over(model, x, y): return ((model(x)[:, :1] - y)**2).mean().item()/y.var().item()
def rebuilt(model, x, y): return ((model(x) - x)**2).mean().item()/x.var().item()
def vae_left(model, x, y): return ((model(x)[0] - x.flatten(1))**2).mean().item()/x.var().item()
def surprise(model, *batch): return likelihood(model, *batch).item()
def mixture_score(model, *batch): return mixture(model, *batch).item()
def tasks_wrong(model, x, y): return (model(x)[0].argmax(1) != y).float().mean().item()


def overlap_lacks(model, x, y):
    found = model(x) > 0
    return 1 - ((found & (y > .5)).sum()/(found | (y > .5)).sum()).item()


def neighbour_wrong(model, x, y):
    z = F.normalize(model(x), dim=1)
    far = torch.cdist(z, z) + 9*torch.eye(len(z))
    if not z.isfinite().all(): return math.nan
    return (y[far.argmin(1)] != y).float().mean().item()


# The loop, with what users leave out of it or put at the wrong place

def batches(data, steps: int, size: int):
    "Shuffled epochs, as a DataLoader gives them."
    order, at = torch.randperm(len(data[0])), 0
    for _ in range(steps):
        if at + size > len(order): order, at = torch.randperm(len(order)), 0
        some, at = order[at:at + size], at + size
        yield tuple(t[some] for t in data)


def whole(data, steps: int, size: int):
    for _ in range(steps): yield data


def fit(record, model, optimizer, loss_of, feed, zero: str = "before", order: str = "right",
    clip: Callable | None = None,
        scheduler: Callable | None = None, each: Callable | None = None, told: Callable = lambda loss: loss,
        every: int = 1):
    plan = scheduler(optimizer) if scheduler else None
    with record.on(model, optimizer=optimizer) as s:
        for i, batch in enumerate(feed):
            if each: each(model, i)
            if zero == "before" and i % every == 0: optimizer.zero_grad()
            loss = loss_of(model, *batch)
            if order == "step first": optimizer.step()
            (loss/every).backward()
            if clip: clip(model.parameters())
            if order == "zeroed": optimizer.zero_grad()
            if order != "step first" and order != "no step" and (i + 1) % every == 0: optimizer.step()
            if zero == "after" and (i + 1) % every == 0: model.zero_grad()
            if plan: plan.step()
            s.step(told(loss))


def go(record, seed: int, data, net, loss, score, optim, steps: int = 100, size: int = 32,
    change: Callable | None = None,
       prepare: Callable | None = None, loop: Callable = fit, feed: Callable = batches, hand: Callable | None = None,
       **options) -> float:
    torch.manual_seed(900 + seed)
    given, held = data(seed)
    if prepare: given, held = prepare(*given), prepare(*held)
    model = net()
    if change:
        with torch.no_grad(): change(model)
    optimizer = optim(model)
    if hand: hand(model)
    loop(record, model, optimizer, loss, feed(given, steps, size), **options)
    model.eval()
    with torch.no_grad(): return score(model, *held)


def workload(**usual): return lambda **other: partial(go, **{**usual, **other})


def sgd(lr, **o): return lambda m: torch.optim.SGD(m.parameters(), lr, **o)
def adam(lr, **o): return lambda m: torch.optim.Adam(m.parameters(), lr, **o)
def adamw(lr, **o): return lambda m: torch.optim.AdamW(m.parameters(), lr, **o)
def rmsprop(lr, **o): return lambda m: torch.optim.RMSprop(m.parameters(), lr, **o)
def adagrad(lr, **o): return lambda m: torch.optim.Adagrad(m.parameters(), lr, **o)
def nadam(lr, **o): return lambda m: torch.optim.NAdam(m.parameters(), lr, **o)


mnist = workload(data=pictures, net=Mnist, loss=nll, score=wrong, optim=adam(3e-3), steps=100)
resnet = workload(data=pictures, net=SmallResNet, loss=crossed, score=wrong, optim=sgd(.1, momentum=.9), steps=60)
resnet_big = workload(data=colored, net=resnet18, loss=crossed, score=wrong, optim=adam(1e-3), steps=22, size=16)
unet = workload(data=blobs, net=UNet, loss=masks_loss, score=overlap_lacks, optim=adam(3e-3), steps=90, size=16)
lstm = workload(data=lines, net=LetterLSTM, loss=letters_loss, score=letters_wrong, optim=rmsprop(5e-3), steps=120)
former = workload(data=lines, net=LetterTransformer, loss=letters_loss, score=letters_wrong, optim=adamw(3e-3),
    steps=90)
berts = workload(data=sentences, net=bert, loss=bert_loss, score=bert_wrong, optim=adamw(2e-3), steps=60)
gcn = workload(data=graph, net=GCN, loss=graph_loss, score=graph_wrong, optim=adam(2e-2, weight_decay=5e-4), steps=80,
    feed=whole)
siamese = workload(data=pictures, net=encoder, loss=triplet, score=neighbour_wrong, optim=adam(2e-3), steps=100)
contrast = workload(data=pictures, net=encoder, loss=nt_xent, score=neighbour_wrong, optim=adam(3e-3), steps=100)
seq2seq = workload(data=turned, net=Seq2Seq, loss=turned_loss, score=turned_wrong, optim=adam(1e-2), steps=150)
labels = workload(data=tags, net=lambda: dense(20, 48, 48, 5), loss=masks_loss, score=tags_wrong, optim=nadam(5e-3),
    steps=120)
spread = workload(data=noisy, net=lambda: dense(6, 48, 48, 2, act=nn.Tanh), loss=gauss, score=left_over,
    optim=adam(5e-3), steps=200)
tcn = workload(data=series, net=TCN, loss=squared, score=left_over, optim=adam(5e-3), steps=100)
vae = workload(data=pictures, net=VAE, loss=elbo, score=vae_left, optim=adam(3e-3), steps=200)
auto = workload(data=pictures, net=conv_autoencoder, loss=itself, score=rebuilt, optim=adam(5e-3), steps=150)
mdn = workload(data=folded, net=Mixture, loss=mixture, score=mixture_score, optim=adam(1e-2), steps=150, size=64)
widedeep = workload(data=clicks, net=WideDeep, loss=click_loss, score=clicks_wrong, optim=adagrad(.1), steps=200,
    size=64)
mixer = workload(data=pictures, net=Mixer, loss=crossed, score=wrong, optim=adamw(3e-3), steps=80)
vit = workload(data=pictures, net=ViT, loss=crossed, score=wrong, optim=adamw(2e-3), steps=100)
flow = workload(data=moons, net=Flow, loss=likelihood, score=surprise, optim=adam(1e-2), steps=150, size=64)
tasks = workload(data=pictures, net=Tasks, loss=two_tasks, score=tasks_wrong, optim=sgd(.05, momentum=.9), steps=100)

known = {"MNIST CNN": mnist, "small ResNet": resnet, "resnet18": resnet_big, "U-Net": unet, "letters LSTM": lstm,
         "letters transformer": former, "BERT": berts, "GCN": gcn, "siamese net": siamese, "NT-Xent": contrast,
         "seq2seq": seq2seq, "multi-label": labels, "heteroscedastic regression": spread, "TCN": tcn, "VAE": vae,
         "conv autoencoder": auto, "mixture density": mdn, "wide and deep": widedeep, "MLP-Mixer": mixer, "ViT": vit,
         "flow": flow, "two tasks": tasks}


# Faults

def ids(names: str) -> frozenset[str]: return frozenset(name.strip() for name in names.split(",") if name.strip())


def fault(kind: str, name: str, causes: str, symptoms: str, way, reach: bool = True, twin: Run | None = None, **other):
    "A fault: `way` with what is in `other`; its healthy twin is `way` without it."
    listed.append(Case(kind, name, ids(causes), ids(symptoms), way(**other), twin or way(), reach=reach))


diverged = ("outputs blow up, activations explode, gradients explode, NaN or Inf, loss rises, loss does not fall, "
            "dead units, saturated, constant output, samples alike, gradients vanish, not trained, dead attention, "
            "units alike")
starved = ("not trained, gradients vanish, loss does not fall, samples alike, constant output, activations vanish, "
           "input unused, dead units, dead attention")
stands = "loss does not fall"


def by(factor, *kinds):
    "Multiplies the weights of all layers of some kinds."
    def change(model):
        for m in model.modules():
            if isinstance(m, kinds or (nn.Linear, nn.Conv2d, nn.Conv1d)): m.weight *= factor
    return change


def biased(value, pick=lambda m: [c for c in m.modules() if isinstance(c, (nn.Linear, nn.Conv2d, nn.Conv1d))][:-1]):
    def change(model):
        for m in pick(model): m.bias += value
    return change


def filled(value, *kinds):
    def change(model):
        for m in model.modules():
            if isinstance(m, kinds or (nn.Linear, nn.Conv2d, nn.Conv1d)):
                m.weight.fill_(value)
                m.bias.zero_()
    return change


def part(get: Callable, optim: Callable = torch.optim.Adam,
    lr: float = 3e-3): return lambda m: optim(get(m).parameters(), lr)


def then(net, last): return lambda: nn.Sequential(net(), last)


def clipped(limit): return partial(nn.utils.clip_grad_norm_, max_norm=limit)


# Rates

large = "learning rate too large"
fault(large, "resnet18, Adam 1", large, diverged, resnet_big, optim=adam(1.))
fault(large, "VAE, Adam 1", large, diverged, vae, optim=adam(1.))
fault(large, "GCN, SGD 1000", large, diverged, gcn, optim=sgd(1000.))
fault(large, "TCN, RMSprop 1", large, diverged, tcn, optim=rmsprop(1.))
fault(large, "MLP-Mixer, AdamW 10", large, diverged, mixer, optim=adamw(10.))
fault(large + ", mild", "U-Net, Adam 0.3", large, diverged, unet, optim=adam(.3))
fault(large + ", mild", "seq2seq, Adam 0.5", large, diverged, seq2seq, optim=adam(.5))
fault(large + ", mild", "ViT, NAdam 0.1", large, diverged, vit, optim=nadam(.1))
fault(large + ", mild", "BERT, AdamW 0.1", large, diverged, berts, optim=adamw(.1))
small = "learning rate too small"
fault(small, "small ResNet, SGD 1e-6", small, stands, resnet, optim=sgd(1e-6))
fault(small, "siamese net, Adam 1e-8", small, stands, siamese, optim=adam(1e-8))
fault(small, "seq2seq, Adam 1e-6", small, stands, seq2seq, optim=adam(1e-6))
fault(small, "wide and deep, Adagrad 1e-5", small, stands, widedeep, optim=adagrad(1e-5))

# Activations and beginnings

fault("dead ReLU", "multi-label, biases of -8", "dead units", starved, labels, change=biased(-8.))
fault("dead ReLU", "MNIST CNN, biases of -10", "dead units", starved, mnist, change=biased(-10.))
fault("dead ReLU", "pictures, plain net, biases of -9", "dead units", starved, mixer,
      net=lambda: then(partial(dense, 196, 48, 48, 6, flat=True), nn.Identity())(), change=biased(-9.), twin=mixer(
          net=partial(dense, 196, 48, 48, 6, flat=True)))
fault("saturated", "heteroscedastic regression, weights x 100", "saturated",
    starved + ", NaN or Inf, gradients explode, units alike, "
      "activations explode, outputs blow up", spread, change=by(100.))
fault("saturated", "letters LSTM, gates with weights x 100", "saturated", starved + ", units alike, gradients explode",
    lstm,
      change=lambda m: [p.mul_(100.) for n, p in m.rnn.named_parameters() if "weight" in n])
fault("gradients vanish", "multi-label, ten layers with sigmoid", "gradients vanish", starved + ", saturated", labels,
      net=lambda: dense(20, *[32]*10, 5, act=nn.Sigmoid))
fault("gradients vanish", "GCN of 12 layers with tanh", "gradients vanish, activations vanish, samples alike", starved,
      gcn, net=lambda: GCN(layers=12, act=torch.tanh), change=by(.5))
fault("gradients vanish", "conv autoencoder, weights x 0.003, SGD", "gradients vanish, activations vanish", starved,
    auto,
      optim=sgd(.1, momentum=.9), twin=auto(optim=sgd(.1, momentum=.9)), change=by(.003, nn.Conv2d, nn.Linear,
      nn.ConvTranspose2d))
exploded = "activations explode, gradients explode, outputs blow up"
fault("gradients explode", "multi-label of eight layers, weights x 6", exploded,
    diverged + ", learning rate too large", labels,
      net=lambda: dense(20, *[48]*8, 5), optim=sgd(.05), change=by(6.),
      twin=labels(net=lambda: dense(20, *[48]*2, 5), optim=sgd(.3, momentum=.9)))
fault("gradients explode", "TCN, weights x 8", exploded, diverged + ", learning rate too large", tcn, optim=sgd(.01),
      change=by(8.), twin=tcn(optim=sgd(.03, momentum=.9)))
fault("residual explodes", "small ResNet of 8 blocks without norm", exploded, diverged + ", learning rate too large",
    resnet,
      net=lambda: SmallResNet(nn.Identity, blocks=4), change=by(4.), steps=40,
      twin=resnet(net=lambda: SmallResNet(blocks=4), steps=40))
fault("residual explodes", "TCN of 12 levels that trebles its residual", exploded,
    diverged + ", learning rate too large, saturated",
      tcn, net=lambda: TCN(levels=12, residual=3.), steps=50, twin=tcn(steps=50))
fault("zero init", "multi-label, all weights zero", "constant output, units alike, samples alike",
    starved + ", units alike", labels,
      change=filled(0.))
fault("zero init", "NT-Xent, all weights zero", "constant output, units alike, samples alike",
    starved + ", units alike, NaN or Inf",
      contrast, change=filled(0.))
fault("constant init", "heteroscedastic regression, weights of 0.1", "units alike", starved + ", saturated", spread,
      change=filled(.1))
fault("constant init", "two tasks, weights of 0.05", "units alike", starved, tasks, change=filled(.05))

# The loop

fault("no zero_grad", "MNIST CNN, SGD", "no zero_grad", diverged + ", learning rate too large", mnist, zero="never",
      optim=sgd(.05, momentum=.9), twin=mnist(optim=sgd(.05, momentum=.9)))
fault("no zero_grad", "letters LSTM, SGD", "no zero_grad", diverged + ", learning rate too large", lstm, zero="never",
    optim=sgd(2., momentum=.9),
      twin=lstm(optim=sgd(2., momentum=.9)))
fault("no zero_grad", "U-Net, Adam", "no zero_grad", diverged + ", learning rate too large", unet, zero="never")
fault("no zero_grad", "flow, Adam", "no zero_grad", diverged + ", learning rate too large", flow, zero="never")
fault("step before backward", "ViT", "step before backward", "not trained, loss does not fall", vit, order="step first")
fault("step before backward", "seq2seq, zero_grad between backward and step", "step before backward, not trained",
      "loss does not fall", seq2seq, order="zeroed", zero="never")
fault("step or backward missing", "siamese net, no step", "not trained",
    "step before backward, no zero_grad, loss does not fall",
      siamese, order="no step")
sched = torch.optim.lr_scheduler
often = "scheduler each batch"
fault(often, "MNIST CNN, gamma 0.7", often, "learning rate too small, loss does not fall", mnist,
      scheduler=lambda o: sched.StepLR(o, 1, .7))
fault(often, "BERT, a tenth each 3", often, "learning rate too small, loss does not fall", berts,
      scheduler=lambda o: sched.StepLR(o, 3, .1))
fault(often, "seq2seq, milestones of epochs", often, "learning rate too small, loss does not fall", seq2seq,
      scheduler=lambda o: sched.MultiStepLR(o, [5, 10, 15], .1))


def eval_from(step): return lambda model, i: model.eval() if i == step else None


class Normed(nn.Module):
    "A deep plain net with batch norm."
    def __init__(self, depth: int = 10, width: int = 32, **norm):
        super().__init__()
        parts = [nn.Flatten()]
        for i in range(depth): parts += [nn.Linear(width if i else 196, width), nn.BatchNorm1d(width, **norm),
            nn.ReLU()]
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 6)

    def forward(self, x): return self.head(self.body(x))


normed = workload(data=pictures, net=Normed, loss=crossed, score=wrong, optim=sgd(.05, momentum=.9), steps=80)
fault("eval mode", "deep net with batch norm, from the first batch", "eval mode", starved + ", batch norm", normed,
    each=eval_from(0))
fault("eval mode", "small ResNet, from the fourth batch", "eval mode",
    diverged + ", batch norm, learning rate too large", resnet,
      each=eval_from(3), net=lambda: SmallResNet(blocks=4), twin=resnet(net=lambda: SmallResNet(blocks=4)))
tight = "clipping too tight"
fault(tight, "two tasks, SGD, norm of 1e-4", tight, "learning rate too small, loss does not fall", tasks,
    clip=clipped(1e-4))
fault(tight, "small ResNet, SGD, values of 1e-7", tight, "learning rate too small, loss does not fall", resnet,
      clip=lambda p: nn.utils.clip_grad_value_(p, 1e-7))
fault(tight, "TCN, Adam, norm of 1e-9", tight, "learning rate too small, loss does not fall", tcn, clip=clipped(1e-9))
decay = "weight decay too strong"
fault(decay, "MLP-Mixer, AdamW, 100", decay, starved, mixer, optim=adamw(3e-3, weight_decay=100.))
fault(decay, "letters transformer, AdamW, 60", decay, starved, former, optim=adamw(3e-3, weight_decay=60.))
fault(decay, "two tasks, SGD, 0.5", decay, starved, tasks, optim=sgd(.05, momentum=.9, weight_decay=.5))
fault(decay, "multi-label, NAdam, 1", decay, starved, labels, optim=nadam(5e-3, weight_decay=1.))

# What the optimizer holds, what is cut

lacks = "not in the optimizer"
fault(lacks, "BERT, only the classifier", lacks + ", frozen part", "not trained, loss does not fall", berts,
      optim=part(lambda m: m.classifier))


fault("wrong optimizer", "MNIST CNN, the optimizer has another net's",
    "not in the optimizer, other parameters in the optimizer",
      "not trained, loss does not fall", mnist, optim=lambda m: torch.optim.Adam(Mnist().parameters(), 3e-3))
cut = "frozen part, not trained"
fault("detached", "two tasks, the trunk is detached, noisy", cut, "gradients vanish, loss does not fall", tasks,
      net=lambda: Tasks(cut=True), data=partial(pictures, noise=2.), twin=tasks(data=partial(pictures, noise=2.)))


def no_grad_encoder(model, x, y):
    with torch.no_grad(): h = model[:6](x)
    return F.mse_loss(model[6:](h), x)


fault("detached", "conv autoencoder, no_grad around the encoder", cut, "gradients vanish, loss does not fall", auto,
    loss=no_grad_encoder)


def frozen(*names):
    def change(model):
        for name, p in model.named_parameters(): p.requires_grad_(not any(n in name for n in names))
    return change


fault("frozen by mistake", "letters LSTM, all but the recurrent layer's biases", cut,
    "loss does not fall, gradients vanish", lstm,
      change=frozen("encoder", "decoder", "weight"))
fault("frozen by mistake", "TCN, all convolutions", cut, "loss does not fall, gradients vanish", tcn,
    change=frozen("first", "convs"))

# What comes in and what is wanted

scale = "inputs not scaled"
unscaled = diverged + ", learning rate too large, batch norm, input unused"
fault(scale, "wide and deep, an income in dollars", scale, unscaled, widedeep,
      prepare=lambda i, x, y: (i, x*torch.tensor([1., 1., 1., 3e4]) + torch.tensor([0., 0., 0., 5e4]), y))
fault(scale, "U-Net, pixels of 0 to 60,000", scale, unscaled, unet, prepare=lambda x, y: ((x + 4)*8000, y))
fault(scale, "TCN, prices near 20,000", scale + ", targets not scaled", unscaled, tcn, prepare=lambda x,
    y: (x*50 + 2e4, y*50 + 2e4))
fault(scale, "mixture density, inputs in thousandths of a million", scale, unscaled, mdn, prepare=lambda x,
    y: (x*1e3 + 2e3, y))
fault("targets not scaled", "heteroscedastic regression, targets near 300,000", "targets not scaled",
      diverged + ", learning rate too large, learning rate too small", spread, prepare=lambda x, y: (x, y*1e5 + 3e5))
fault("targets not scaled", "series, targets near 50,000, squared error, SGD", "targets not scaled",
      diverged + ", learning rate too large", tcn, prepare=lambda x, y: (x, y*1e4 + 5e4), optim=sgd(.01, momentum=.9),
      twin=tcn(optim=sgd(.03, momentum=.9)))
same = "constant inputs, samples alike, inputs not scaled"
fault("data bug", "MNIST CNN, pixels divided by 255 three times", same, starved, mnist, prepare=lambda x,
    y: ((x/4 + .5)/255**3, y))
fault("data bug", "ViT, every picture is the first one", "constant inputs, samples alike", starved, vit,
      prepare=lambda x, y: (x[:1].expand_as(x), y))
fault("data bug", "BERT, the tokenizer knows no word", "constant inputs, samples alike", starved, berts,
    prepare=lambda x, y: (x*0 + 1, y))
fault("data bug", "resnet18, pixels rounded to zero", "constant inputs, samples alike", starved + ", batch norm",
    resnet_big,
      prepare=lambda x, y: (((x + 8)/100).clamp(0, 1).floor(), y))
fault("input unused", "VAE, the decoder gets noise in place of the code",
    "input unused, samples alike, not trained, frozen part",
      starved, vae, net=lambda: VAE(blind=True))


class Forgot(nn.Module):
    "Its forward makes something of x, and goes on with something else."
    def __init__(self):
        super().__init__()
        self.body, self.base, self.head = dense(20, 48, 48), nn.Parameter(torch.randn(48)), nn.Linear(48, 5)

    def forward(self, x):
        self.body(x)
        return self.head(self.base.expand(len(x), -1).relu())


fault("input unused", "multi-label, forward goes on with the wrong variable",
    "input unused, samples alike, not trained, frozen part",
      starved, labels, net=Forgot)

# The loss

early = "activation before the loss"
squeezed = "loss does not fall, saturated, gradients vanish, not trained, dead units"


fault(early, "U-Net, sigmoid before its logits' loss", early, squeezed, unet, net=lambda: UNet(last=nn.Sigmoid()),
      score=lambda m, x, y: overlap_lacks(lambda x: m(x) - .5, x, y))
fault(early, "multi-label, ReLU before its logits' loss", early + ", dead units", squeezed, labels,
    net=then(partial(dense, 20, 48, 48, 5), nn.ReLU()))
fault(early, "TCN, ReLU as its last layer, targets on both sides of 0", early + ", dead units",
    squeezed + ", samples alike", tcn,
      net=then(TCN, nn.ReLU()))
fault(early, "series, sigmoid before a squared error", early + ", saturated", squeezed, tcn, net=then(TCN,
    nn.Sigmoid()))
sign = "wrong sign"
fault(sign, "heteroscedastic regression, minus the loss", sign, diverged + ", learning rate too large", spread,
      loss=lambda m, x, y: -gauss(m, x, y))
fault(sign, "BERT, minus the loss", sign, diverged + ", learning rate too large", berts, loss=lambda m, x,
    y: -bert_loss(m, x, y))
fault(sign, "NT-Xent, minus the loss", sign, diverged + ", learning rate too large", contrast, loss=lambda m, x,
    y: -nt_xent(m, x, y))
fault(sign, "MNIST CNN, log probabilities without a minus", sign, diverged + ", learning rate too large", mnist,
      loss=lambda m, x, y: m(x).gather(1, y[:, None]).mean())
fault(sign, "MNIST CNN, nll_loss of logits", sign + ", " + early, diverged + ", learning rate too large", mnist,
      net=lambda: Mnist(last=nn.Identity()))
broken = "loss does not fall, not trained, loss rises, gradients explode, outputs blow up, "\
          "dead units, saturated, constant output, activations explode"
fault("NaN or Inf", "U-Net, log of a sigmoid that rounds to 0", "NaN or Inf", broken + ", learning rate too large",
    unet, change=by(4.),
      loss=lambda m, x, y: -(y*m(x).sigmoid().log() + (1 - y)*(1 - m(x).sigmoid()).log()).mean())
fault("NaN or Inf", "mixture density, exp without logsumexp", "NaN or Inf", broken, mdn,
      loss=lambda m, x, y: (lambda w, a, s: -(w.exp()/w.exp().sum(1,
      True)*(-.5*((y - a)/s.exp())**2).exp()/s.exp()).sum(1).log().mean())(*m(x)),
      prepare=lambda x, y: (x, y*20), twin=mdn(prepare=lambda x, y: (x, y*1)))
fault("NaN or Inf", "heteroscedastic regression, log of a variance below zero", "NaN or Inf", broken, spread,
      loss=lambda m, x, y: (lambda a, v: .5*(v.log() + (y - a)**2/v).mean())(*m(x).chunk(2, 1)))
fault("NaN or Inf", "siamese net, root of a distance of zero", "NaN or Inf", broken, siamese,
      loss=lambda m, x, y: (lambda z: ((z[:, None] - z).square().sum(2).sqrt()*((y[:,
      None] == y)*2. - 1)).mean())(m(x)))

# Regularization

drop = "dropout too strong"
fault(drop, "MNIST CNN, 0.95 and 0.99", drop, starved + ", learning rate too large", mnist, net=lambda: Mnist(drop=.97))
fault(drop, "BERT, 0.95", drop, starved, berts, net=lambda: bert(hidden_dropout_prob=.95,
    attention_probs_dropout_prob=.9))
fault("batch norm", "deep net, batches of 2", "batch norm",
    "loss does not fall, learning rate too large, samples alike, saturated, dead units",
      normed, size=2, optim=adam(1e-3), steps=150, twin=normed(net=lambda: dense(196, *[32]*4, 6, flat=True), size=2,
      optim=adam(1e-3), steps=150))
fault("batch norm", "momentum of 0, deep net, eval differs", "batch norm", "", normed,
    net=lambda: Normed(momentum=1e-6), reach=False)


def gammas(value):
    def change(model):
        for m in model.modules():
            if isinstance(m, (nn.BatchNorm2d, nn.BatchNorm1d, nn.LayerNorm)): m.weight.fill_(value)
    return change


fault("batch norm", "small ResNet, all gammas zero", "batch norm, constant output, samples alike, activations vanish",
    starved, resnet, change=gammas(0.))
fault("killed signal", "ViT, gammas of 1e-5 everywhere", "activations vanish, samples alike, gradients vanish",
    starved, vit,
      change=gammas(1e-5), optim=sgd(.05, momentum=.9), twin=vit(optim=sgd(.05, momentum=.9)))
fault("embedding", "letters LSTM, all embeddings alike", "samples alike, constant output, units alike, input unused",
    starved, lstm,
      change=lambda m: m.encoder.weight.copy_(m.encoder.weight[:1].expand_as(m.encoder.weight)), optim=sgd(.2),
      twin=lstm(optim=sgd(2., momentum=.9)))
fault("dead attention", "letters transformer, a query x 100", "dead attention, saturated", starved, seq2seq,
      change=lambda m: m.key.weight.mul_(300.))
fault("dead attention", "BERT, every token is masked but the first", "dead attention, input unused, samples alike",
    starved, berts,
      loss=lambda m, x, y: m(input_ids=x*0 + 3, labels=y).loss)
fault("collapse", "siamese net without negatives", "samples alike", starved + ", loss does not fall", siamese,
      loss=lambda m, x, y: (lambda z: (z - z[others(y)[0]]).square().mean())(m(x)))
fault("collapse", "VAE, its KL x 1000", "samples alike, constant output", starved, vae, loss=partial(elbo, beta=20.))


# Healthy runs that look odd

def fine(kind: str, name: str, run: Run, bound: float):
    listed.append(Case(kind, name, frozenset(), frozenset(), run, bound=bound))


for name, bound in {"MNIST CNN": .1, "small ResNet": .1, "resnet18": .5, "U-Net": .5, "letters LSTM": .25,
    "letters transformer": .25,
                    "BERT": .2, "GCN": .15, "siamese net": .15, "NT-Xent": .15, "seq2seq": .2, "multi-label": .2,
                    "heteroscedastic regression": .3, "TCN": .1, "VAE": .65, "conv autoencoder": .55,
                    "mixture density": .8,
                    "wide and deep": .35, "MLP-Mixer": .1, "ViT": .1, "flow": 2.5, "two tasks": .1}.items():
    fine("plain", name, known[name](), bound)

fine("optimizer", "MNIST CNN, Adadelta as in PyTorch's example",
    mnist(optim=lambda m: torch.optim.Adadelta(m.parameters(), 1.)), .2)
fine("optimizer", "small ResNet, NAdam", resnet(optim=nadam(3e-3)), .2)
fine("optimizer", "multi-label, Adagrad 0.1", labels(optim=adagrad(.1)), .2)
fine("optimizer", "two tasks, SGD with Nesterov", tasks(optim=sgd(.03, momentum=.9, nesterov=True)), .15)
fine("optimizer", "GCN, SGD 1 with momentum", gcn(optim=sgd(1., momentum=.9)), .2)
fine("optimizer", "TCN, AMSGrad", tcn(optim=adam(5e-3, amsgrad=True)), .15)
fine("optimizer", "NT-Xent, RMSprop centered with momentum", contrast(optim=rmsprop(3e-4, centered=True, momentum=.9)),
    .15)
fine("optimizer", "ViT, Adamax", vit(optim=lambda m: torch.optim.Adamax(m.parameters(), 5e-3)), .2)
fine("optimizer", "two tasks, a rate for each layer", tasks(optim=lambda m: torch.optim.SGD(
    [{"params": m.trunk.parameters(), "lr": 1e-2}, {"params": m.kind.parameters(), "lr": .1},
     {"params": m.light.parameters(), "lr": 1e-3}], momentum=.9)), .2)
fine("optimizer", "letters transformer, decay on weights only", former(optim=lambda m: torch.optim.AdamW(
    [{"params": [p for p in m.parameters() if p.dim() > 1], "weight_decay": .1},
     {"params": [p for p in m.parameters() if p.dim() <= 1], "weight_decay": 0.}], 3e-3)), .25)
fine("loss", "MNIST CNN, label smoothing of 0.2", mnist(net=lambda: Mnist(last=nn.Identity()),
                                                       loss=partial(crossed, label_smoothing=.2)), .1)
fine("loss", "ViT, class weights", vit(loss=partial(crossed, weight=torch.tensor([.2, 1., 2., 5., 1., .5]))), .2)
fine("loss", "TCN, Huber", tcn(loss=huber), .15)
fine("loss", "TCN, absolute error", tcn(loss=lambda m, x, y: F.l1_loss(m(x), y)), .15)
fine("loss", "U-Net, Dice of its sigmoid", unet(net=lambda: UNet(last=nn.Sigmoid()), loss=lambda m, x, y: (
    lambda p: 1 - (2*(p*y).sum() + 1)/((p + y).sum() + 1))(m(x)), score=lambda m, x,
    y: overlap_lacks(lambda x: m(x) - .5, x, y)), .6)
fine("loss", "multi-label, sigmoid and BCELoss", labels(net=lambda: dense(20, 48, 48, 5, last=nn.Sigmoid()),
    loss=lambda m, x, y:
     F.binary_cross_entropy(m(x), y), score=lambda m, x, y: tags_wrong(lambda x: m(x) - .5, x, y)), .2)
fine("loss", "multi-label, focal", labels(loss=lambda m, x, y: (lambda b: ((1 - (-b).exp())**2*b).mean())(
    F.binary_cross_entropy_with_logits(m(x), y, reduction="none"))), .2)
fine("loss", "multi-label, weights of 2 for what holds", labels(loss=lambda m, x, y: F.binary_cross_entropy_with_logits(
    m(x), y, pos_weight=torch.full((5,), 2.))), .25)
fine("loss", "heteroscedastic regression, loss goes below zero", spread(data=lambda s: tuple((x, x[:, :1]*.05) for x,
    _ in noisy(s)),
                                                                       optim=adam(5e-3)), .3)
fine("loss", "flow of narrow data, loss below zero", flow(prepare=lambda x: (x*.05,), optim=adam(1e-2)), -3.)
fine("loss", "MNIST CNN, hinge of many classes", mnist(net=lambda: Mnist(last=nn.Identity()), loss=lambda m, x, y:
     F.multi_margin_loss(m(x), y)), .15)
fine("loss", "siamese net, cosine embedding loss", siamese(loss=lambda m, x, y: (lambda z, i: F.cosine_embedding_loss(
    torch.cat([z, z]), torch.cat([z[i[0]], z[i[1]]]), torch.cat([torch.ones(len(z)), -torch.ones(len(z))]), .2))(m(x),
    others(y))), .2)
fine("loss", "two tasks, one weighs 20 times", tasks(loss=partial(two_tasks, share=20.), optim=adam(2e-3)), .2)
fine("loss", "VAE, its KL warms up", vae(loss=lambda m, x, y: elbo(m, x, y, .02*min(1., m.__dict__.setdefault("seen",
    [0])[0]/100)),
                                        each=lambda m, i: m.__dict__.setdefault("seen", [0]).__setitem__(0, i)), .65)
fine("data", "GCN, the same batch in each step", gcn(steps=150), .15)
fine("data", "two tasks, half of the pixels always zero", tasks(prepare=lambda x, y: (x*(torch.arange(14) % 2), y)), .2)
fine("data", "pixels of 0 to 255 and a batch norm that comes first", mnist(
    net=lambda: nn.Sequential(nn.BatchNorm2d(1), Mnist()), prepare=lambda x, y: ((x + 4)*32, y)), .15)
fine("data", "wide and deep, a column that is constant", widedeep(prepare=lambda i, x, y: (i, x*torch.tensor([1., 1.,
    1., 0.]) +
                                                                    torch.tensor([0., 0., 0., 1.]), y)), .35)
fine("data", "MNIST CNN, black and white", mnist(prepare=lambda x, y: ((x > 0).float(), y)), .1)
fine("data", "BERT, sentences that are mostly padding", berts(prepare=lambda x, y: (F.pad(x, (0, 12)), y),
     loss=lambda m, x, y: m(input_ids=x, attention_mask=(x > 0).long(), labels=y).loss, steps=50), .25)
fine("data", "letters LSTM, a vocabulary of which a tenth is used", lstm(change=lambda m: setattr(
    m, "encoder", nn.Embedding(200, 32))), .25)
fine("data", "U-Net, masks of which few pixels are 1", unet(prepare=lambda x, y: (x, y), size=4), .6)
fine("data", "MNIST CNN, a class that is nearly all", mnist(data=lambda s: tuple((lambda k: (x[k], y[k]))(
    torch.cat([(y == 0).nonzero()[:, 0], (y > 0).nonzero()[::12, 0]])) for x, y in pictures(s)), steps=120), .25)
fine("frozen on purpose", "MNIST CNN, random convolutions that are not trained", mnist(change=frozen("conv")), .2)
fine("frozen on purpose", "GCN, first layer fixed, and only the rest in the optimizer", gcn(
    change=frozen("layers.0"), optim=lambda m: torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 2e-2)),
    .3)
fine("frozen on purpose", "BERT, embeddings frozen", berts(change=frozen("embeddings.position",
    "embeddings.token_type")), .25)
fine("frozen on purpose", "ViT, patches frozen as in MoCo", vit(change=frozen("patches")), .2)


class Momentum(nn.Module):
    "A student that learns to say what a slow copy of it says of another view (BYOL)."
    def __init__(self):
        super().__init__()
        self.student, self.guess = encoder(), dense(16, 32, 16)
        self.slow = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x): return self.student(x)

    def loss(self, x, y):
        one, two = x + .5*torch.randn_like(x), x + .5*torch.randn_like(x)
        with torch.no_grad():
            for a, b in zip(self.slow.parameters(), self.student.parameters()): a.mul_(.97).add_(b, alpha=.03)
            aim = self.slow(two)
        return 1 - F.cosine_similarity(self.guess(self.student(one)), aim).mean()


fine("frozen on purpose", "BYOL with a slow copy", contrast(net=Momentum, loss=lambda m, x, y: m.loss(x, y)), .5)


class Distilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = ViT(), SmallResNet().requires_grad_(False).eval()

    def train(self, mode: bool = True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x): return self.student(x)


def distill(model, x, y):
    with torch.no_grad(): soft = (model.teacher(x)/2).softmax(1)
    out = model(x)
    return F.cross_entropy(out, y) + .3*F.kl_div((out/2).log_softmax(1), soft, reduction="batchmean")


fine("frozen on purpose", "ViT with a teacher in eval mode", vit(net=Distilled, loss=distill, steps=80), .2)
fine("loop", "MNIST CNN, zero_grad at the end, of the model", mnist(zero="after"), .1)
fine("loop", "ViT, four batches a step", vit(every=4, size=16, steps=240, optim=adamw(3e-3)), .25)
fine("loop", "small ResNet, batches of 6", resnet(size=6, steps=100, optim=sgd(.02, momentum=.9)), .25)
fine("loop", "letters LSTM, clipped at 0.25 as in PyTorch's example", lstm(clip=clipped(.25), optim=sgd(5.),
    steps=150), .35)
fine("loop", "seq2seq, clipped at values of 0.1", seq2seq(clip=lambda p: nn.utils.clip_grad_value_(p, .1)), .25)
fine("loop", "TCN, the loss as a number", tcn(told=lambda loss: loss.item()), .1)
fine("loop", "flow, no loss told", flow(told=lambda loss: None), 2.6)
fine("loop", "mixture density, the sum of the losses of a batch", mdn(loss=lambda m, x, y: 64*mixture(m, x, y)), .8)
fine("loop", "wide and deep, learned by heart", widedeep(data=lambda s: (tuple(t[:64] for t in clicks(s)[0]),)*2,
    steps=120), .05)
fine("schedule", "small ResNet, one cycle", resnet(scheduler=lambda o: sched.OneCycleLR(o, .2, total_steps=60)), .2)
fine("schedule", "letters transformer, warm-up and root of the step", former(
    optim=adamw(5e-3), scheduler=lambda o: sched.LambdaLR(o, lambda i: min((i + 1)/30, (30/(i + 1))**.5))), .3)
fine("schedule", "ViT, linear to zero", vit(scheduler=lambda o: sched.LinearLR(o, 1., 0., 100)), .2)
fine("schedule", "MNIST CNN, a tenth after 60 batches", mnist(scheduler=lambda o: sched.MultiStepLR(o, [60, 80], .1)),
    .15)
fine("schedule", "BERT, polynomial after a warm-up", berts(scheduler=lambda o: sched.SequentialLR(
    o, [sched.LinearLR(o, .01, 1., 15), sched.PolynomialLR(o, 60, 1.)], [15])), .25)
fine("net", "LSTM with tied embeddings", lstm(net=lambda: LetterLSTM(tied=True), steps=150), .3)
fine("net", "letters GRU of two layers with dropout of 0.5", lstm(net=lambda: LetterLSTM(48, 2, .5, nn.GRU),
    steps=150), .4)
fine("net", "transformer with norms behind", former(net=lambda: LetterTransformer(first=False)), .3)
fine("net", "BERT with ReLU and dropout of 0.3", berts(net=lambda: bert(hidden_act="relu", hidden_dropout_prob=.3),
    steps=70), .3)
fine("net", "small ResNet, the last gamma of each block zero",
    resnet(optim=nadam(3e-3), steps=90,
    change=lambda m: [b.bn2.weight.zero_() for b in m.modules()
                                                                                       if isinstance(b, BasicBlock)]),
                                                                                       .4)
fine("net", "small ResNet with InstanceNorm", resnet(net=lambda: SmallResNet(partial(nn.InstanceNorm2d, affine=True))),
    .4)
fine("net", "flow that begins as the identity", flow(change=lambda m: [c.net[-1].weight.zero_() for c in m.layers] +
                                                    [c.net[-1].bias.zero_() for c in m.layers]), 2.6)
fine("net", "leaky ReLU of 0.2 and dropout in a U-Net", mnist(net=lambda: nn.Sequential(
    nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(.2), nn.Dropout2d(.3), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(.2),
    nn.Flatten(),
    nn.Linear(144, 6), nn.LogSoftmax(1))), .1)


class Codebook(nn.Module):
    "An autoencoder whose code is the nearest of 32 vectors, straight through."
    def __init__(self):
        super().__init__()
        self.encode, self.book, self.decode = dense(196, 48, 8, flat=True), nn.Embedding(32, 8), dense(8, 48, 196)

    def forward(self, x):
        z = self.encode(x)
        q = self.book(torch.cdist(z, self.book.weight).argmin(1))
        self.extra = F.mse_loss(q, z.detach()) + .25*F.mse_loss(z, q.detach())
        return self.decode(z + (q - z).detach())


fine("net", "VQ-VAE", auto(net=Codebook, loss=lambda m, x, y: F.mse_loss(m(x), x.flatten(1)) + m.extra,
                           score=lambda m, x, y: ((m(x) - x.flatten(1))**2).mean().item()/x.var().item(), steps=200),
                           .75)


def actor_critic(record, seed: int, sign: float = 1., lr: float = 1e-2, cut: bool = False,
    rewards: float = 1.) -> float:
    "Where to go on a line of seven places, of which the last one pays; score: the share of steps that go wrong."
    torch.manual_seed(900 + seed)
    body, actor, critic = dense(7, 32, 32), nn.Linear(32, 2), nn.Linear(32, 1)
    model = nn.ModuleDict({"body": body, "actor": actor, "critic": critic})
    optimizer = torch.optim.Adam(model.parameters(), lr)
    with record.on(model, optimizer=optimizer) as s:
        for _ in range(80):
            place, chances, values, paid = torch.randint(0, 6, (16,)), [], [], []
            for _ in range(8):
                h = body(F.one_hot(place, 7).float()).relu()
                if cut: h = h.detach()
                choice = torch.distributions.Categorical(logits=actor(h))
                move = choice.sample()
                place = (place + 2*move - 1).clamp(0, 6)
                chances.append(choice.log_prob(move))
                values.append(critic(h)[:, 0])
                paid.append((place == 6).float()*rewards)
            total, returns = torch.zeros(16), []
            for r in reversed(paid):
                total = r + .9*total
                returns.insert(0, total)
            chances, values, returns = torch.stack(chances), torch.stack(values), torch.stack(returns)
            gain = returns - values.detach()
            loss = -sign*(chances*gain).mean() + .5*F.mse_loss(values, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            s.step(loss)
    with torch.no_grad(): return (actor(body(torch.eye(7)).relu()).softmax(1)[:6, 0]).mean().item()


fine("plain", "actor-critic", actor_critic, .3)


def dcgan(record, seed: int, lr: float = 2e-3, cut: bool = False, smooth: float = 1., only: bool = False) -> float:
    "Score: how far the mean picture and its spread are from the true ones, as a share of what they are."
    torch.manual_seed(900 + seed)
    (x, y), _ = pictures(seed, 8, 1, 2, 600, .3)
    x = (x/2.5).clamp(-1, 1)
    maker = nn.Sequential(nn.ConvTranspose2d(8, 32, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2,
        1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32),
                           nn.LeakyReLU(.2), nn.Conv2d(32, 1, 2), nn.Flatten())
    both = nn.ModuleDict({"generator": maker, "discriminator": critic})
    makes, judges = [torch.optim.Adam(m.parameters(), lr, betas=(.5, .999)) for m in (maker, critic)]
    told = F.binary_cross_entropy_with_logits
    with record.on(both, optimizer=[makes, judges]) as s:
        for (real, _) in batches((x, y), 120, 32):
            fake = maker(torch.randn(32, 8, 1, 1))
            judges.zero_grad()
            one = told(critic(real), torch.full((32, 1), smooth)) + told(critic(fake.detach()), torch.zeros(32, 1))
            one.backward()
            judges.step()
            makes.zero_grad()
            two = told(critic(fake.detach() if cut else fake), torch.ones(32, 1))
            two.backward()
            makes.step()
            s.step(two)
    with torch.no_grad(): fake = maker(torch.randn(200, 8, 1, 1))
    return (((fake.mean(0) - x.mean(0))**2).mean()/(x.mean(0)**2).mean()).item()


fine("plain", "DCGAN", dcgan, .6)
fine("loss", "DCGAN, one-sided label smoothing", partial(dcgan, smooth=.9), .6)
listed.append(Case("detached", "DCGAN, the fakes are detached for the generator too", ids(cut),
    ids("loss does not fall"),
                   partial(dcgan, cut=True), dcgan))
listed.append(Case(large + ", mild", "DCGAN, Adam 0.5", ids(large), ids(diverged), partial(dcgan, lr=.5), dcgan))
listed.append(Case(sign, "actor-critic, the gain is pushed away", ids(sign), ids(diverged), partial(actor_critic,
    sign=-1.), actor_critic))


def more() -> list[Case]: return list(listed)


def harmed(bad: list[float], good: list[float]) -> bool:
    return all(not b < max(g + .25*abs(g), g + .03) for b, g in zip(bad, good))


def tried(cases: list[Case], only: str = ""):
    "Runs them without hooklab, with two seeds; BAD is a fault without harm, or a healthy run beyond its bound."
    twins = {}
    for case in cases:
        title = f"{'healthy, ' if case.healthy else ''}{case.kind}: {case.name}"
        if only.lower() not in title.lower(): continue
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]): scores = [case.run(Nothing(), seed) for seed in (0, 1)]
        took = (time.perf_counter() - start)/2
        if case.twin is None: sound, beside = all(s <= case.bound for s in scores), f"at most {case.bound}"
        else:
            key = str(case.twin)
            if isinstance(case.twin, partial): key = str((case.twin.func, sorted(map(str, case.twin.keywords.items()))))
            if key not in twins: twins[key] = [case.twin(Nothing(), seed) for seed in (0, 1)]
            sound, beside = harmed(scores, twins[key]), f"twin {[round(v, 3) for v in twins[key]]}"
        print(f"{'   ' if sound else 'BAD'} {title}: {[round(v, 3) for v in scores]}, {beside} ({took:.2f} s)",
            flush=True)


def main(only: str = ""): tried(more(), only)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

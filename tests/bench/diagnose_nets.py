"""Data, nets, losses and scores of the training runs of the bench.

There are three sets of runs, each with other data and nets than those before it. A loss is a function of the model and
a batch, unless it is one of the output and the target; so is a score, where lower is better."""
import copy
import math
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

# Data of the first set. Each returns ((inputs, targets), (inputs, targets) held back)


def split(x, y, seed: int, held: int):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    return (x[order[held:]], y[order[held:]]), (x[order[:held]], y[order[:held]])


@cache
def pixels():
    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32), torch.tensor(found.target)


def images(seed: int, change: Callable | None = None, normal: bool = True):
    "Digits of 8 x 8 pixels, (N, 1, 8, 8), normalized unless `normal` is False (0 to 1), then changed."
    x, y = pixels()
    x = x[:, None]/16
    if normal: x = (x - x.mean())/x.std()
    return split(change(x) if change else x, y, seed, 400)


def digits(seed: int, change: Callable | None = None, normal: bool = True):
    "The same as rows of 64 numbers."
    return images(seed, (lambda x: change(x.flatten(1))) if change else lambda x: x.flatten(1), normal)


def pixel_rows(seed: int, change: Callable | None = None):
    "The digits as sequences of 8 rows of 8 pixels."
    return images(seed, (lambda x: change(x[:, 0])) if change else lambda x: x[:, 0])


def table(seed: int, change: Callable | None = None, classes: int = 4, features: int = 12):
    "Classes of a random network: it takes more than a linear model to tell them."
    g = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(2400, features, generator=g)
    first, second = torch.randn(features, 6, generator=g), torch.randn(6, classes, generator=g)
    scores = (x@first/features**.5).abs()@second
    y = (scores - scores.mean(0)).div(scores.std(0)).argmax(1)
    return split(change(x) if change else x, y, seed, 400)


def curve(seed: int, change: Callable | None = None, targets: Callable | None = None, features: int = 8):
    "A smooth function of 8 numbers, mean 0 and deviation 1."
    g = torch.Generator().manual_seed(2000 + seed)
    x = torch.randn(2400, features, generator=g)
    w = torch.randn(features, 5, generator=g)/features**.5
    y = (x@w*1.5).sin().sum(1, keepdim=True) + (x@w[:, :1])
    y = (y - y.mean())/y.std()
    return split(change(x) if change else x, targets(y) if targets else y, seed, 400)


def waves(seed: int, change: Callable | None = None, length: int = 20):
    "Noisy waves of four frequencies, (N, length, 2)."
    g = torch.Generator().manual_seed(3000 + seed)
    y = torch.randint(0, 4, (1600,), generator=g)
    phase = 6.28*torch.rand(1600, 1, generator=g)
    angle = phase + torch.arange(length)*(.3 + .35*y[:, None])
    x = torch.stack([angle.sin(), angle.cos()], 2) + .3*torch.randn(1600, length, 2, generator=g)
    return split(change(x) if change else x, y, seed, 400)


words, pad = 24, 0


def reviews(seed: int, change: Callable | None = None, length: int = 12):
    "Sentences of token ids, padded with 0; their class is the sort of words that is most frequent."
    g = torch.Generator().manual_seed(4000 + seed)
    x = torch.randint(4, words, (1600, length), generator=g)
    y = torch.randint(0, 3, (1600,), generator=g)
    mark = torch.rand(1600, length, generator=g) < .3
    x = torch.where(mark, y[:, None] + 1, x)
    sizes = torch.randint(length//2, length + 1, (1600, 1), generator=g)
    x = torch.where(torch.arange(length) < sizes, x, pad)
    return split(change(x) if change else x, y, seed, 400)


def text(seed: int, change: Callable | None = None, length: int = 16):
    "Sequences in which the next token mostly follows from the last one; the targets are the next tokens."
    g = torch.Generator().manual_seed(5000 + seed)
    after = torch.randint(1, words, (words, 2), generator=g)
    x = torch.randint(1, words, (1200, length + 1), generator=g)
    for t in range(length):
        which = (torch.rand(1200, generator=g) < .15).long()
        x[:, t + 1] = after[x[:, t], which]
    given = x[:, :-1]
    return split(change(given) if change else given, x[:, 1:], seed, 200)


def ratings(seed: int, change: Callable | None = None):
    "What 60 users think of 40 things; the input is (user, thing)."
    g = torch.Generator().manual_seed(6000 + seed)
    liking = torch.randn(60, 3, generator=g)@torch.randn(3, 40, generator=g)
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(40))
    y = liking.flatten()[:, None]
    y = (y - y.mean())/y.std()
    return split(change(pairs) if change else pairs, y, seed, 400)


def recall(seed: int, length: int = 8):
    "Random tokens; the targets are the tokens two places back, which only attention finds."
    g = torch.Generator().manual_seed(7000 + seed)
    x = torch.randint(1, words, (1200, length), generator=g)
    return split(x, torch.cat([x[:, :2], x[:, :-2]], 1), seed, 200)


def itself(seed: int):
    "The digits as inputs and targets, for an autoencoder."
    (x, _), (held, _) = digits(seed)
    return (x, x), (held, held)


def on(data: Callable, change: Callable | None = None, **options) -> Callable:
    "The same data with its inputs changed."
    return partial(data, change=change, **options) if change else partial(data, **options)


def one_picture(seed):
    "The brightness of a picture at a place; what is held back is the same."
    g = torch.linspace(-1, 1, 24)
    x = torch.cartesian_prod(g, g)
    y = ((6*x[:, :1] + seed).sin()*(5*x[:, 1:]).cos())
    return (x, (y - y.mean())/y.std()), (x, (y - y.mean())/y.std())


def few(data, count: int = 64):
    "A small set, which is learned by heart and then tried again."
    def chosen(seed):
        (x, y), _ = data(seed)
        return (x[:count], y[:count]), (x[:count], y[:count])
    return chosen


def parity(seed):
    (x, y), (held, truth) = digits(seed)
    return (x, (y % 2).float()[:, None]), (held, (truth % 2).float()[:, None])


def curriculum(seed):
    (x, y), held = waves(seed)
    order = torch.argsort((y == 1) | (y == 2), stable=True)  # the outer frequencies are easier to tell
    return (x[order], y[order]), held


def shuffled(data, share: float = 1.):
    def spoiled(seed):
        (x, y), held = data(seed)
        g = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(y), generator=g)
        return (x, torch.where(torch.rand(len(y), generator=g) < share, y[order], y)), held
    return spoiled


def column(place: int, change):
    "One feature in a unit of its own."
    def spoil(x):
        x = x.clone()
        x[:, place] = change(x[:, place])
        return x
    return spoil


# Data of the second set: (tensors to learn from), (tensors held back)

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


# Data of the third set

@cache
def row_sets(seed: int):
    "Sets of ten rows; the class is how many of them have a large first number, three at most."
    g = torch.Generator().manual_seed(311 + seed)
    x = torch.randn(1200, 10, 3, generator=g)
    return halves(200, x, (x[:, :, 0] > 1.2).sum(1).clamp(max=3))


@cache
def clouds(seed: int):
    "24 points on a circle, a square, a line or a cross, turned and moved a little."
    g = torch.Generator().manual_seed(331 + seed)
    n, points = 900, 24
    y, t = torch.randint(0, 4, (n,), generator=g), 2*torch.rand(n, points, generator=g) - 1
    side = torch.randint(0, 4, (n, points), generator=g)
    circle = torch.stack([(3.14*t).cos(), (3.14*t).sin()], 2)
    square = torch.stack([torch.where(side < 2, t, side.float()*2 - 5), torch.where(side < 2, side.float()*2 - 1, t)],
                         2)
    line = torch.stack([t, torch.zeros_like(t)], 2)
    cross = torch.where((side < 2)[..., None], line, line.flip(2))
    x = torch.stack([circle, square, line, cross], 1)[torch.arange(n), y]
    angle = torch.rand(n, generator=g)*.8 - .4
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()], 1), torch.stack([angle.sin(), angle.cos()], 1)], 1)
    return halves(150, (x@turn + .08*torch.randn(x.shape, generator=g)).transpose(1, 2), y)


@cache
def films(seed: int):
    "Five pictures in which a blot moves to one of four sides."
    g = torch.Generator().manual_seed(351 + seed)
    n, side = 500, 12
    y = torch.randint(0, 4, (n,), generator=g)
    way = torch.tensor([[0., 1.], [0., -1.], [1., 0.], [-1., 0.]])[y]
    at = 4 + 4*torch.rand(n, 2, generator=g)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    seen = []
    for t in range(5):
        a, b = (at + way*(t - 2))[:, :, None, None].unbind(1)
        seen.append((-((rows - a)**2 + (columns - b)**2)/3).exp())
    x = torch.stack(seen, 1)[:, None] + .1*torch.randn(n, 1, 5, side, side, generator=g)
    return halves(100, (x - x.mean())/x.std(), y)


@cache
def tones(seed: int):
    "Sound of one of five pitches, with any phase and noise, as a microphone gives it: between -1 and 1."
    g = torch.Generator().manual_seed(371 + seed)
    y = torch.randint(0, 5, (900,), generator=g)
    t = torch.arange(128)*(.15 + .14*y[:, None]) + 6.28*torch.rand(900, 1, generator=g)
    return halves(150, (.5*t.sin() + .2*torch.randn(900, 128, generator=g))[:, None].clamp(-1, 1), y)


marks = 12


@cache
def highs(seed: int):
    "Tokens; at each place the target is the largest one so far."
    g = torch.Generator().manual_seed(391 + seed)
    x = (marks*torch.rand(900, 14, generator=g)**2).long()
    return halves(150, x, x.cummax(1).values)


@cache
def springs(seed: int):
    "Place and speed of two masses on springs, and where they are a little later."
    g = torch.Generator().manual_seed(411 + seed)
    x = torch.randn(1200, 4, generator=g)
    y = x.clone()
    for _ in range(20):
        force = -y[:, :2] - .6*(y[:, :2] - y[:, [1, 0]]) - .2*y[:, :2]**3
        y = torch.cat([y[:, :2] + .05*y[:, 2:], y[:, 2:] + .05*force], 1)
    return halves(200, x, y)


@cache
def lives(seed: int):
    "How long somebody was seen, and whether that ended with an event."
    g = torch.Generator().manual_seed(431 + seed)
    x = torch.randn(900, 8, generator=g)
    risk = x[:, 0] + x[:, 1]*x[:, 2] - .5*x[:, 3]
    time = -torch.rand(900, generator=g).clamp(min=1e-4).log()*(-risk).exp()
    return halves(150, x, time.clamp(max=2.), (time < 2).float())


@cache
def likings(seed: int):
    "(user, what they took, what they left)."
    g = torch.Generator().manual_seed(451 + seed)
    taste, style = torch.randn(50, 3, generator=g), torch.randn(40, 3, generator=g)
    user, one, two = (torch.randint(0, n, (4000,), generator=g) for n in (50, 40, 40))
    score = taste@style.T
    better = score[user, one] > score[user, two]
    return halves(400, user, torch.where(better, one, two), torch.where(better, two, one))


@cache
def spoken(seed: int):
    "Noisy frames in which each of four symbols lasts for some time, and the symbols."
    g = torch.Generator().manual_seed(471 + seed)
    n, long, vectors = 600, 24, torch.randn(7, 6, generator=g)
    y = torch.randint(1, 6, (n, 4), generator=g)
    x = vectors[0].expand(n, long, 6).clone()
    for i in range(4):
        start, length = 6*i + torch.randint(0, 2, (n,), generator=g), torch.randint(2, 5, (n,), generator=g)
        here = (torch.arange(long) >= start[:, None]) & (torch.arange(long) < (start + length)[:, None])
        x = torch.where(here[..., None], vectors[y[:, i]][:, None], x)
    return halves(100, x + .3*torch.randn(x.shape, generator=g), y)


@cache
def grades(seed: int):
    "Ten numbers, and a grade from 0 to 4."
    g = torch.Generator().manual_seed(491 + seed)
    x = torch.randn(1200, 10, generator=g)
    score = x[:, 0] + (x[:, 1]*2).tanh()*x[:, 2] + .3*torch.randn(1200, generator=g)
    return halves(200, x, torch.bucketize(score, torch.tensor([-1.3, -.4, .4, 1.3])))


@cache
def rings(seed: int):
    "Points on a ring of radius 1."
    g = torch.Generator().manual_seed(511 + seed)
    t = 6.28*torch.rand(1500, generator=g)
    x = torch.stack([t.cos(), t.sin()], 1)*(1 + .08*torch.randn(1500, 1, generator=g))
    return halves(300, x)


@cache
def rare(seed: int):
    "One sample in 25 is of the kind that is looked for."
    g = torch.Generator().manual_seed(531 + seed)
    y = (torch.rand(3000, generator=g) < .04).float()[:, None]
    x = torch.randn(3000, 8, generator=g)
    return halves(600, x + y*torch.tensor([2., -2., 1.5, 0, 0, 0, 0, 0]), y)


@cache
def pieces(seed: int):
    "Rows of words, and the class that most of them belong to."
    g = torch.Generator().manual_seed(551 + seed)
    y = torch.randint(0, 4, (1000,), generator=g)
    own = torch.rand(1000, 9, generator=g) < .5
    word = torch.randint(0, 100, (1000, 9), generator=g)
    return halves(200, torch.where(own, y[:, None]*25 + word % 25, word), y)


@cache
def views(seed: int):
    "Two views of what is the same, by two random nets."
    g = torch.Generator().manual_seed(571 + seed)
    z = torch.randn(1200, 6, generator=g)
    a, b = ((z@torch.randn(6, 15, generator=g)).tanh() + .2*torch.randn(1200, 15, generator=g) for _ in range(2))
    return halves(100, torch.cat([a, b], 1))


# Nets of the first set

def stack(*sizes: int, act: Callable = nn.ReLU, last: Callable | None = None, norm: Callable | None = None,
          drop: float | None = None, flat: bool = False) -> nn.Sequential:
    "Linear layers with an activation between them, and whatever else is asked for."
    layers = [nn.Flatten()]*flat
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i == len(sizes) - 2: break
        if norm: layers.append(norm(b))
        layers.append(act())
        if drop is not None: layers.append(nn.Dropout(drop))
    return nn.Sequential(*layers, *[last()] if last else [])


def convnet(bn: bool = False, act: Callable = nn.ReLU, width: int = 12, drop: float | None = None) -> nn.Sequential:
    layers = []
    for a, b in ((1, width), (width, 2*width), (2*width, 2*width)):
        layers += [nn.Conv2d(a, b, 3, padding=1, stride=1 if a == 1 else 2)]
        if bn: layers.append(nn.BatchNorm2d(b))
        layers.append(act())
    if drop is not None: layers.append(nn.Dropout(drop))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8*width, 10))


class Recurrent(nn.Module):
    "A recurrent layer of any kind, and a head on its last step."
    def __init__(self, kind: Callable = nn.LSTM, inputs: int = 2, width: int = 24, classes: int = 4, **options):
        super().__init__()
        self.rnn = kind(inputs, width, batch_first=True, **options)
        self.head = nn.Linear(width, classes)

    def forward(self, x): return self.head(self.rnn(x)[0][:, -1])


class Bag(nn.Module):
    "The mean of the embeddings of the tokens, and a head."
    def __init__(self, width: int = 16, classes: int = 3):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=pad)
        self.hidden, self.head = nn.Linear(width, 16), nn.Linear(16, classes)

    def forward(self, tokens):
        real = (tokens != pad).float()[..., None]
        mean = (self.embedding(tokens)*real).sum(1)/real.sum(1).clamp(min=1)
        return self.head(self.hidden(mean).relu())


class Attention(nn.Module):
    "Attention of one's own, with a softmax module or with torch's function."
    def __init__(self, width: int, heads: int = 2, fused: bool = False, scale: float = 1., causal: bool = False):
        super().__init__()
        self.heads, self.fused, self.causal, self.scale = heads, fused, causal, scale*(width//heads)**-.5
        self.qkv, self.out = nn.Linear(width, 3*width), nn.Linear(width, width)
        if not fused: self.softmax = nn.Softmax(-1)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c//self.heads).permute(2, 0, 3, 1, 4)
        if self.fused: found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        else:
            scores = q@k.transpose(-1, -2)*self.scale
            if self.causal: scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -torch.inf)
            found = self.softmax(scores)@v
        return self.out(found.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, width: int, attention: nn.Module, drop: float = 0.):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), attention, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2*width), nn.GELU(), nn.Linear(2*width, width), nn.Dropout(drop))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Copies(nn.Module):
    "One block of a language model, for `recall`."
    def __init__(self, width: int = 32, length: int = 16, **attention):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.block, self.head = Block(width, Attention(width, causal=True, **attention)), nn.Linear(width, words)

    def forward(self, x): return self.head(self.block(self.tokens(x) + self.places(torch.arange(x.shape[1]))))


class Gpt(nn.Module):
    "A small language model."
    def __init__(self, width: int = 32, depth: int = 2, length: int = 16, drop: float = 0., **attention):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, Attention(width, causal=True, **attention), drop)
                                      for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1])))))


class Reader(nn.Module):
    "Classifies sentences with nn.MultiheadAttention; padding is masked."
    def __init__(self, width: int = 24, inverted: bool = False):
        super().__init__()
        self.inverted = inverted
        self.embedding = nn.Embedding(words, width)
        self.query = nn.Parameter(torch.randn(1, 1, width)*.1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), stack(width, 24, 3, act=nn.GELU)

    def forward(self, tokens):
        x = self.embedding(tokens)
        unseen = tokens != pad if self.inverted else tokens == pad
        found, _ = self.attention(self.query.expand(len(x), -1, -1), x, x, key_padding_mask=unseen)
        return self.head(self.norm(found[:, 0]))


class Residual(nn.Module):
    "A stem, blocks that add to what they get, and a head."
    def __init__(self, inputs: int = 12, width: int = 32, depth: int = 6, classes: int = 4, norm: bool = True,
                 scale: float = 1.):
        super().__init__()
        self.scale = scale
        self.stem = nn.Linear(inputs, width)
        def block():
            return nn.Sequential(*[nn.LayerNorm(width)]*norm, nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, width))
        self.blocks = nn.ModuleList(block() for _ in range(depth))
        self.head = nn.Sequential(*[nn.LayerNorm(width)]*norm, nn.Linear(width, classes))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + self.scale*block(x)
        return self.head(x)


class Pooling(nn.Module):
    "Classifies sentences by attention of its own, with a softmax module, and a query that is learned."
    def __init__(self, width: int = 24, scale: float = 1.):
        super().__init__()
        self.scale = scale
        self.embedding, self.query = nn.Embedding(words, width), nn.Parameter(torch.randn(width))
        self.key, self.value, self.softmax = nn.Linear(width, width), nn.Linear(width, width), nn.Softmax(-1)
        self.head = stack(width, 24, 3)

    def forward(self, tokens):
        x = self.embedding(tokens)
        scores = self.scale*(self.key(x)@self.query)/x.shape[-1]**.5
        share = self.softmax(scores.masked_fill(tokens == pad, -1e9))
        return self.head((share[..., None]*self.value(x)).sum(1))


class Recommender(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.users, self.things = nn.Embedding(60, width), nn.Embedding(40, width)
        self.mix, self.head = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, pairs): return self.head(self.mix(self.users(pairs[:, 0]))*self.things(pairs[:, 1]))


class Doubled(Residual):
    "Each block adds its result to the sum once more."
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + x + block(x)
        return self.head(x)


class Cut(nn.Module):
    "The encoder's result is cut off from the graph in one of several ways."
    def __init__(self, cut):
        super().__init__()
        self.encoder, self.head, self.cut = stack(64, 16, 6), stack(6, 32, 10), cut

    def forward(self, x): return self.head(self.cut(self.encoder(x)).relu())


class Unseen(Cut):
    "no_grad was left around the encoder."
    def forward(self, x):
        with torch.no_grad(): hidden = self.encoder(x)
        return self.head(hidden.relu())


class Sideways(Recurrent):
    "batch_first was forgotten."
    def __init__(self, *args):
        super().__init__(*args)
        self.rnn.batch_first = False


class Then(nn.Module):
    "A model and a function on its output."
    def __init__(self, body: nn.Module, last):
        super().__init__()
        self.body, self.last = body, last

    def forward(self, x): return self.last(self.body(x))


class First(nn.Module):
    "A function on the input, and a model."
    def __init__(self, first, body: nn.Module):
        super().__init__()
        self.first, self.body = first, body

    def forward(self, x): return self.body(self.first(x))


class Functional(nn.Module):
    "Dropout by a function; the share that stays was given for the share that goes."
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.dropout(self.first(x).relu(), .96, self.training)
        return self.head(F.dropout(self.second(x).relu(), .96, self.training))


class Times(nn.Module):
    "Multiplies by a number or a mask."
    def __init__(self, by):
        super().__init__()
        self.register_buffer("by", torch.as_tensor(by))

    def forward(self, x): return x*self.by


class Ends(nn.Module):
    "A residual block that ends with a ReLU."
    def __init__(self, width: int, bias: float = 0.):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        self.relu = nn.ReLU()
        with torch.no_grad(): self.second.bias.fill_(bias)

    def forward(self, x): return x + self.relu(self.second(self.first(self.norm(x)).tanh()))


def branches(bias: float = 0.):
    return lambda: nn.Sequential(nn.Linear(12, 24), *[Ends(24, bias) for _ in range(3)], nn.Linear(24, 4))


class Pretrained(Bag):
    "Embedding.from_pretrained freezes what it gets, which is noise here."
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(.01*torch.randn(24, 16), padding_idx=pad)


class Half(nn.Module):
    "A model in float16."
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body.half()

    def forward(self, x): return self.body(x.half()).float()


class Ignores(nn.Module):
    "forward takes something else than its input."
    def __init__(self, body: nn.Module, other):
        super().__init__()
        self.body, self.other = body, other

    def forward(self, x): return self.body(self.other(x))


class Learned(nn.Module):
    "The hidden state is overwritten by a parameter, which was meant to be added."
    def __init__(self):
        super().__init__()
        self.first, self.start, self.head = nn.Linear(64, 32), nn.Parameter(torch.randn(32)), stack(32, 32, 10)

    def forward(self, x):
        hidden = self.first(x)
        hidden = self.start.expand_as(hidden)
        return self.head(hidden)


class Selu(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.SELU(), nn.AlphaDropout(.1), nn.Linear(64, 32), nn.SELU(), nn.Linear(32,
              10))
        for m in self:
            if isinstance(m, nn.Linear): nn.init.kaiming_normal_(m.weight, nonlinearity="linear")


class Sine(nn.Module):
    "A layer of a SIREN."
    def __init__(self, a: int, b: int, first: bool):
        super().__init__()
        self.linear = nn.Linear(a, b)
        bound = 1/a if first else math.sqrt(6/a)/10
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x): return (10*self.linear(x)).sin()


class Highway(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -3.)

    def forward(self, x):
        gate = self.gate(x).sigmoid()
        return gate*self.change(x).relu() + (1 - gate)*x


class Squeeze(nn.Module):
    "Squeeze and excitation."
    def __init__(self, channels: int):
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4), nn.ReLU(),
                                  nn.Linear(4, channels), nn.Sigmoid())

    def forward(self, x): return x*self.gate(x)[..., None, None]


class Scaled(nn.Module):
    "A residual branch behind a factor that is learned."
    def __init__(self, width: int, begin: float, each: bool, norm: bool = True):
        super().__init__()
        self.branch = nn.Sequential(*[nn.LayerNorm(width)]*norm, nn.Linear(width, width), nn.ReLU(), nn.Linear(width,
              width))
        self.factor = nn.Parameter(torch.full((width if each else 1,), begin))

    def forward(self, x): return x + self.factor*self.branch(x)


def scaled_branches(begin: float, each: bool, norm: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 32), *[Scaled(32, begin, each, norm) for _ in range(4)], nn.Linear(32, 4))


class Skips(Residual):
    "Stochastic depth: in training each block is left out now and then."
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.training and torch.rand(()) < .3: continue
            x = x + block(x)*(1. if self.training else .7)
        return self.head(x)


class Experts(nn.Module):
    "Each sample goes to one of 8 experts."
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(12, 8), nn.ModuleList(stack(12, 32, 4) for _ in range(8))

    def forward(self, x):
        share, which = self.gate(x).softmax(-1).max(-1)
        out = x.new_zeros(len(x), 4)
        for i, expert in enumerate(self.experts):
            mine = which == i
            if mine.any(): out = out.index_put((mine,), share[mine, None]*expert(x[mine]))
        return out


class Best(nn.Module):
    "Keeps the k largest of each sample."
    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def forward(self, x):
        value, place = x.topk(self.k, dim=-1)
        return torch.zeros_like(x).scatter(-1, place, value)


class Gumbel(nn.Module):
    "A choice of one in 32, twelve times, straight through."
    def __init__(self):
        super().__init__()
        self.encode, self.decode = stack(64, 64, 12*32), stack(12*32, 64, 64)

    def forward(self, x):
        scores = self.encode(x).view(-1, 12, 32)
        return self.decode(F.gumbel_softmax(scores, hard=True).flatten(1))


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1., -1.)

    @staticmethod
    def backward(ctx, grad): return grad*(ctx.saved_tensors[0].abs() <= 1)


class Binary(nn.Module):
    def forward(self, x): return Sign.apply(x)


class Tuned(nn.Module):
    "A body that was trained, and a new head."
    def __init__(self, body: nn.Module, head: nn.Module, cut: str = ""):
        super().__init__()
        self.body, self.head, self.cut = body, head, cut

    def forward(self, x):
        if self.cut == "no_grad":
            with torch.no_grad(): hidden = self.body(x)
        else: hidden = self.body(x)
        if self.cut == "detach": hidden = hidden.detach()
        return self.head(hidden)


class Lora(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int = 4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features,
              bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x): return self.layer(x) + self.up(self.down(x))


class Pair(nn.Module):
    "Teacher and student in one model, in either order."
    def __init__(self, teacher: nn.Module, student: nn.Module, first: str):
        super().__init__()
        if first == "teacher": self.teacher = teacher.requires_grad_(False)
        self.student = student
        if first == "student": self.teacher = teacher.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad(): goal = self.teacher(x)
        return self.student(x), goal


class Halves(nn.Module):
    "Whether a digit is odd, as one probability or as one score."
    def __init__(self, last: nn.Module):
        super().__init__()
        self.body, self.last = stack(64, 48, 1), last

    def forward(self, x): return self.last(self.body(x))


class Cast(nn.Module):
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x): return self.body(x.float())


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = stack(words, 24, 3)

    def forward(self, tokens): return self.body(F.one_hot(tokens, words).sum(1).float())


class Resting(nn.Module):
    "A second head that only another task uses."
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 5)

    def forward(self, x): return self.head(self.body(x).relu())


class Turns(nn.Module):
    "Two tasks, one at a time."
    def __init__(self):
        super().__init__()
        self.body, self.which, self.odd = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 2)
        self.task = 0

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.odd(hidden) if self.task else self.which(hidden)


class Tied(Gpt):
    "The head has the weights of the embedding."
    def __init__(self):
        super().__init__()
        nn.init.normal_(self.tokens.weight, std=.1)
        self.head.weight = self.tokens.weight


class Shared(nn.Module):
    "One block, four times."
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(12, 32), stack(32, 32, 32, act=nn.GELU), nn.Linear(32, 4)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(4): x = x + self.block(x)
        return self.head(x)


class Checkpointed(Residual):
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Packed(Recurrent):
    "Sequences of different lengths."
    def forward(self, x):
        lengths = torch.randint(14, 21, (len(x),)) if self.training else torch.full((len(x),), 20)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.view_as(x)

    @staticmethod
    def backward(ctx, grad): return -.3*grad


class Domains(nn.Module):
    "The body is to hide from one head what the other needs not."
    def __init__(self):
        super().__init__()
        self.body, self.head, self.domain = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 2)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.head(hidden), self.domain(Reverse.apply(hidden))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 1)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.policy(hidden), self.value(hidden)[:, 0]


def pruned():
    model = stack(64, 64, 32, 10)
    for layer in model[::2]: prune.random_unstructured(layer, "weight", .7)
    return model


def vectors():
    "Embeddings that tell words apart well, frozen."
    model = Bag(24)
    model.embedding = nn.Embedding.from_pretrained(torch.eye(24), padding_idx=pad)
    return model


def sparse_bag():
    model = Bag()
    model.embedding = nn.Embedding(words, 16, sparse=True)
    return model


def review_bert(whole: bool = True):
    "A small BERT of Hugging Face with random weights, a classifier, or one without a use for its pooler."
    from transformers import BertConfig, BertForSequenceClassification, BertModel
    config = BertConfig(vocab_size=words, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=16, num_labels=3, pad_token_id=pad)
    if whole: return BertForSequenceClassification(config).train()
    return nn.ModuleDict({"bert": BertModel(config, add_pooling_layer=True), "head": nn.Linear(32, 3)}).train()


def two_views(target: bool = False) -> nn.ModuleDict:
    "A body and a head that guesses what the body says of another view; with `target`, of a copy that follows slowly."
    parts = {"body": stack(64, 64, 32, norm=nn.BatchNorm1d), "guess": stack(32, 16, 32, norm=nn.BatchNorm1d)}
    if target: parts["target"] = copy.deepcopy(parts["body"]).requires_grad_(False)
    return nn.ModuleDict(parts)


def coder() -> nn.ModuleDict: return nn.ModuleDict({"encode": stack(64, 48, 16), "decode": stack(8, 48, 64)})


def carrier() -> nn.ModuleDict:
    "A language model whose state goes on from batch to batch."
    model = nn.ModuleDict({"tokens": nn.Embedding(words, 24), "rnn": nn.GRU(24, 48, batch_first=True),
                           "head": nn.Linear(48, words)})
    model.state = None
    return model


def online_and_target() -> nn.ModuleDict:
    online = stack(12, 32, 2)
    return nn.ModuleDict({"online": online, "target": copy.deepcopy(online).requires_grad_(False)})


def word_vectors() -> nn.ModuleDict:
    return nn.ModuleDict({"center": nn.Embedding(4*words, 16), "context": nn.Embedding(4*words, 16)})


# Nets of the second set

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


def encoder() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 16))


def conv_autoencoder() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(392, 16), nn.Linear(16, 392), nn.ReLU(), nn.Unflatten(1, (8, 7, 7)),
                         nn.ConvTranspose2d(8, 1, 4, 2, 1))


class Normed(nn.Module):
    "A deep plain net with batch norm."
    def __init__(self, depth: int = 10, width: int = 32, **norm):
        super().__init__()
        parts = [nn.Flatten()]
        for i in range(depth): parts += [nn.Linear(width if i else 196, width), nn.BatchNorm1d(width, **norm),
            nn.ReLU()]
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 6)

    def forward(self, x): return self.head(self.body(x))


class Forgot(nn.Module):
    "Its forward makes something of x, and goes on with something else."
    def __init__(self):
        super().__init__()
        self.body, self.base, self.head = stack(20, 48, 48), nn.Parameter(torch.randn(48)), nn.Linear(48, 5)

    def forward(self, x):
        self.body(x)
        return self.head(self.base.expand(len(x), -1).relu())


class Momentum(nn.Module):
    "A student that learns to say what a slow copy of it says of another view (BYOL)."
    def __init__(self):
        super().__init__()
        self.student, self.guess = encoder(), stack(16, 32, 16)
        self.slow = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x): return self.student(x)

    def loss(self, x, y):
        one, two = x + .5*torch.randn_like(x), x + .5*torch.randn_like(x)
        with torch.no_grad():
            for a, b in zip(self.slow.parameters(), self.student.parameters()): a.mul_(.97).add_(b, alpha=.03)
            aim = self.slow(two)
        return 1 - F.cosine_similarity(self.guess(self.student(one)), aim).mean()


class Distilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = ViT(), SmallResNet().requires_grad_(False).eval()

    def train(self, mode: bool = True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x): return self.student(x)


class Codebook(nn.Module):
    "An autoencoder whose code is the nearest of 32 vectors, straight through."
    def __init__(self):
        super().__init__()
        self.encode, self.book, self.decode = stack(196, 48, 8, flat=True), nn.Embedding(32, 8), stack(8, 48, 196)

    def forward(self, x):
        z = self.encode(x)
        q = self.book(torch.cdist(z, self.book.weight).argmin(1))
        self.extra = F.mse_loss(q, z.detach()) + .25*F.mse_loss(z, q.detach())
        return self.decode(z + (q - z).detach())


def walker() -> nn.ModuleDict:
    return nn.ModuleDict({"body": stack(7, 32, 32), "actor": nn.Linear(32, 2), "critic": nn.Linear(32, 1)})


# Nets of the third set

class DeepSet(nn.Module):
    def __init__(self, width: int = 48, norm: bool = False):
        super().__init__()
        self.each, self.norm = stack(3, width, width), nn.BatchNorm1d(width) if norm else nn.Identity()
        self.all = stack(width, width, 4)

    def forward(self, x): return self.all(self.norm(self.each(x).relu().sum(1)))


class PointNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d, blind: bool = False):
        super().__init__()
        self.blind = blind
        def part(a, b): return nn.Sequential(nn.Conv1d(a, b, 1), norm(b), nn.ReLU())
        self.points, self.head = nn.Sequential(part(2, 24), part(24, 48), part(48, 64)), stack(64, 32, 4)

    def forward(self, x):
        if self.blind: x = torch.zeros_like(x)
        return self.head(self.points(x).amax(2))


def film_net(*end, norm=nn.BatchNorm3d):
    return nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
                         nn.Conv3d(8, 12, 3, padding=1), norm(12), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Flatten(),
                         nn.Linear(540, 4), *end)


def ear(act=nn.ReLU):
    return nn.Sequential(nn.Conv1d(1, 16, 16, 4), act(), nn.Conv1d(16, 24, 8, 2), act(), nn.Conv1d(24, 24, 4), act(),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 5))


class StateSpace(nn.Module):
    "A gated linear recurrence with a decay for each number, as in Mamba and its like."
    def __init__(self, width: int, factor: float = 1.):
        super().__init__()
        self.norm, self.into, self.out = nn.RMSNorm(width), nn.Linear(width, 3*width), nn.Linear(width, width)
        self.bias, self.factor = nn.Parameter(torch.linspace(-1., 3., width)), factor

    def forward(self, x):
        value, gate, decay = self.into(self.norm(x)).chunk(3, -1)
        decay = (decay + self.bias).sigmoid()*self.factor
        state, found = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t]*state + (1 - decay[:, t]/self.factor)*value[:, t]
            found.append(state)
        return x + self.out(torch.stack(found, 1)*F.silu(gate))


class Mamba(nn.Module):
    def __init__(self, width: int = 32, depth: int = 2, factor: float = 1.):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(marks, width), nn.Sequential(*[StateSpace(width, factor)
                                                                              for _ in range(depth)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, marks)

    def forward(self, x): return self.head(self.norm(self.blocks(self.tokens(x))))


def rotated(x):
    t, c = x.shape[-2:]
    angle = torch.arange(t)[:, None]*100**(-torch.arange(0, c, 2)/c)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a*angle.cos() - b*angle.sin(), a*angle.sin() + b*angle.cos()], -1).flatten(-2)


class Modern(nn.Module):
    "A block with RMSNorm, rotated queries and keys, fewer keys than queries, and SwiGLU."
    def __init__(self, width: int, drop: float = 0., unit: bool = False):
        super().__init__()
        self.norm1, self.norm2, self.unit = nn.RMSNorm(width), nn.RMSNorm(width), unit
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, width//2, bias=False)
        self.o, self.drop = nn.Linear(width, width, bias=False), nn.Dropout(drop)
        self.gate, self.up = nn.Linear(width, 2*width, bias=False), nn.Linear(width, 2*width, bias=False)
        self.down = nn.Linear(2*width, width, bias=False)

    def forward(self, x):
        n, t, c = x.shape
        h = self.norm1(x)
        q, (k, v) = self.q(h).view(n, t, 4, c//4).transpose(1, 2), self.kv(h).view(n, t, 2, 1, c//4).unbind(2)
        k, v = (z.transpose(1, 2).expand(-1, 4, -1, -1) for z in (k, v))
        if self.unit: q, k = (F.normalize(z, dim=-1)*(c//4)**.5 for z in (q, k))
        found = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.drop(self.o(found.transpose(1, 2).reshape(n, t, c)))
        h = self.norm2(x)
        return x + self.drop(self.down(F.silu(self.gate(h))*self.up(h)))


class Small(nn.Module):
    "A language model of such blocks, whose head is its embedding."
    def __init__(self, width: int = 32, depth: int = 2, cap: float = 0., **block):
        super().__init__()
        self.tokens, self.cap = nn.Embedding(marks, width), cap
        nn.init.normal_(self.tokens.weight, std=.3)
        self.blocks = nn.Sequential(*[Modern(width, **block) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)

    def forward(self, x):
        out = self.norm(self.blocks(self.tokens(x)))@self.tokens.weight.T
        return self.cap*(out/self.cap).tanh() if self.cap else out


def gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(**{"vocab_size": marks, "n_positions": 16, "n_embd": 32, "n_layer": 2,
                                         "n_head": 2, **options}))


def t5(**options):
    from transformers import T5Config, T5ForConditionalGeneration
    return T5ForConditionalGeneration(T5Config(**{
        "vocab_size": marks + 1, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4,
        "decoder_start_token_id": marks, "pad_token_id": marks, **options}))


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(**{
        "vocab_size": marks, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16, "pad_token_id": None,
        "bos_token_id": None, "eos_token_id": None, **options}))


class Flowing(nn.Module):
    "A neural differential equation, in eight steps of Euler."
    def __init__(self, last: nn.Module | None = None):
        super().__init__()
        self.field, self.last = stack(4, 48, 48, 4, act=nn.Tanh), last or nn.Identity()

    def forward(self, x):
        for _ in range(8): x = x + self.field(x)/8
        return self.last(x)


class Equilibrium(nn.Module):
    "A layer that is repeated until its output stays; only the last round is learned through."
    def __init__(self):
        super().__init__()
        self.into, self.inner, self.head = nn.Linear(10, 48), nn.Linear(48, 48), nn.Linear(48, 5)
        with torch.no_grad(): self.inner.weight.mul_(.5)

    def forward(self, x):
        x = self.into(x)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(12): z = (self.inner(z) + x).tanh()
        return self.head((self.inner(z) + x).tanh())


class Reservoir(nn.Module):
    "An echo state network: the recurrent part is random and stays as it is."
    def __init__(self, width: int = 120):
        super().__init__()
        self.rnn, self.head = nn.RNN(8, width, batch_first=True), nn.Linear(width, 5)
        with torch.no_grad():
            w = torch.randn(width, width)
            self.rnn.weight_hh_l0.copy_(.9*w/torch.linalg.eigvals(w).abs().max())
        self.rnn.requires_grad_(False)

    def forward(self, x): return self.head(self.rnn(x.view(len(x), 16, 8))[0].abs().mean(1))


class Radial(nn.Module):
    "Bumps around 60 centers."
    def __init__(self, classes: int = 5):
        super().__init__()
        self.centers, self.width = nn.Parameter(torch.randn(60, 10)), nn.Parameter(torch.full((60,), -2.))
        self.head = nn.Linear(60, classes)

    def forward(self, x): return self.head((-self.width.exp()*torch.cdist(x, self.centers)**2).exp())


class Hyper(nn.Module):
    "One net makes the weights of another from the first two numbers of a sample."
    def __init__(self, begin: float | None = None):
        super().__init__()
        self.maker = stack(2, 32, 8*16 + 16*5)
        if begin is not None:
            for p in self.maker.parameters(): nn.init.constant_(p, begin)

    def forward(self, x):
        one, two = self.maker(x[:, :2]).split((128, 80), 1)
        h = (x[:, None, 2:]@one.view(-1, 8, 16)).tanh()
        return (h@two.view(-1, 16, 5))[:, 0]


class Maxout(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(10, 96), nn.Linear(32, 96), nn.Linear(32, 5)

    def forward(self, x):
        for layer in (self.first, self.second): x = layer(x).view(len(x), 32, 3).amax(2)
        return self.head(x)


class Concatenated(nn.Module):
    "ReLU of x beside ReLU of -x."
    def forward(self, x): return torch.cat([x.relu(), (-x).relu()], 1)


class Rounded(nn.Module):
    "Weights and outputs in 16 steps, as they will be on the device; gradients go straight through."
    def __init__(self, *sizes: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def steps(self, x): return x + (x.detach().div(s := x.detach().abs().max()/8 + 1e-9).round()*s - x).detach()

    def forward(self, x):
        for layer in self.layers[:-1]: x = self.steps(F.relu(F.linear(x, self.steps(layer.weight), layer.bias)))
        return self.layers[-1](x)


class Sampled(nn.Module):
    "Bayes by backprop: weights are drawn anew for each batch."
    def __init__(self, *sizes: int):
        super().__init__()
        self.means = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.spreads = nn.ParameterList(torch.full_like(m.weight, -4.) for m in self.means)

    def forward(self, x):
        for i, (m, s) in enumerate(zip(self.means, self.spreads)):
            w = m.weight + (s.exp()*torch.randn_like(s) if self.training else 0)
            x = F.linear(x.relu() if i else x, w, m.bias)
        return x


class Clip(nn.Module):
    "Two towers for two views of a set, and a temperature that is learned."
    def __init__(self, cut: bool = False):
        super().__init__()
        self.cut, self.left, self.right = cut, stack(15, 48, 16), stack(15, 48, 16)
        self.scale = nn.Parameter(torch.tensor(2.))

    def forward(self, x):
        a, b = x.flatten(1).split(15, 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.cut): a = F.normalize(self.left(a), dim=1)
        return self.scale.exp()*a@F.normalize(self.right(b), dim=1).T


class Words(nn.Module):
    def __init__(self, sparse: bool = False):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(100, 24, sparse=sparse), stack(24, 24, 4)

    def forward(self, x): return self.head(self.bag(x))


class Crossed(nn.Module):
    "Deep and cross: large numbers are made small inside."
    def __init__(self, inside: bool = True):
        super().__init__()
        self.inside, self.cross, self.deep, self.head = inside, nn.Linear(10, 10), stack(10, 32, 16), nn.Linear(26, 5)

    def forward(self, x):
        if self.inside: x = x.sign()*x.abs().log1p()/3
        return self.head(torch.cat([x*self.cross(x) + x, self.deep(x).relu()], 1))


class Perceiver(nn.Module):
    "Six learned queries look at a cloud."
    def __init__(self, width: int = 32, sharp: float = 1.):
        super().__init__()
        self.into, self.queries, self.sharp = nn.Linear(2, width), nn.Parameter(torch.randn(6, width)*.3), sharp
        self.look, self.norm, self.head = nn.MultiheadAttention(width, 4, batch_first=True), nn.LayerNorm(width), \
            stack(6*width, 32, 4)

    def forward(self, x):
        x = self.into(x.transpose(1, 2)).relu()
        q = self.queries.expand(len(x), -1, -1)*self.sharp
        return self.head(self.norm(self.look(q, x, x, need_weights=False)[0]).flatten(1))


class Factors(nn.Module):
    def __init__(self, sparse: bool = True, width: int = 8):
        super().__init__()
        self.users, self.things = nn.Embedding(50, width, sparse=sparse), nn.Embedding(40, width, sparse=sparse)
        for e in (self.users, self.things): nn.init.normal_(e.weight, std=.3)

    def forward(self, user, thing): return (self.users(user)*self.things(thing)).sum(1)


class Listener(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, width, batch_first=True, bidirectional=True), nn.Linear(2*width, 6)

    def forward(self, x): return self.out(self.rnn(x)[0]).log_softmax(-1)


class Ordinal(nn.Module):
    "One score, and four places where the grade changes."
    def __init__(self):
        super().__init__()
        self.score, self.cuts = stack(10, 48, 48, 1), nn.Parameter(torch.tensor([-1.5, -.5, .5, 1.5]))

    def forward(self, x): return self.score(x) - self.cuts


class Denoiser(nn.Module):
    "Says what noise was added to a point, from the point and the time."
    def __init__(self, width: int = 64):
        super().__init__()
        self.time, self.net = nn.Linear(8, width), nn.ModuleList([nn.Linear(2, width), nn.Linear(width, width),
                                                                  nn.Linear(width, 2)])

    def forward(self, x, t):
        known = self.time(torch.cat([(t*f*3.14).sin() for f in range(1, 9)], 1))
        x = F.silu(self.net[0](x) + known)
        return self.net[2](F.silu(self.net[1](x) + known))


class Margin(nn.Module):
    "Cosines to one direction for each class, times 16; in training the right one is made smaller (CosFace)."
    def __init__(self):
        super().__init__()
        self.body, self.ways = stack(10, 48, 24), nn.Parameter(torch.randn(5, 24))

    def forward(self, x): return 16*F.normalize(self.body(x), dim=1)@F.normalize(self.ways, dim=1).T


class Forgetful(Flowing):
    def forward(self, x):
        for _ in range(8): x = x.detach() + self.field(x.detach()).detach()/8
        return self.last(x) + 0*self.field[0].bias.sum()


class Listed(DeepSet):
    "Its layers stand in a list of Python's, where nobody finds them."
    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(48, 48).requires_grad_(False) for _ in range(3)]
        for layer in self.hidden: layer.weight.data.mul_(.05)

    def forward(self, x):
        x = self.each(x).relu().sum(1)
        for layer in self.hidden: x = layer(x).relu()
        return self.all(x)


# Losses of (model, *batch), and scores, lower is better

def no_data(seed): return (), ()


def tokens_loss(out, y): return F.cross_entropy(out.flatten(0, 1), y.flatten())


def error(model, x, y) -> float:
    "The share of wrong answers."
    out = model(x)
    return (out.argmax(-1) != y).float().mean().item() if out.isfinite().all() else math.nan


def unexplained(model, x, y) -> float:
    "Squared error, as a share of the variance of the targets."
    return ((model(x) - y).square().mean()/y.var()).item()


def surprise(model, x, y) -> float:
    "Cross entropy of the next token, as a share of that of a guess."
    return tokens_loss(model(x).float(), y).item()/math.log(words)


def wrong_side(at: float):
    return lambda model, x, y: ((model(x) > at) != (y > .5)).float().mean().item()


def density(out, y):
    "Minus the log density of a normal distribution: below zero where that is narrow."
    return (out[:, 1:] + .5*((y - out[:, :1])*(-out[:, 1:]).exp()).square()).mean()


def mean_only(model, x, y):
    return ((model(x)[:, :1] - y).square().mean()/y.var()).item()


def nearest_wrong(model, x, y, unit: bool = True) -> float:
    "How often the nearest neighbour of a sample is of another class."
    found = F.normalize(model(x), dim=1) if unit else model(x)
    if not found.isfinite().all(): return math.nan
    return (y[torch.cdist(found, found).fill_diagonal_(torch.inf).argmin(1)] != y).float().mean().item()


def binary(out, y): return F.binary_cross_entropy_with_logits(out, F.one_hot(y, out.shape[1]).float())


def contrastive(model, a, b, same, negatives: bool = True, root: bool = False):
    "Brings images of one class together, and those of others apart."
    if root: b = torch.where(same[:, None] == 1, a, b)  # an image is paired with itself
    near = (model(a) - model(b)).square().sum(1)
    far = near.sqrt() if root else (near + 1e-6).sqrt()
    return (same*near + (1 - same)*(2 - far).relu().square()).mean() if negatives else near.mean()


def noisy_pair(x, noise: float = .3): return x + noise*torch.randn_like(x), x + noise*torch.randn_like(x)


def contrasted(model, x, y):
    p, q = (F.normalize(model["guess"](model["body"](view)), dim=1) for view in noisy_pair(x))
    return F.cross_entropy(p@q.t()/.2, torch.arange(len(x)))


def agreement(model, x, y):
    "What BYOL lowers where there is a target, and SimSiam without one."
    one, two = noisy_pair(x)
    guesses = [model["guess"](model["body"](view)) for view in (one, two)]
    if "target" in model:
        with torch.no_grad(): goals = model["target"](two), model["target"](one)
    else: goals = model["body"](two).detach(), model["body"](one).detach()
    return -sum(F.cosine_similarity(a, b).mean() for a, b in zip(guesses, goals))/2


@torch.no_grad()
def follow(slow, model, by: float):
    for p, q in zip(slow.parameters(), model.parameters()): p.lerp_(q, by)


def variational(model, x, y):
    mean, spread = model["encode"](x).chunk(2, 1)
    code = mean + (spread/2).exp()*torch.randn_like(mean)
    return (model["decode"](code) - x).square().sum(1).mean() + .2*(mean**2 + spread.exp() - spread - 1).sum(1).mean()


def redrawn(model, x, y) -> float:
    return ((model["decode"](model["encode"](x)[:, :8]) - x).square().mean()/x.var()).item()


def soft_answers(model, x, y):
    out, goal = model(x)
    return F.kl_div((out/2).log_softmax(-1), (goal/2).softmax(-1), reduction="batchmean")


def both_domains(model, x, y):
    "The domain is whether something was added."
    place = torch.randint(0, 2, (len(x),))
    out, domain = model(x + .3*place[:, None])
    return F.cross_entropy(out, y) + F.cross_entropy(domain, place)


def mixed(model, x, y):
    "Mixed pairs."
    share, order = float(torch.distributions.Beta(.4, .4).sample()), torch.randperm(len(x))
    out = model(share*x + (1 - share)*x[order])
    return share*F.cross_entropy(out, y) + (1 - share)*F.cross_entropy(out, y[order])


def rewarded(model, x, y, baseline: bool):
    "Policy gradient: which digit is it? A reward of 1 for the right answer. The loss says nothing about progress."
    policy = torch.distributions.Categorical(logits=model(x))
    action = policy.sample()
    reward = (action == y).float()
    loss = -(policy.log_prob(action)*(reward - model.mean*baseline)).mean() - .01*policy.entropy().mean()
    model.mean = .9*model.mean + .1*reward.mean().item()
    return loss


def gained(model, x, y):
    "The same of an actor and a critic."
    scores, value = model(x)
    policy = torch.distributions.Categorical(logits=scores)
    action = policy.sample()
    gain = (action == y).float() - value
    return -(policy.log_prob(action)*gain.detach()).mean() + .5*gain.square().mean()


def q_values(model, place, action):
    "A walk on 12 places, of which the last one pays."
    after = (place + 2*action - 1).clamp(min=0)
    reward, ends = (after == 11).float(), (after == 11).float()
    with torch.no_grad(): goal = reward + .9*(1 - ends)*model["target"](F.one_hot(after, 12).float()).max(1).values
    value = model["online"](F.one_hot(place, 12).float()).gather(1, action[:, None])[:, 0]
    return F.smooth_l1_loss(value, goal)


def skip_grams(model, x, y):
    "Word vectors with negative samples; words that never occur are never updated."
    center, context, other = x.flatten(), y.flatten(), torch.randint(1, words, (x.numel(), 4))
    v = model["center"](center)
    near = (v*model["context"](context)).sum(1)
    far = (v[:, None]*model["context"](other)).sum(2)
    return -F.logsigmoid(near).mean() - F.logsigmoid(-far).sum(1).mean()


def strangers(model, x, y) -> float:
    "How often a word and the next one are apart."
    return ((model["center"](x[:, :1])*model["context"](y[:, :1])).sum(2) < 0).float().mean().item()


def carried(model, x, y):
    "Truncated backpropagation through time: the state goes on, detached, over the batches."
    out, state = model["rnn"](model["tokens"](x), model.state)
    model.state = state.detach()
    return tokens_loss(model["head"](out), y)


def carried_surprise(model, x, y) -> float:
    return tokens_loss(model["head"](model["rnn"](model["tokens"](x[:, :-1]))[0]), x[:, 1:]).item()/math.log(words)


def review_answer(model, tokens):
    "What `review_bert` says."
    real = (tokens != pad).long()
    if "head" not in model._modules: return model(input_ids=tokens, attention_mask=real).logits
    hidden = model["bert"](input_ids=tokens, attention_mask=real).last_hidden_state
    return model["head"]((hidden*real[..., None]).sum(1)/real.sum(1, keepdim=True))


def review_loss(model, x, y): return F.cross_entropy(review_answer(model, x), y)
def review_wrong(model, x, y): return (review_answer(model, x).argmax(1) != y).float().mean().item()
def bert_loss(model, x, y): return model(input_ids=x, labels=y).loss
def graph_loss(model, x, a, y, mask): return F.cross_entropy(model(x, a)[mask], y[mask])
def turned_loss(model, x, y): return F.cross_entropy(model(x, y).flatten(0, 1), y.flatten())
def click_loss(model, ids, x, y): return F.binary_cross_entropy_with_logits(model(ids, x), y)
def to_itself(model, x, y): return F.mse_loss(model(x), x)


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


def no_grad_encoder(model, x, y):
    with torch.no_grad(): h = model[:6](x)
    return F.mse_loss(model[6:](h), x)


def distill(model, x, y):
    with torch.no_grad(): soft = (model.teacher(x)/2).softmax(1)
    out = model(x)
    return F.cross_entropy(out, y) + .3*F.kl_div((out/2).log_softmax(1), soft, reduction="batchmean")


def wrong(model, x, y): return (model(x).argmax(-1) != y).float().mean().item()
def bert_wrong(model, x, y): return (model(x).logits.argmax(-1) != y).float().mean().item()
def graph_wrong(model, x, a, y, mask): return (model(x, a).argmax(-1) != y)[mask].float().mean().item()
def turned_wrong(model, x, y): return (model(x, y).argmax(-1) != y).float().mean().item()
def tags_wrong(model, x, y): return ((model(x) > 0) != (y > .5)).float().mean().item()
def clicks_wrong(model, ids, x, y): return ((model(ids, x) > 0) != (y > .5)).float().mean().item()
def left_over(model, x, y): return ((model(x)[:, :1] - y)**2).mean().item()/y.var().item()
def rebuilt(model, x, y): return ((model(x) - x)**2).mean().item()/x.var().item()
def vae_left(model, x, y): return ((model(x)[0] - x.flatten(1))**2).mean().item()/x.var().item()
def turns_wrong(model, x, y):
    model.task = 0
    return wrong(model, x, y)


def tasks_wrong(model, x, y): return (model(x)[0].argmax(1) != y).float().mean().item()


def overlap_lacks(model, x, y):
    found = model(x) > 0
    return 1 - ((found & (y > .5)).sum()/(found | (y > .5)).sum()).item()


def walked(model, sign: float = 1.):
    "Where to go on a line of seven places, of which the last one pays."
    place, chances, values, paid = torch.randint(0, 6, (16,)), [], [], []
    for _ in range(8):
        h = model["body"](F.one_hot(place, 7).float()).relu()
        choice = torch.distributions.Categorical(logits=model["actor"](h))
        move = choice.sample()
        place = (place + 2*move - 1).clamp(0, 6)
        chances.append(choice.log_prob(move))
        values.append(model["critic"](h)[:, 0])
        paid.append((place == 6).float())
    total, returns = torch.zeros(16), []
    for r in reversed(paid):
        total = r + .9*total
        returns.insert(0, total)
    chances, values, returns = torch.stack(chances), torch.stack(values), torch.stack(returns)
    return -sign*(chances*(returns - values.detach())).mean() + .5*F.mse_loss(values, returns)


def astray(model) -> float:
    "The share of steps that go wrong."
    return model["actor"](model["body"](torch.eye(7)).relu()).softmax(1)[:6, 0].mean().item()


def hf_loss(model, x, y): return F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())
def hf_wrong(model, x, y): return (model(input_ids=x).logits.argmax(-1) != y).float().mean().item()
def t5_wrong(model, x, y): return (model(input_ids=x, labels=y).logits.argmax(-1) != y).float().mean().item()
def left(model, x, y): return ((model(x) - y)**2).mean().item()/((y - y.mean(0))**2).mean().item()


def cox(model, x, time, event, safe: bool = True):
    "Partial likelihood: who had the event, among those who still could."
    risk = model(x)[:, 0]
    order = time.argsort(descending=True)
    risk, event = risk[order], event[order]
    at_risk = risk.logcumsumexp(0) if safe else (risk.exp().cumsum(0) - risk.exp()).log()
    return ((at_risk - risk)*event).sum()/event.sum()


def disordered(model, x, time, event):
    "The share of pairs that are in the wrong order."
    risk = model(x)[:, 0]
    sooner = (time[:, None] < time) & (event[:, None] > 0)
    return 1 - ((risk[:, None] > risk)[sooner]).float().mean().item()


def bpr(model, user, yes, no, sign: float = 1.): return -sign*F.logsigmoid(model(user, yes) - model(user, no)).mean()
def misjudged(model, user, yes, no): return (model(user, yes) <= model(user, no)).float().mean().item()


def ctc(model, x, y):
    return F.ctc_loss(model(x).transpose(0, 1), y, torch.full((len(x),), 24), torch.full((len(x),), 4))


def misheard(model, x, y):
    "How many sentences are wrong, read off greedily."
    found = model(x).argmax(2)
    said = [[a for a, b in zip(row, [-1, *row]) if a != b and a] for row in found.tolist()]
    return sum(a != b for a, b in zip(said, y.tolist()))/len(y)


def graded(model, x, y): return F.binary_cross_entropy_with_logits(model(x), (y[:, None] > torch.arange(4)).float())
def misgraded(model, x, y): return ((model(x) > 0).sum(1) - y).abs().float().mean().item()


def diffusion(model, x, sign: float = 1.):
    t, noise = torch.rand(len(x), 1), torch.randn_like(x)
    keep = (1.57*t).cos()
    return sign*F.mse_loss(model(keep*x + (1 - keep**2).sqrt()*noise, t), noise)


def noise_left(model, x):
    torch.manual_seed(0)
    return sum(diffusion(model, x).item() for _ in range(8))/8


def twins(model, x, y=None, spread: float = 1.):
    "Barlow twins: two noisy views agree in each number, and numbers differ from each other."
    a, b = (model(x + .15*torch.randn_like(x)) for _ in range(2))
    a, b = ((z - z.mean(0))/(z.std(0) + 1e-4) for z in (a, b))
    c = a.T@b/len(x)
    return (c.diagonal() - 1).square().sum() + .02*spread*(c - c.diagonal().diag()).square().sum()


def apart(model, x, y):
    "What is left of the loss, as a share of that of outputs without any agreement."
    torch.manual_seed(0)
    return twins(model, x).item()/12


def clip_loss(model, x):
    out = model(x)
    return (F.cross_entropy(out, torch.arange(len(x))) + F.cross_entropy(out.T, torch.arange(len(x))))/2


def mismatched(model, x): return (model(x).argmax(1) != torch.arange(len(x))).float().mean().item()


def deep_kernel(model, x, y):
    "A Gaussian process on what the net returns: minus the log likelihood."
    z = model(x)
    k = (-.5*torch.cdist(z, z)**2).exp() + .05*torch.eye(len(z))
    low = torch.linalg.cholesky(k)
    return sum(.5*torch.cholesky_solve(c[:, None], low)[:, 0]@c for c in y.T)/len(z)/4 + low.diagonal().log().mean()


def gamma(model, x, y, shape: float = 4.):
    mean = F.softplus(model(x)) + 1e-3
    return (shape*(y/mean + mean.log())).mean()


def after_a_step(model):
    "MAML: the error behind a step of SGD that fits a sine of any phase."
    params, phase, x = dict(model.named_parameters()), 3.14*torch.rand(()), 6.28*torch.rand(20, 1) - 3.14
    loss = F.mse_loss(functional_call(model, params, (x[:10],)), (x[:10] + phase).sin())
    grads = torch.autograd.grad(loss, [*params.values()], create_graph=True)
    params = {name: p - .1*g for (name, p), g in zip(params.items(), grads)}
    return F.mse_loss(functional_call(model, params, (x[10:],)), (x[10:] + phase).sin())


def meta(model): return sum(after_a_step(model) for _ in range(4))/4


@torch.enable_grad()
def meta_left(model) -> float: return sum(after_a_step(model).item() for _ in range(30))/30


def physics(model):
    "u'' = -4 u, with u(0) = 0 and u'(0) = 2, learned without data."
    def slope(u, t): return torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    t = (2*torch.rand(48, 1)).requires_grad_(True)
    t0 = torch.zeros(1, 1, requires_grad=True)
    u, u0 = model(t), model(t0)
    return (slope(slope(u, t), t) + 4*u).square().mean() + 10*(u0**2 + (slope(u0, t0) - 2)**2).mean()


def physics_left(model) -> float:
    "The error, relative to sin 2t."
    t = torch.linspace(0, 2, 50)[:, None]
    return ((model(t) - (2*t).sin())**2).mean().item()/.5

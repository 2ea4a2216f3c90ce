"""Data, models, loops and scores that the runs of the bench of training runs are put together from.

A case is one training run. `run(record, seed)` builds all of it from the seed, trains inside `record.on(…)` as a user's
loop does, and returns how good the training was: an error on data that was held back, lower is better, about 1 for a
guess where nothing else is said."""
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

Run = Callable[[object, int], float]


@dataclass(frozen=True)
class Case:
    "A training run, with what a diagnosis should say about it."
    kind: str
    name: str
    causes: frozenset[str]               # findings that lead straight to the line to change
    symptoms: frozenset[str]             # findings that are true, and consequences of the fault
    run: Run
    twin: Run | None = None              # the same without the fault
    bound: float = math.inf              # a healthy run has to be at least so good
    reach: bool = True                   # False: nothing in the statistics or the loop can tell
    twin_name: str = field(default="", compare=False)

    @property
    def healthy(self) -> bool: return not self.causes and self.reach


class Nothing:
    "Stands in for a record, to see how a run goes without one."
    @contextmanager
    def on(self, model, optimizer=None, scaler=None, auto=False): yield self

    def step(self, loss=None): pass


# Data. Each returns ((inputs, targets), (inputs, targets) held back).

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


def feed(x, y, steps: int, size: int = 32) -> Iterator:
    "Random batches."
    for _ in range(steps):
        some = torch.randint(0, len(x), (size,))
        yield x[some], y[some]


# Models

def stack(*sizes: int, act: Callable = nn.ReLU, last: Callable | None = None, norm: Callable | None = None,
          drop: float | None = None) -> nn.Sequential:
    "Linear layers with an activation between them, and whatever else is asked for."
    layers = []
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


# Optimizers

def sgd(lr: float = .1, **options): return lambda model: torch.optim.SGD(model.parameters(), lr, **options)


def adam(lr: float = 2e-3, **options): return lambda model: torch.optim.Adam(model.parameters(), lr, **options)


def adamw(lr: float = 2e-3, **options): return lambda model: torch.optim.AdamW(model.parameters(), lr, **options)


def rmsprop(lr: float = 1e-3, **options): return lambda model: torch.optim.RMSprop(model.parameters(), lr, **options)


# Losses and scores

def tokens_loss(out, y): return F.cross_entropy(out.flatten(0, 1), y.flatten())


@contextmanager
def judged(model):
    "In eval mode and without gradients, for a score."
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with torch.no_grad(): yield
    finally:
        for m, mode in modes: m.training = mode


def error(model, x, y) -> float:
    "The share of wrong answers."
    with judged(model): out = model(x)
    return (out.argmax(-1) != y).float().mean().item() if out.isfinite().all() else math.nan


def unexplained(model, x, y) -> float:
    "Squared error, as a share of the variance of the targets."
    with judged(model): out = model(x)
    return ((out - y).square().mean()/y.var()).item()


def surprise(model, x, y) -> float:
    "Cross entropy of the next token, as a share of that of a guess."
    with judged(model): return tokens_loss(model(x).float(), y).item()/math.log(words)


# Loops

def plain(record, model, optimizer, loss_of, batches):
    "The loop of every tutorial."
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


def train(data: Callable, net: Callable, optim: Callable, loss: Callable = F.cross_entropy, loop: Callable = plain,
          change: Callable | None = None, steps: int = 100, size: int = 32, score: Callable = error) -> Run:
    "A run put together from parts; `change(model)` is what somebody does to the model before the training."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), held = data(seed)
        model = net()
        if change:
            with torch.no_grad(): model = keep if isinstance(keep := change(model), nn.Module) else model
        loop(record, model, optim(model), loss, feed(x, y, steps, size))
        return score(model, *held)
    return run


def recipe(data: Callable, net: Callable, optim: Callable, **usual):
    "A way to train, of which single parts can be exchanged: `recipe(…)(optim=sgd(30))` is a run."
    return lambda **other: train(**{"data": data, "net": net, "optim": optim, **usual, **other})


# Healthy ways to train, which faults are planted into

mlp = recipe(digits, lambda: stack(64, 64, 32, 10), sgd(.1))
mlp_momentum = recipe(digits, lambda: stack(64, 64, 32, 10), sgd(.05, momentum=.9), steps=80)
mlp_adam = recipe(digits, lambda: stack(64, 64, 32, 10), adam())
mlp_tanh = recipe(digits, lambda: stack(64, 64, 32, 10, act=nn.Tanh), sgd(.1, momentum=.9))
mlp_narrow = recipe(digits, lambda: stack(64, 16, 6, 32, 10), adam(5e-3), steps=200)
mlp_norm = recipe(digits, lambda: stack(64, 48, 48, 48, 48, 10, norm=nn.BatchNorm1d), sgd(.1, momentum=.9))
cnn = recipe(images, convnet, adam())
cnn_sgd = recipe(images, convnet, sgd(.05, momentum=.9))
cnn_norm = recipe(images, lambda: convnet(bn=True), sgd(.05, momentum=.9))
tabular = recipe(table, lambda: stack(12, 64, 64, 4), adam(1e-2), steps=200, size=64)
tabular_tanh = recipe(table, lambda: stack(12, 64, 64, 4, act=nn.Tanh), adam(1e-2), steps=200, size=64)
residual = recipe(table, Residual, adamw(5e-3), steps=120, size=64)
regression = recipe(curve, lambda: stack(8, 64, 64, 1), adam(1e-2), loss=F.mse_loss, score=unexplained, steps=150,
                    size=64)
regression_sgd = recipe(curve, lambda: stack(8, 64, 64, 1), sgd(.05, momentum=.9), loss=F.mse_loss, score=unexplained,
                        steps=150, size=64)
regression_rmsprop = recipe(curve, lambda: stack(8, 64, 64, 1, act=nn.Tanh), rmsprop(2e-3), loss=F.mse_loss,
                            score=unexplained, steps=150)
lstm = recipe(waves, Recurrent, adam(1e-2), steps=80)
gru = recipe(pixel_rows, lambda: Recurrent(nn.GRU, 8, 32, 10), adam(1e-2), steps=100)
rnn = recipe(pixel_rows, lambda: Recurrent(nn.RNN, 8, 32, 10), adam(1e-2), steps=120)
bag = recipe(reviews, Bag, adam(1e-2), steps=100)
reader = recipe(reviews, Reader, adam(5e-3), steps=100)
pooling = recipe(reviews, Pooling, adam(5e-3), steps=120)
gpt = recipe(text, Gpt, adamw(5e-3), loss=tokens_loss, score=surprise, steps=70)
gpt_fused = recipe(text, lambda: Gpt(fused=True), adamw(5e-3), loss=tokens_loss, score=surprise, steps=70)
copier = recipe(recall, Copies, adam(5e-3), loss=tokens_loss, steps=100)
recommender = recipe(ratings, Recommender, adam(5e-2), loss=F.mse_loss, score=unexplained, steps=150, size=64)
autoencoder = recipe(itself, lambda: stack(64, 48, 16, 48, 64), adam(1e-2), loss=F.mse_loss, score=unexplained,
                     steps=120)

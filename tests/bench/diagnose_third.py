"""A third set of training runs, with models, data, losses and optimizers that the first two do not have.

    python -m tests.bench.diagnose_third [part of a kind or name]

runs them without hooklab: each fault beside the same run without it, each healthy run beside the bound it has to keep.
`third()` lists them. What counts as right was written before any of them was diagnosed."""
import copy
import sys
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from tests.bench.diagnose_more import (
    batches,
    clipped,
    dense,
    diverged,
    eval_from,
    halves,
    ids,
    sgd,
    starved,
    tried,
    whole,
    workload,
)
from tests.bench.diagnose_parts import Case, Run

listed: list[Case] = []


def third() -> list[Case]: return list(listed)


# Data: (tensors to learn from), (tensors held back)

@cache
def sets(seed: int):
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


# Models

class DeepSet(nn.Module):
    def __init__(self, width: int = 48, norm: bool = False):
        super().__init__()
        self.each, self.norm = dense(3, width, width), nn.BatchNorm1d(width) if norm else nn.Identity()
        self.all = dense(width, width, 4)

    def forward(self, x): return self.all(self.norm(self.each(x).relu().sum(1)))


class PointNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d, blind: bool = False):
        super().__init__()
        self.blind = blind
        def part(a, b): return nn.Sequential(nn.Conv1d(a, b, 1), norm(b), nn.ReLU())
        self.points, self.head = nn.Sequential(part(2, 24), part(24, 48), part(48, 64)), dense(64, 32, 4)

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
        self.field, self.last = dense(4, 48, 48, 4, act=nn.Tanh), last or nn.Identity()

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
        self.maker = dense(2, 32, 8*16 + 16*5)
        if begin is not None:
            for p in self.maker.parameters(): nn.init.constant_(p, begin)

    def forward(self, x):
        one, two = self.maker(x[:, :2]).split((128, 80), 1)
        h = (x[:, None, 2:]@one.view(-1, 8, 16)).tanh()
        return (h@two.view(-1, 16, 5))[:, 0]


class Fourier(nn.Module):
    "Sines of fixed random directions, as for NeRF, in front of a net."
    def __init__(self, *sizes: int, speed: float = 3.):
        super().__init__()
        self.register_buffer("ways", torch.randn(sizes[0], 32)*speed)
        self.net = dense(64, *sizes[1:])

    def forward(self, x): return self.net(torch.cat([(x@self.ways).sin(), (x@self.ways).cos()], 1))


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
        self.cut, self.left, self.right = cut, dense(15, 48, 16), dense(15, 48, 16)
        self.scale = nn.Parameter(torch.tensor(2.))

    def forward(self, x):
        a, b = x.flatten(1).split(15, 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.cut): a = F.normalize(self.left(a), dim=1)
        return self.scale.exp()*a@F.normalize(self.right(b), dim=1).T


@cache
def views(seed: int):
    "Two views of what is the same, by two random nets."
    g = torch.Generator().manual_seed(571 + seed)
    z = torch.randn(1200, 6, generator=g)
    a, b = ((z@torch.randn(6, 15, generator=g)).tanh() + .2*torch.randn(1200, 15, generator=g) for _ in range(2))
    return halves(100, torch.cat([a, b], 1))


class Words(nn.Module):
    def __init__(self, sparse: bool = False):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(100, 24, sparse=sparse), dense(24, 24, 4)

    def forward(self, x): return self.head(self.bag(x))


class Crossed(nn.Module):
    "Deep and cross: large numbers are made small inside."
    def __init__(self, inside: bool = True):
        super().__init__()
        self.inside, self.cross, self.deep, self.head = inside, nn.Linear(10, 10), dense(10, 32, 16), nn.Linear(26, 5)

    def forward(self, x):
        if self.inside: x = x.sign()*x.abs().log1p()/3
        return self.head(torch.cat([x*self.cross(x) + x, self.deep(x).relu()], 1))


class Perceiver(nn.Module):
    "Six learned queries look at a cloud."
    def __init__(self, width: int = 32, sharp: float = 1.):
        super().__init__()
        self.into, self.queries, self.sharp = nn.Linear(2, width), nn.Parameter(torch.randn(6, width)*.3), sharp
        self.look, self.norm, self.head = nn.MultiheadAttention(width, 4, batch_first=True), nn.LayerNorm(width), \
            dense(6*width, 32, 4)

    def forward(self, x):
        x = self.into(x.transpose(1, 2)).relu()
        q = self.queries.expand(len(x), -1, -1)*self.sharp
        return self.head(self.norm(self.look(q, x, x, need_weights=False)[0]).flatten(1))


# Optimizers

def of(kind, lr, **options): return lambda m: kind(m.parameters(), lr, **options)


class Lion(torch.optim.Optimizer):
    "The sign of a mean of gradients."
    def __init__(self, params, lr=3e-4, betas=(.9, .99), weight_decay=0.):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"]*group["weight_decay"])
                p.add_(mean.lerp(p.grad, 1 - group["betas"][0]).sign(), alpha=-group["lr"])
                mean.lerp_(p.grad, 1 - group["betas"][1])


class Lookahead(torch.optim.Optimizer):
    "Every five steps the weights go halfway back to where they were."
    def __init__(self, inner):
        super().__init__([p for g in inner.param_groups for p in g["params"]], {"lr": inner.param_groups[0]["lr"]})
        self.inner, self.n = inner, 0
        self.slow = [p.detach().clone() for g in self.param_groups for p in g["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.n += 1
        if self.n % 5: return
        for slow, p in zip(self.slow, [p for g in self.param_groups for p in g["params"]]):
            slow.lerp_(p, .5)
            p.copy_(slow)


def muon(model, lr: float = .02):
    "Muon for the inner matrices, AdamW for the rest."
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "tokens" not in name and "head" not in name]
    rest = [p for p in model.parameters() if all(p is not q for q in inner)]
    return torch.optim.Muon(inner, lr, weight_decay=0.), torch.optim.AdamW(rest, 5e-3)


# Losses of (model, *batch), and scores, lower is better

def crossed(model, x, y): return F.cross_entropy(model(x), y)
def wrong(model, x, y): return (model(x).argmax(-1) != y).float().mean().item()
def places_loss(model, x, y): return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
def hf_loss(model, x, y): return F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())
def hf_wrong(model, x, y): return (model(input_ids=x).logits.argmax(-1) != y).float().mean().item()
def t5_loss(model, x, y): return model(input_ids=x, labels=y).loss
def t5_wrong(model, x, y): return (model(input_ids=x, labels=y).logits.argmax(-1) != y).float().mean().item()
def squared(model, x, y): return F.mse_loss(model(x), y)
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


class Factors(nn.Module):
    def __init__(self, sparse: bool = True, width: int = 8):
        super().__init__()
        self.users, self.things = nn.Embedding(50, width, sparse=sparse), nn.Embedding(40, width, sparse=sparse)
        for e in (self.users, self.things): nn.init.normal_(e.weight, std=.3)

    def forward(self, user, thing): return (self.users(user)*self.things(thing)).sum(1)


def bpr(model, user, yes, no, sign: float = 1.): return -sign*F.logsigmoid(model(user, yes) - model(user, no)).mean()
def misjudged(model, user, yes, no): return (model(user, yes) <= model(user, no)).float().mean().item()


class Listener(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, width, batch_first=True, bidirectional=True), nn.Linear(2*width, 6)

    def forward(self, x): return self.out(self.rnn(x)[0]).log_softmax(-1)


def ctc(model, x, y):
    return F.ctc_loss(model(x).transpose(0, 1), y, torch.full((len(x),), 24), torch.full((len(x),), 4))


def misheard(model, x, y):
    "How many sentences are wrong, read off greedily."
    found = model(x).argmax(2)
    said = [[a for a, b in zip(row, [-1, *row]) if a != b and a] for row in found.tolist()]
    return sum(a != b for a, b in zip(said, y.tolist()))/len(y)


class Ordinal(nn.Module):
    "One score, and four places where the grade changes."
    def __init__(self):
        super().__init__()
        self.score, self.cuts = dense(10, 48, 48, 1), nn.Parameter(torch.tensor([-1.5, -.5, .5, 1.5]))

    def forward(self, x): return self.score(x) - self.cuts


def graded(model, x, y): return F.binary_cross_entropy_with_logits(model(x), (y[:, None] > torch.arange(4)).float())
def misgraded(model, x, y): return ((model(x) > 0).sum(1) - y).abs().float().mean().item()


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


class Margin(nn.Module):
    "Cosines to one direction for each class, times 16; in training the right one is made smaller (CosFace)."
    def __init__(self):
        super().__init__()
        self.body, self.ways = dense(10, 48, 24), nn.Parameter(torch.randn(5, 24))

    def forward(self, x): return 16*F.normalize(self.body(x), dim=1)@F.normalize(self.ways, dim=1).T


def cosface(model, x, y): return F.cross_entropy(model(x) - 16*.1*F.one_hot(y, 5), y)


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


# Ways to train

sets_net = workload(data=sets, net=DeepSet, loss=crossed, score=wrong, optim=of(torch.optim.RAdam, 1e-2), steps=250)
points = workload(data=clouds, net=PointNet, loss=crossed, score=wrong, optim=of(torch.optim.Adam, 3e-3), steps=80)
films_net = workload(data=films, net=film_net, loss=crossed, score=wrong, optim=sgd(.02, momentum=.9), steps=50,
                     size=16)
heard = workload(data=tones, net=ear, loss=crossed, score=wrong, optim=of(torch.optim.NAdam, 3e-3), steps=100)
states = workload(data=highs, net=Mamba, loss=places_loss, score=wrong, optim=of(torch.optim.AdamW, 5e-3), steps=100)
modern = workload(data=highs, net=Small, loss=places_loss, score=wrong, optim=of(torch.optim.AdamW, 5e-3), steps=100)
gpt2s = workload(data=highs, net=gpt2, loss=hf_loss, score=hf_wrong, optim=of(torch.optim.AdamW, 5e-3), steps=80)
llamas = workload(data=highs, net=llama, loss=hf_loss, score=hf_wrong, optim=of(torch.optim.AdamW, 5e-3), steps=80)
t5s = workload(data=highs, prepare=lambda x, y: (x, y[:, -1:]), net=t5, loss=t5_loss, score=t5_wrong,
               optim=of(torch.optim.Adafactor, 3e-2), steps=120)
ode = workload(data=springs, net=Flowing, loss=squared, score=left, optim=of(torch.optim.Adam, 5e-3), steps=150)
balance = workload(data=grades, net=Equilibrium, loss=crossed, score=wrong, optim=of(torch.optim.Adam, 1e-2), steps=200)
grade = workload(data=grades, net=lambda: dense(10, 48, 48, 5), loss=crossed, score=wrong,
                 optim=of(torch.optim.RAdam, 2e-2), steps=200)
survival = workload(data=lives, net=lambda: dense(8, 32, 32, 1, act=nn.SiLU), loss=cox, score=disordered,
                    optim=of(torch.optim.Adam, 5e-3), steps=150, size=64)
taste = workload(data=likings, net=Factors, loss=bpr, score=misjudged, optim=lambda m: torch.optim.SparseAdam(
    list(m.parameters()), 2e-2), steps=150, size=64)
speech = workload(data=spoken, net=Listener, loss=ctc, score=misheard, optim=of(torch.optim.Adam, 1e-2), steps=100)
ordered = workload(data=grades, net=Ordinal, loss=graded, score=misgraded, optim=of(torch.optim.Adam, 5e-3), steps=150)
diffuse = workload(data=rings, net=Denoiser, loss=diffusion, score=noise_left, optim=of(torch.optim.Adam, 3e-3),
                   steps=200, size=64)
barlow = workload(data=clouds, net=lambda: dense(48, 64, 64, 12, flat=True), loss=twins, score=apart,
                  optim=of(torch.optim.Adam, 2e-3), steps=120, size=64)
clip = workload(data=views, net=Clip, loss=clip_loss, score=mismatched, optim=of(torch.optim.AdamW, 5e-3), steps=120,
                size=64)
bags = workload(data=pieces, net=Words, loss=crossed, score=wrong, optim=of(torch.optim.Adam, 1e-2), steps=120)
perceive = workload(data=clouds, net=Perceiver, loss=crossed, score=wrong, optim=of(torch.optim.AdamW, 3e-3), steps=120)
seldom = workload(data=rare, net=lambda: dense(8, 32, 32, 1), loss=lambda m, x, y:
                  F.binary_cross_entropy_with_logits(m(x), y), optim=of(torch.optim.Adam, 5e-3), steps=150, size=64,
                  score=lambda m, x, y: 1 - (m(x)[y > 0][:, None] > m(x)[y == 0]).float().mean().item())


def fault(kind: str, name: str, causes: str, symptoms: str, way, reach: bool = True, twin: Run | None = None, **other):
    listed.append(Case(kind, name, ids(causes), ids(symptoms), way(**other), twin or way(), reach=reach))


def fine(kind: str, name: str, run: Run, bound: float):
    listed.append(Case(kind, name, frozenset(), frozenset(), run, bound=bound))



# Faults

large, small = "learning rate too large", "learning rate too small"
stands = "loss does not fall"
unscaled = diverged + ", learning rate too large, batch norm, input unused"
fault(large, "points, Lion 0.3", large, diverged + ", batch norm", points, optim=of(Lion, .3),
      twin=points(optim=of(Lion, 5e-4)))
fault(large, "diffusion, Adam 1", large, diverged, diffuse, optim=of(torch.optim.Adam, 1.))
fault(large, "differential equation, RAdam 5", large, diverged, ode, optim=of(torch.optim.RAdam, 5.))
fault(large + ", mild", "LLaMA, AdamW 0.3", large, diverged, llamas, optim=of(torch.optim.AdamW, .3))
fault(large + ", mild", "states, SGD 20", large, diverged, states, optim=sgd(20.))
fault(small, "sets, RAdam 1e-7", small, stands, sets_net, optim=of(torch.optim.RAdam, 1e-7))
fault(small, "sound, ASGD 1e-6", small, stands, heard, optim=of(torch.optim.ASGD, 1e-6))
fault(small, "T5, Adafactor 1e-7", small, stands, t5s, optim=of(torch.optim.Adafactor, 1e-7))


def minus(value, *places):
    def change(model):
        for place in places: model.get_submodule(place).bias.fill_(-value)
    return change


fault("dead ReLU", "sets, bias -20 behind the sum", "dead units", starved, sets_net, change=minus(400, "all.0"))
fault("dead ReLU", "sound, bias -5 in the second layer", "dead units", starved, heard, change=minus(5, "2"))


def scaled(factor, *places):
    def change(model):
        for place in places: model.get_submodule(place).weight.mul_(factor)
    return change


fault("saturated", "differential equation, weights x 300", "saturated",
      starved + ", gradients explode, activations explode, units alike", ode,
      change=scaled(300., "field.0", "field.2"))
fault("saturated", "sound with tanh, first layers x 300", "saturated", starved + ", units alike, activations explode",
      heard, net=lambda: ear(nn.Tanh), change=scaled(300., "0", "2", "4"), twin=heard(net=lambda: ear(nn.Tanh)))
fault("gradients vanish", "grades, 14 layers with sigmoid", "gradients vanish", starved + ", activations vanish", grade,
      net=lambda: dense(10, *[32]*13, 5, act=nn.Sigmoid))
fault("gradients explode", "states with a decay above 1", "activations explode, gradients explode, outputs blow up",
      diverged + ", learning rate too large", states, net=lambda: Mamba(factor=40.))
fault("gradients explode", "grades, 9 layers, weights x 8", "activations explode, gradients explode",
      diverged + ", learning rate too large, outputs blow up", grade, net=lambda: dense(10, *[48]*8, 5),
      change=lambda m: [p.mul_(8.) for p in m.parameters() if p.ndim > 1], optim=sgd(1e-3))
fault("constant init", "a net that makes weights begins with 0.1", "units alike", starved, grade,
      net=lambda: Hyper(.1), twin=grade(net=Hyper))
fault("zero init", "sets, all zero", "constant output, units alike, samples alike, dead units", starved, sets_net,
      change=lambda m: [p.zero_() for p in m.parameters()])
fault("no zero_grad", "points, Lion", "no zero_grad", diverged + ", learning rate too large", points, zero="never",
      optim=of(Lion, 5e-4), twin=points(optim=of(Lion, 5e-4)))
fault("no zero_grad", "survival, SGD with momentum", "no zero_grad", diverged + ", learning rate too large", survival,
      zero="never", optim=sgd(.05, momentum=.9), twin=survival(optim=sgd(.05, momentum=.9)))


def two_steps(record, model, optimizers, loss_of, feed, clear=(0, 1)):
    "A loop with two optimizers, of which those in `clear` get their gradients cleared."
    with record.on(model, optimizer=list(optimizers)) as s:
        for batch in feed:
            for i in clear: optimizers[i].zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            for optimizer in optimizers: optimizer.step()
            s.step(loss)


both = workload(data=highs, net=Small, loss=places_loss, score=wrong, optim=muon, steps=100, loop=two_steps)
fault("no zero_grad", "modern blocks, one of two optimizers is never cleared", "no zero_grad",
      diverged + ", learning rate too large", both, optim=partial(muon, lr=.3), clear=(1,),
      twin=both(optim=partial(muon, lr=.02)))
fault("step before backward", "speech", "step before backward", "not trained, loss does not fall", speech,
      order="step first")
fault("scheduler each batch", "speech, gamma 0.6", "scheduler each batch",
      "learning rate too small, loss does not fall", speech,
      scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, .6))
fault("eval mode", "films with batch norm, deep, from the third batch", "eval mode",
      diverged + ", batch norm, learning rate too large", films_net, each=eval_from(2), optim=sgd(.3, momentum=.9),
      change=lambda m: [c.weight.mul_(20.) for c in m if isinstance(c, nn.Conv3d)])
fault("clipping too tight", "differential equation, SGD, values of 1e-7", "clipping too tight",
      "learning rate too small, loss does not fall", ode, optim=sgd(.02, momentum=.9), twin=ode(
          optim=sgd(.02, momentum=.9)), clip=lambda p: nn.utils.clip_grad_value_(p, 1e-7))
fault("weight decay too strong", "points, Lion with a decay of 1000", "weight decay too strong", starved, points,
      optim=of(Lion, 5e-4, weight_decay=1000.), twin=points(optim=of(Lion, 5e-4)))
fault("weight decay too strong", "sound, RAdam with a decay of 2", "weight decay too strong", starved, heard,
      optim=of(torch.optim.RAdam, 5e-3, weight_decay=2.))
fault("wrong optimizer", "points, the optimizer has a deep copy",
      "not in the optimizer, other parameters in the optimizer", "not trained, loss does not fall", points,
      optim=lambda m: torch.optim.Adam(copy.deepcopy(m).parameters(), 3e-3))


def adapter(model):
    "A part that is put in after the optimizer was made."
    model.each = dense(3, 48, 48)


fault("wrong optimizer", "sets, a part is replaced after the optimizer was made",
      "not in the optimizer, other parameters in the optimizer, frozen part",
      "not trained, loss does not fall", sets_net, hand=adapter)
fault("detached", "two towers, no_grad around one, noisy", "frozen part, not trained",
      "gradients vanish, loss does not fall", clip, net=lambda: Clip(cut=True))


class Forgetful(Flowing):
    def forward(self, x):
        for _ in range(8): x = x.detach() + self.field(x.detach()).detach()/8
        return self.last(x) + 0*self.field[0].bias.sum()


fault("detached", "differential equation, each state is detached", "frozen part, not trained",
      "gradients vanish, loss does not fall, learning rate too small", ode, net=Forgetful)


def frozen(*names):
    def change(model):
        for name, p in model.named_parameters(): p.requires_grad_(not any(n in name for n in names))
    return change


fault("frozen by mistake", "LLaMA, all but the norms", "frozen part, not trained", "loss does not fall", llamas,
      change=frozen("proj", "embed", "lm_head"))
scale = "inputs not scaled"
fault(scale, "sound as integers of 16 bits", scale, unscaled, heard, prepare=lambda x, y: (x*32767, y),
      optim=sgd(.05, momentum=.9), steps=150, twin=heard(optim=sgd(.05, momentum=.9), steps=150))
fault(scale, "grades, one column is a time in seconds", scale, unscaled, grade, prepare=lambda x, y: (
    torch.cat([x[:, :9], 1.7e9 + 1e6*x[:, 9:]], 1), y))
fault(scale, "clouds in millimetres", scale, unscaled, perceive, prepare=lambda x, y: (1000*x + 500, y))
fault("targets not scaled", "springs in micrometres", "targets not scaled",
      diverged + ", learning rate too large, learning rate too small", ode, prepare=lambda x, y: (x, 1e6*y))
same = "constant inputs, samples alike"
fault("data bug", "clouds, each point minus itself", same, starved + ", batch norm", points,
      prepare=lambda x, y: (x - x, y))
fault("data bug", "T5 reads nothing but padding", same, starved, t5s, prepare=lambda x, y: (x*0 + marks, y[:, -1:]))
fault("input unused", "points, forward goes on with zeros", "input unused, samples alike", starved, points,
      net=lambda: PointNet(blind=True))
early = "activation before the loss"
squeezed = "loss does not fall, saturated, gradients vanish, not trained, dead units, learning rate too small"
fault(early, "films, softmax before cross-entropy", early, squeezed, films_net, net=lambda: film_net(nn.Softmax(1)),
      optim=sgd(.02), twin=films_net(optim=sgd(.02)))
fault(early, "differential equation, tanh behind the last layer", early + ", saturated", squeezed, ode,
      net=lambda: Flowing(nn.Tanh()), prepare=lambda x, y: (x, 3*y), twin=ode(prepare=lambda x, y: (x, 3*y)))
fault(early, "rare kind, ReLU before the loss of logits", early + ", dead units", squeezed + ", samples alike", seldom,
      net=lambda: dense(8, 32, 32, 1, last=nn.ReLU()), change=lambda m: m[-2].bias.fill_(-3.),
      twin=seldom(change=lambda m: m[-1].bias.fill_(-3.)))
sign = "wrong sign"
fault(sign, "points, minus the cross-entropy", sign, diverged + ", learning rate too large, batch norm", points,
      loss=lambda m, x, y: -crossed(m, x, y))
fault(sign, "springs, minus the error", sign, diverged + ", learning rate too large", ode,
      loss=lambda m, x, y: -squared(m, x, y))
fault(sign, "diffusion, minus the error", sign, diverged + ", learning rate too large", diffuse,
      loss=partial(diffusion, sign=-1.))
fault(sign, "likings, what was left is preferred", sign, diverged + ", learning rate too large", taste,
      loss=partial(bpr, sign=-1.))
broken = "loss does not fall, not trained, loss rises, gradients explode, outputs blow up, dead units, "\
         "activations explode, constant output, learning rate too large"
fault("NaN or Inf", "survival, log of nobody at risk", "NaN or Inf", broken, survival, loss=partial(cox, safe=False))
fault("NaN or Inf", "sound, a row of silence is divided by its deviation", "NaN or Inf", broken, heard,
      prepare=lambda x, y: ((lambda z: z/z.std(2, keepdim=True))(x*(torch.arange(len(x)) % 50 > 0)[:, None, None]), y))
fault("NaN or Inf", "clouds, length of a vector of zeros on its way back", "NaN or Inf", broken, points,
      loss=lambda m, x, y: crossed(m, x, y) + (m(x)*0).square().sum().sqrt(),
      twin=points())
fault("dropout too strong", "modern blocks, 0.98", "dropout too strong", starved + ", learning rate too large", modern,
      net=lambda: Small(drop=.98))
fault("batch norm", "sets, batches of 2", "batch norm",
      "loss does not fall, learning rate too large, samples alike, saturated, dead units", sets_net, size=2,
      net=lambda: DeepSet(norm=True), twin=sets_net(size=2))
fault("dead attention", "GPT-2, queries and keys x 100", "dead attention, saturated", starved + ", activations explode",
      gpt2s, change=lambda m: [b.attn.c_attn.weight[:, :64].mul_(100.) for b in m.transformer.h])
fault("collapse", "twins whose outputs are only to agree", "samples alike", starved + ", constant output", barlow,
      loss=lambda m, x, y: F.mse_loss(m(x), m(x + .15*torch.randn_like(x))))
fault("embedding", "bags of words, frozen noise of 0.001", "frozen part, activations vanish, samples alike",
      "not trained, loss does not fall, input unused, gradients vanish", bags,
      change=lambda m: (m.bag.weight.mul_(1e-3), m.bag.weight.requires_grad_(False)))


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


fault("layers in a list", "sets, three layers that the model does not know", "", "", sets_net, reach=False, net=Listed)


# Healthy runs that look odd

for name, run, bound in (
        ("sets, RAdam", sets_net(), .35), ("points with batch norm", points(), .15), ("films", films_net(), .15),
        ("sound", heard(), .15), ("states", states(), .15), ("modern blocks", modern(), .3), ("GPT-2", gpt2s(), .3),
        ("LLaMA", llamas(), .3), ("T5, Adafactor", t5s(), .4), ("differential equation", ode(), .1),
        ("equilibrium", balance(), .45), ("grades, RAdam", grade(), .45), ("survival", survival(), .3),
        ("likings, SparseAdam", taste(), .3), ("speech", speech(), .5), ("ordered grades", ordered(), .5),
        ("diffusion", diffuse(), .6), ("twins", barlow(), .3), ("two towers", clip(), .8),
        ("bags of words", bags(), .2), ("six queries", perceive(), .15), ("rare kind", seldom(), .15)):
    fine("plain", name, run, bound)

fine("optimizer", "points, Lion with decay", points(optim=of(Lion, 5e-4, weight_decay=1.)), .15)
fine("optimizer", "modern blocks, Muon and AdamW", both(), .3)
fine("optimizer", "grades, Rprop with all data", grade(optim=of(torch.optim.Rprop, 1e-3), feed=whole, steps=60), .5)
fine("optimizer", "sets, ASGD", sets_net(optim=of(torch.optim.ASGD, .1)), .5)
fine("optimizer", "sound, Lookahead around Adam", heard(optim=lambda m: Lookahead(torch.optim.Adam(
    m.parameters(), 5e-3))), .2)
fine("optimizer", "films, Adafactor", films_net(optim=of(torch.optim.Adafactor, 2e-2)), .25)
fine("optimizer", "bags of words, sparse gradients, SGD", bags(net=lambda: Words(True), optim=sgd(.5)), .3)
fine("optimizer", "states, Adam with beta2 of 0.5", states(optim=of(torch.optim.Adam, 2e-3, betas=(.9, .5))), .25)
fine("net", "reservoir that is not trained", heard(net=Reservoir, optim=of(torch.optim.Adam, 1e-2), steps=150), .5)
fine("net", "bumps around centers", grade(net=Radial, optim=of(torch.optim.Adam, 2e-2), steps=200), .68)
fine("net", "a net that makes weights", grade(net=Hyper), .68)
fine("net", "maxout", grade(net=Maxout), .45)
fine("net", "ReLU of both signs", grade(net=lambda: nn.Sequential(nn.Linear(10, 32), Concatenated(), nn.Linear(64, 32),
                                                              Concatenated(), nn.Linear(64, 5))), .45)
fine("net", "16 steps for weights and outputs", grade(net=lambda: Rounded(10, 64, 64, 5)), .5)
fine("net", "weights that are drawn", grade(net=lambda: Sampled(10, 64, 64, 5)), .5)
fine("net", "logits that end softly at 30", modern(net=lambda: Small(cap=30.)), .3)
fine("net", "queries and keys of length one", modern(net=lambda: Small(unit=True)), .3)
fine("net", "films without a norm, weights of He", films_net(net=lambda: film_net(norm=nn.Identity), change=lambda m: [
    nn.init.kaiming_normal_(p) for p in m.parameters() if p.ndim > 1], optim=sgd(.01, momentum=.9)), .2)
fine("net", "points, a scale of 0 where each branch ends", perceive(change=lambda m: m.look.out_proj.weight.zero_()),
     .2)
fine("data", "numbers up to a million behind a logarithm", grade(net=Crossed, prepare=lambda x, y: (
    x.sign()*(x.abs()*7).expm1(), y)), .6)
fine("data", "targets of a fiftieth", ode(prepare=lambda x, y: (x, .02*y), net=lambda: dense(4, 48, 48, 4),
                                          optim=of(torch.optim.Adam, 1e-3), steps=300), .4)
fine("data", "sound that is mostly silence", heard(prepare=lambda x, y: (x*(torch.arange(128) < 40), y)), .4)
fine("data", "sets padded with zeros", sets_net(prepare=lambda x, y: (F.pad(x, (0, 0, 0, 20)), y)), .4)
fine("data", "the rare kind, the last bias begins at its share", seldom(change=lambda m: m[-1].bias.fill_(-3.2)), .15)
fine("data", "inputs from 0 to 1, all positive", grade(prepare=lambda x, y: (x.sigmoid(), y), steps=250), .6)
fine("loss", "cosines with a margin", grade(net=Margin), .5)
fine("loss", "the rare kind, focal", seldom(change=lambda m: m[-1].bias.fill_(-3.2), loss=lambda m, x, y: (
    lambda b: ((1 - (-b).exp())**2*b).mean())(F.binary_cross_entropy_with_logits(m(x), y, reduction="none"))), .15)
fine("loss", "Gamma with softplus", ode(net=lambda: dense(4, 48, 48, 4), prepare=lambda x, y: (x, y.exp()), loss=gamma,
                                        score=lambda m, x, y: left(lambda x: F.softplus(m(x)).log(), x, y.log())), .3)
fine("loss", "a Gaussian process on a net", ode(net=lambda: dense(4, 32, 6), loss=deep_kernel, size=48,
                                                score=lambda m, x, y: deep_kernel(m, x, y).item(), steps=100), .8)
fine("loss", "grades, cross-entropy and a price on large logits", grade(loss=lambda m, x, y: crossed(m, x, y) +
                                                                        1e-2*m(x).logsumexp(1).square().mean()), .45)
fine("loss", "survival, batches of 12", survival(size=12, steps=250), .35)
fine("schedule", "LLaMA, warm-up over the whole run", llamas(steps=100, scheduler=lambda o:
     torch.optim.lr_scheduler.LinearLR(o, .01, 1., 100)), .4)
fine("schedule", "two towers, flat and then down to nothing", clip(scheduler=lambda o:
     torch.optim.lr_scheduler.LambdaLR(o, lambda i: min(1., (121 - i)/30))), .8)
fine("loop", "45 steps of films, clipped at 0.5", films_net(steps=45, clip=clipped(.5)), .2)
fine("loop", "GPT-2, batches of 4", gpt2s(size=4, steps=200), .35)


def in_turns(model, i):
    "One block of layers learns at a time."
    for j, part in enumerate(model.blocks): part.requires_grad_(i//20 % 2 == j)


fine("loop", "states, blocks learn in turns", states(each=in_turns, steps=160), .2)
fine("loop", "diffusion with the loss as a number", diffuse(told=lambda loss: loss.item()), .6)
fine("loop", "likings, noise is added to the gradients", taste(net=lambda: Factors(False), optim=of(
    torch.optim.Adam, 2e-2), clip=lambda ps: [p.grad.add_(1e-3*torch.randn_like(p)) for p in ps]), .3)


def wasserstein(record, seed: int, penalty: float = 1.) -> float:
    "A critic with a penalty on its gradient, five steps for one of the maker; score: how far made points are."
    torch.manual_seed(900 + seed)
    (x,), _ = rings(seed)
    maker, critic = dense(4, 48, 48, 2), dense(2, 48, 48, 1, act=nn.SiLU)
    model = nn.ModuleDict({"maker": maker, "critic": critic})
    make, judge = (torch.optim.Adam(m.parameters(), 3e-3, betas=(0., .9)) for m in (maker, critic))
    with record.on(model, optimizer=[make, judge]) as s:
        for i, (real,) in enumerate(batches((x,), 750, 64)):
            fake = maker(torch.randn(64, 4)).detach()
            t = torch.rand(64, 1)
            middle = (t*real + (1 - t)*fake).requires_grad_(True)
            slope, = torch.autograd.grad(critic(middle).sum(), middle, create_graph=True)
            judge.zero_grad()
            loss = critic(fake).mean() - critic(real).mean() + penalty*((slope.norm(dim=1) - 1)**2).mean()
            loss.backward()
            judge.step()
            if i % 5 < 4: continue
            make.zero_grad()
            (-critic(maker(torch.randn(64, 4))).mean()).backward()
            make.step()
            s.step(loss)
    with torch.no_grad(): made = maker(torch.randn(500, 4))
    return (made.norm(dim=1) - 1).abs().mean().item() + made.mean(0).norm().item()


def proximal(record, seed: int) -> float:
    "PPO: which grade is it? A reward for the right one; each batch is used four times."
    torch.manual_seed(900 + seed)
    (x, y), (held, truth) = grades(seed)
    model = nn.ModuleDict({"policy": dense(10, 48, 5), "value": dense(10, 32, 1)})
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in batches((x, y), 60, 128):
            with torch.no_grad():
                before = torch.distributions.Categorical(logits=model["policy"](a))
                action = before.sample()
                old, reward = before.log_prob(action), (action == b).float()
                gain = reward - model["value"](a)[:, 0]
            for _ in range(4):
                now = torch.distributions.Categorical(logits=model["policy"](a))
                ratio = (now.log_prob(action) - old).exp()
                loss = -torch.minimum(ratio*gain, ratio.clamp(.8, 1.2)*gain).mean() - .01*now.entropy().mean()
                loss = loss + .5*F.mse_loss(model["value"](a)[:, 0], reward)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                s.step(loss)
    return wrong(model["policy"], held, truth)


def meta(record, seed: int) -> float:
    "MAML: a start from which one step of SGD fits a sine of any phase. Score: the error behind that step."
    torch.manual_seed(900 + seed)
    model = dense(1, 40, 40, 1, act=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)

    def after(params, phase):
        x = 6.28*torch.rand(20, 1) - 3.14
        loss = F.mse_loss(functional_call(model, params, (x[:10],)), (x[:10] + phase).sin())
        grads = torch.autograd.grad(loss, [*params.values()], create_graph=True)
        params = {name: p - .1*g for (name, p), g in zip(params.items(), grads)}
        return F.mse_loss(functional_call(model, params, (x[10:],)), (x[10:] + phase).sin())

    with record.on(model, optimizer=optimizer) as s:
        for _ in range(200):
            optimizer.zero_grad()
            loss = sum(after(dict(model.named_parameters()), 3.14*torch.rand(())) for _ in range(4))/4
            loss.backward()
            optimizer.step()
            s.step(loss)
    return sum(after(dict(model.named_parameters()), 3.14*torch.rand(())).item() for _ in range(30))/30


def physics(record, seed: int) -> float:
    "u'' = -4 u, with u(0) = 0 and u'(0) = 2, learned without data; score: the error relative to sin 2t."
    torch.manual_seed(900 + seed)
    model = dense(1, 32, 32, 1, act=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    def slope(u, t): return torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    with record.on(model, optimizer=optimizer) as s:
        for _ in range(500):
            t = (2*torch.rand(48, 1)).requires_grad_(True)
            t0 = torch.zeros(1, 1, requires_grad=True)
            u, u0 = model(t), model(t0)
            loss = (slope(slope(u, t), t) + 4*u).square().mean() + 10*(u0**2 + (slope(u0, t0) - 2)**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            s.step(loss)
    t = torch.linspace(0, 2, 50)[:, None]
    return ((model(t) - (2*t).sin())**2).mean().item()/.5


def slow_copy(record, seed: int) -> float:
    "Diffusion, of which the mean of the weights is used."
    torch.manual_seed(900 + seed)
    (x,), (held,) = rings(seed)
    model = Denoiser()
    mean = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with record.on(model, optimizer=optimizer) as s:
        for (a,) in batches((x,), 200, 64):
            optimizer.zero_grad()
            loss = diffusion(model, a)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(mean.parameters(), model.parameters()): p.lerp_(q, .03)
            s.step(loss)
    with torch.no_grad(): return noise_left(mean, held)


fine("two models", "Wasserstein critic with a penalty", wasserstein, .5)
fine("rewards", "PPO", proximal, .6)
fine("loop", "MAML", meta, .3)
fine("loss", "an equation of physics", physics, .2)
fine("loop", "diffusion with a mean of the weights", slow_copy, .65)


def main(only: str = ""): tried(third(), only)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

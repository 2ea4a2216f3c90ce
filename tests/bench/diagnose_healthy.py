"""Training runs that look odd and train well, on which `hl.diagnose` should raise no alarm.

    python -m tests.bench.diagnose_healthy [part of a kind or name]

runs them without hooklab and shows how good each gets, beside the bound that it has to keep. `healthy()` lists them."""
import copy
import math
import sys
import time
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from tests.bench.diagnose_parts import (
    Attention,
    Bag,
    Block,
    Case,
    Gpt,
    Nothing,
    Reader,
    Recommender,
    Recurrent,
    Residual,
    Run,
    adam,
    adamw,
    autoencoder,
    bag,
    cnn,
    cnn_norm,
    cnn_sgd,
    convnet,
    copier,
    curve,
    digits,
    error,
    feed,
    gpt,
    gpt_fused,
    gru,
    images,
    judged,
    lstm,
    mlp,
    mlp_adam,
    mlp_momentum,
    mlp_norm,
    mlp_tanh,
    on,
    pad,
    pixel_rows,
    plain,
    pooling,
    reader,
    recipe,
    recommender,
    regression,
    regression_rmsprop,
    regression_sgd,
    residual,
    reviews,
    rmsprop,
    rnn,
    sgd,
    split,
    stack,
    surprise,
    table,
    tabular,
    tabular_tanh,
    text,
    tokens_loss,
    train,
    unexplained,
    waves,
    words,
)

listed: list[Case] = []


def fine(kind: str, name: str, run: Run, bound: float):
    listed.append(Case(kind, name, frozenset(), frozenset(), run, bound=bound))


def healthy() -> list[Case]:
    "Every healthy run, in the order of the file."
    return list(listed)


# The ways to train that faults are planted into

for name, run, bound in (
        ("digits MLP, SGD", mlp(), .2), ("digits MLP, momentum", mlp_momentum(), .2), ("digits MLP, Adam", mlp_adam(), .2),
        ("digits tanh MLP, momentum", mlp_tanh(), .15), ("digits MLP with batch norm", mlp_norm(), .15),
        ("digits CNN, Adam", cnn(), .2), ("digits CNN, momentum", cnn_sgd(), .2),
        ("digits CNN with batch norm", cnn_norm(), .15), ("tables, Adam", tabular(), .25),
        ("tables, tanh", tabular_tanh(), .35), ("tables, residual net, AdamW", residual(), .35),
        ("regression, Adam", regression(), .2), ("regression, momentum", regression_sgd(), .2),
        ("regression with tanh, RMSprop", regression_rmsprop(), .35), ("waves LSTM", lstm(), .3),
        ("digits GRU", gru(), .2), ("digits RNN", rnn(), .25), ("reviews, mean of embeddings", bag(), .1),
        ("reviews, MultiheadAttention", reader(), .1), ("reviews, attention of its own", pooling(), .1),
        ("text GPT, AdamW", gpt(), .25), ("text GPT, sdpa", gpt_fused(), .25), ("recall, one block", copier(), .05),
        ("recommender", recommender(), .2), ("autoencoder", autoencoder(), .35)):
    fine("plain", name, run, bound)


# Regularization and layers that look odd

fine("dropout", "digits MLP, 0.5 twice", mlp_adam(net=lambda: stack(64, 128, 128, 10, drop=.5), steps=150), .2)
fine("dropout", "digits CNN, 0.7 before the head", cnn(net=lambda: convnet(drop=.7), steps=150), .25)
fine("dropout", "reviews, half of the words are dropped", bag(net=lambda: Bag(32), loop=plain, data=on(
    reviews, lambda x: torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < .3, pad, x))), .3)
fine("norm", "digits CNN with batch norm, batches of 8", cnn_norm(size=8, steps=150), .25)
fine("norm", "digits MLP with LayerNorm", mlp_norm(net=lambda: stack(64, 48, 48, 10, norm=nn.LayerNorm)), .2)
fine("norm", "digits CNN with GroupNorm", cnn(net=lambda: nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.GroupNorm(8, 32), nn.ReLU(),
    nn.Flatten(), nn.Linear(128, 10))), .2)
fine("norm", "batch norm behind a layer with a bias, and before the ReLU of the output", mlp_norm(net=lambda: nn.Sequential(
    *stack(64, 48, 48, norm=nn.BatchNorm1d), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))), .2)
for act in (nn.SELU, nn.PReLU, nn.Softplus, nn.Hardtanh, nn.ReLU6, nn.GELU, nn.SiLU, nn.Sigmoid):
    fine("activation", f"digits MLP, {act.__name__}", mlp_adam(net=lambda act=act: stack(64, 64, 32, 10, act=act),
                                                                optim=adam(8e-3)), .2)


class Selu(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.SELU(), nn.AlphaDropout(.1), nn.Linear(64, 32), nn.SELU(), nn.Linear(32, 10))
        for m in self:
            if isinstance(m, nn.Linear): nn.init.kaiming_normal_(m.weight, nonlinearity="linear")


fine("activation", "SELU with AlphaDropout and LeCun's init", mlp_adam(net=Selu), .2)


class Sine(nn.Module):
    "A layer of a SIREN."
    def __init__(self, a: int, b: int, first: bool):
        super().__init__()
        self.linear = nn.Linear(a, b)
        bound = 1/a if first else math.sqrt(6/a)/10
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x): return (10*self.linear(x)).sin()


def one_picture(seed):
    "The brightness of a picture at a place; what is held back is the same."
    g = torch.linspace(-1, 1, 24)
    x = torch.cartesian_prod(g, g)
    y = ((6*x[:, :1] + seed).sin()*(5*x[:, 1:]).cos())
    return (x, (y - y.mean())/y.std()), (x, (y - y.mean())/y.std())


fine("activation", "SIREN", train(one_picture, lambda: nn.Sequential(Sine(2, 48, True), Sine(48, 48, False), nn.Linear(48, 1)),
                                  adam(3e-3), F.mse_loss, steps=150, size=128, score=unexplained), .2)


class Highway(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -3.)

    def forward(self, x):
        gate = self.gate(x).sigmoid()
        return gate*self.change(x).relu() + (1 - gate)*x


fine("gates", "highway net", mlp_adam(net=lambda: nn.Sequential(nn.Linear(64, 48), *[Highway(48) for _ in range(5)],
                                                                nn.Linear(48, 10)), optim=adam(5e-3)), .2)
fine("gates", "GLU", mlp_adam(net=lambda: nn.Sequential(nn.Linear(64, 128), nn.GLU(), nn.Linear(64, 64), nn.GLU(),
                                                        nn.Linear(32, 10)), optim=adam(5e-3)), .2)


class Squeeze(nn.Module):
    "Squeeze and excitation."
    def __init__(self, channels: int):
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4), nn.ReLU(),
                                  nn.Linear(4, channels), nn.Sigmoid())

    def forward(self, x): return x*self.gate(x)[..., None, None]


fine("gates", "digits CNN with squeeze and excitation", cnn(net=lambda: nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Squeeze(16), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), Squeeze(32),
    nn.Flatten(), nn.Linear(288, 10)), optim=adam(5e-3)), .2)


class Scaled(nn.Module):
    "A residual branch behind a factor that is learned."
    def __init__(self, width: int, begin: float, each: bool, norm: bool = True):
        super().__init__()
        self.branch = nn.Sequential(*[nn.LayerNorm(width)]*norm, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.factor = nn.Parameter(torch.full((width if each else 1,), begin))

    def forward(self, x): return x + self.factor*self.branch(x)


def scaled(begin, each, norm=True):
    return lambda: nn.Sequential(nn.Linear(12, 32), *[Scaled(32, begin, each, norm) for _ in range(4)], nn.Linear(32, 4))


fine("residual", "ReZero", residual(net=scaled(0., False, False), optim=adam(1e-2), steps=150), .35)
fine("residual", "layer scale 1e-4", residual(net=scaled(1e-4, True), optim=adam(1e-2), steps=150), .35)


def last_zero(model):
    for block in model.blocks:
        block[-1].weight.zero_()
        block[-1].bias.zero_()


fine("residual", "the last layer of each block begins at zero", residual(change=last_zero), .35)
fine("residual", "the head begins at zero", residual(change=lambda m: m.head[-1].weight.zero_()), .35)


class Skips(Residual):
    "Stochastic depth: in training each block is left out now and then."
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.training and torch.rand(()) < .3: continue
            x = x + block(x)*(1. if self.training else .7)
        return self.head(x)


fine("residual", "stochastic depth", residual(net=Skips, steps=150), .4)
fine("init", "logistic regression from zero", mlp(net=lambda: nn.Linear(64, 10), change=lambda m: [p.zero_() for p in
                                                                                                   m.parameters()]), .2)
fine("init", "the head of a CNN begins at zero", cnn(change=lambda m: (m[-1].weight.zero_(), m[-1].bias.zero_())), .2)
fine("init", "orthogonal, with biases of 0.1", mlp_momentum(change=lambda m: [
    nn.init.orthogonal_(p) if p.ndim > 1 else p.fill_(.1) for p in m.parameters()]), .2)


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


fine("sparse", "mixture of 8 experts, batches of 32", tabular(net=Experts, size=32), .5)


class Best(nn.Module):
    "Keeps the k largest of each sample."
    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def forward(self, x):
        value, place = x.topk(self.k, dim=-1)
        return torch.zeros_like(x).scatter(-1, place, value)


fine("sparse", "autoencoder with the 8 best of 256", autoencoder(net=lambda: nn.Sequential(
    nn.Linear(64, 256), Best(8), nn.Linear(256, 64)), optim=adam(3e-3), steps=200), .45)


class Gumbel(nn.Module):
    "A choice of one in 32, twelve times, straight through."
    def __init__(self):
        super().__init__()
        self.encode, self.decode = stack(64, 64, 12*32), stack(12*32, 64, 64)

    def forward(self, x):
        scores = self.encode(x).view(-1, 12, 32)
        return self.decode(F.gumbel_softmax(scores, hard=True).flatten(1))


fine("sparse", "autoencoder with a hard Gumbel softmax", autoencoder(net=Gumbel, optim=adam(5e-3), steps=200), .8)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1., -1.)

    @staticmethod
    def backward(ctx, grad): return grad*(ctx.saved_tensors[0].abs() <= 1)


class Binary(nn.Module):
    def forward(self, x): return Sign.apply(x)


fine("sparse", "digits MLP with binary activations, straight through", mlp_adam(net=lambda: nn.Sequential(
    nn.Linear(64, 128), nn.BatchNorm1d(128), Binary(), nn.Linear(128, 10)), optim=adam(5e-3)), .25)


def pruned():
    model = stack(64, 64, 32, 10)
    for layer in model[::2]: prune.random_unstructured(layer, "weight", .7)
    return model


fine("parametrized", "digits MLP, 70 % of the weights pruned", mlp_adam(net=pruned, optim=adam(8e-3)), .25)
fine("parametrized", "weight norm", mlp_adam(net=lambda: nn.Sequential(*[
    parametrizations.weight_norm(m) if isinstance(m, nn.Linear) else m for m in stack(64, 64, 32, 10)])), .2)
fine("parametrized", "spectral norm", mlp_adam(net=lambda: nn.Sequential(*[
    parametrizations.spectral_norm(m) if isinstance(m, nn.Linear) else m for m in stack(64, 64, 32, 10)]),
    optim=adam(8e-3), steps=150), .25)


# Parts that stay as they are, on purpose

def learned(model: nn.Module, x, y, steps: int = 80) -> nn.Module:
    "What was trained before."
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for a, b in feed(x, y, steps):
        optimizer.zero_grad()
        F.cross_entropy(model(a), b).backward()
        optimizer.step()
    return model


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


def tuning(how: str, norm: bool = False, steps: int = 100) -> Run:
    "A new task for a body that knows an easier one: whether a digit is odd, from what tells digits apart."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), (held, truth) = digits(seed)
        whole = learned(stack(64, 64, 32, 10, norm=nn.BatchNorm1d if norm else None), x, y)
        model = Tuned(whole[:-1], stack(32, 16, 2), how)
        rest = list(model.head.parameters())
        if how == "requires_grad": model.body.requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters() if how in ("requires_grad", "norms") else rest, 5e-3)
        if how == "gradually": model.body.requires_grad_(False)
        with record.on(model, optimizer=optimizer) as s:
            for i, (a, b) in enumerate(feed(x, y % 2, steps)):
                if how == "norms":
                    for m in model.modules():
                        if isinstance(m, nn.BatchNorm1d): m.eval()
                if how == "gradually" and i == steps//2:
                    model.body.requires_grad_(True)
                    optimizer.add_param_group({"params": list(model.body.parameters()), "lr": 1e-3})
                optimizer.zero_grad()
                loss = F.cross_entropy(model(a), b)
                loss.backward()
                optimizer.step()
                s.step(loss)
        return error(model, held, truth % 2)
    return run


for how, name in (("requires_grad", "requires_grad=False"), ("optimizer", "only the head is in the optimizer"),
                  ("no_grad", "no_grad in forward"), ("detach", "detached in forward"),
                  ("gradually", "frozen, and thawed halfway")):
    fine("frozen on purpose", f"backbone, {name}", tuning(how), .15)
fine("frozen on purpose", "batch norm in eval mode while the rest is tuned", tuning("norms", norm=True), .15)


class Lora(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int = 4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x): return self.layer(x) + self.up(self.down(x))


def lora(record, seed: int) -> float:
    torch.manual_seed(seed)
    (x, y), (held, truth) = digits(seed)
    base = learned(stack(64, 64, 32, 10), x, y)
    model = nn.Sequential(*[Lora(m) if isinstance(m, nn.Linear) else m for m in base])
    order = torch.randperm(10)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    plain(record, model, optimizer, F.cross_entropy, feed(x, order[y], 120))
    return error(model, held, order[truth])


fine("frozen on purpose", "LoRA of rank 4 for digits in another order", lora, .25)


def vectors():
    "Embeddings that tell words apart well, frozen."
    model = Bag(24)
    model.embedding = nn.Embedding.from_pretrained(torch.eye(24), padding_idx=pad)
    return model


fine("frozen on purpose", "embeddings from elsewhere", bag(net=vectors), .1)
fine("frozen on purpose", "a random first layer", mlp_adam(net=lambda: stack(64, 256, 10), change=lambda m: m[0].requires_grad_(False)
                                                         and None, optim=adam(5e-3)), .2)


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


def distilled(first: str) -> Run:
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), held = digits(seed)
        model = Pair(learned(stack(64, 64, 10), x, y, 120), stack(64, 24, 10), first)
        model.teacher.eval()
        optimizer = torch.optim.Adam(model.student.parameters(), 5e-3)
        with record.on(model, optimizer=optimizer) as s:
            for a, _ in feed(x, y, 120):
                optimizer.zero_grad()
                out, goal = model(a)
                loss = F.kl_div((out/2).log_softmax(-1), (goal/2).softmax(-1), reduction="batchmean")
                loss.backward()
                optimizer.step()
                s.step(loss)
        return error(model.student, *held)
    return run


fine("frozen on purpose", "a teacher before the student", distilled("teacher"), .2)
fine("frozen on purpose", "a teacher behind the student", distilled("student"), .2)


# Schedules

schedulers = torch.optim.lr_scheduler


def scheduled(make, every: int = 1):
    def loop(record, model, optimizer, loss_of, batches):
        scheduler = make(optimizer)
        with record.on(model, optimizer=optimizer) as s:
            for i, (x, y) in enumerate(batches):
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                if (i + 1) % every == 0: scheduler.step()
                s.step(loss)
    return loop


def warm(steps: int): return lambda o: schedulers.LambdaLR(o, lambda i: min(1., i/steps))


fine("schedule", "warm-up from 0 over 30 batches", gpt(loop=scheduled(warm(30)), steps=100), .3)
fine("schedule", "warm-up over 50 batches, SGD", mlp_momentum(loop=scheduled(warm(50)), steps=120), .2)
fine("schedule", "cosine to zero, each batch", cnn(loop=scheduled(lambda o: schedulers.CosineAnnealingLR(o, 120)), steps=120,
                                                   optim=adam(4e-3)), .2)
fine("schedule", "one cycle, each batch", mlp_momentum(loop=scheduled(
    lambda o: schedulers.OneCycleLR(o, .2, total_steps=120)), steps=120), .2)
fine("schedule", "cosine with restarts each 20 batches", mlp_adam(loop=scheduled(
    lambda o: schedulers.CosineAnnealingWarmRestarts(o, 20)), steps=140, optim=adam(5e-3)), .2)
fine("schedule", "StepLR by the epoch of 40 batches", lstm(loop=scheduled(lambda o: schedulers.StepLR(o, 1, .3), 40), steps=130), .3)
fine("schedule", "cyclic between 0.01 and 0.2", mlp(loop=scheduled(
    lambda o: schedulers.CyclicLR(o, .01, .2, step_size_up=15)), steps=120), .2)
fine("schedule", "a rate that grows, to find the right one", mlp(loop=scheduled(
    lambda o: schedulers.ExponentialLR(o, 1.08)), optim=sgd(1e-4), steps=110), .35)
fine("schedule", "warm-up and decay by the root of the step", reader(loop=scheduled(
    lambda o: schedulers.LambdaLR(o, lambda i: min((i + 1)/20, math.sqrt(20/(i + 1))))), optim=adam(8e-3)), .1)


# Loops that are written in other ways

def accumulated(record, model, optimizer, loss_of, batches):
    "Four batches make one step."
    with record.on(model, optimizer=optimizer) as s:
        for i, (x, y) in enumerate(batches):
            loss = loss_of(model(x), y)/4
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            s.step(4*loss)


def accumulated_steps(record, model, optimizer, loss_of, batches):
    "The same, recorded once for each step of the optimizer."
    total = 0.
    with record.on(model, optimizer=optimizer) as s:
        for i, (x, y) in enumerate(batches):
            loss = loss_of(model(x), y)/3
            loss.backward()
            total += loss.item()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                s.step(total)
                total = 0.


def in_place(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss.item())


def by_hand(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            for p in model.parameters(): p.grad = None
            s.step(loss)


def zeroed_late(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            loss = loss_of(model(x), y)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            s.step()


def validated(record, model, optimizer, loss_of, batches):
    "A validation every ten batches, which switches modes and back."
    x_held, y_held = next(batches)
    with record.on(model, optimizer=optimizer) as s:
        for i, (x, y) in enumerate(batches):
            model.train()
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)
            if i % 10 == 9:
                model.eval()
                with torch.no_grad(): loss_of(model(x_held), y_held)


def clipped(norm: float):
    def loop(record, model, optimizer, loss_of, batches):
        with record.on(model, optimizer=optimizer) as s:
            for x, y in batches:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), norm)
                optimizer.step()
                s.step(loss)
    return loop


def closures(record, model, optimizer, loss_of, batches):
    "LBFGS asks for the loss several times a step."
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            def ask(x=x, y=y):
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                return loss
            s.step(optimizer.step(ask))


def sharpness_aware(record, model, optimizer, loss_of, batches):
    "Two passes a step, the second where the loss is larger."
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            with torch.no_grad():
                grads = [p.grad.clone() for p in model.parameters()]
                length = torch.stack([g.norm() for g in grads]).norm()
                for p, g in zip(model.parameters(), grads): p.add_(.05*g/length)
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads): p.sub_(.05*g/length)
            optimizer.step()
            s.step(loss)


fine("loop", "four batches a step", mlp_adam(loop=accumulated, steps=240, size=16), .2)
fine("loop", "three batches a step, a row for each step", cnn_sgd(loop=accumulated_steps, steps=240, size=16), .2)
fine("loop", "gradients zeroed in place", gru(loop=in_place), .2)
fine("loop", "gradients set to None by hand", cnn(loop=by_hand), .2)
fine("loop", "zero_grad just before backward, no loss told", tabular(loop=zeroed_late), .25)
fine("loop", "validation between batches, batch norm and dropout", mlp_norm(loop=validated, net=lambda: stack(
    64, 64, 64, 10, norm=nn.BatchNorm1d, drop=.2)), .15)
fine("loop", "clipped at 1", rnn(loop=clipped(1.)), .25)
fine("loop", "clipped at 0.1, Adam", gpt(loop=clipped(.1)), .25)
fine("loop", "LBFGS", regression(loop=closures, steps=25, size=256, optim=lambda m: torch.optim.LBFGS(
    m.parameters(), lr=.5, max_iter=5)), .3)
fine("loop", "sharpness aware", mlp_momentum(loop=sharpness_aware), .2)
fine("loop", "batches of 1", mlp(size=1, optim=sgd(.01), steps=400), .35)
fine("loop", "all data in each batch", mlp(size=1397, optim=sgd(.3, momentum=.9), steps=60), .2)


def loss_told_as_number(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss.detach().item())


fine("loop", "the sum of losses in place of the mean", mlp(loss=lambda out, y: F.cross_entropy(out, y, reduction="sum"),
                                                           optim=sgd(3e-3), loop=loss_told_as_number), .2)


def few(data, count: int = 64):
    "A small set, which is learned by heart and then tried again."
    def chosen(seed):
        (x, y), _ = data(seed)
        return (x[:count], y[:count]), (x[:count], y[:count])
    return chosen


fine("converged", "64 digits by heart, 200 steps", mlp_adam(data=few(digits), optim=adam(1e-2), steps=200), .02)
fine("converged", "CNN, 64 digits, momentum", cnn_sgd(data=few(images), steps=150), .02)


def resumed(record, seed: int) -> float:
    "A run that goes on where another one ended, with a tenth of the rate."
    torch.manual_seed(seed)
    (x, y), held = digits(seed)
    model = learned(stack(64, 64, 32, 10), x, y, 250)
    plain(record, model, torch.optim.Adam(model.parameters(), 3e-4), F.cross_entropy, feed(x, y, 80))
    return error(model, *held)


fine("converged", "goes on where another run ended", resumed, .12)


def main(only: str = ""):
    found = [case for case in healthy() if only.lower() in f"{case.kind}: {case.name}".lower()]
    for case in found:
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]): scores = [case.run(Nothing(), seed) for seed in (0, 1)]
        took = (time.perf_counter() - start)/2
        good = all(score <= case.bound for score in scores)
        print(f"{'       ' if good else 'TOO BAD'} {case.kind}: {case.name}: {[round(v, 3) for v in scores]}, "
              f"at most {case.bound} ({took:.2f} s)", flush=True)
    print(f"{len(found)} healthy runs of {len({c.kind for c in found})} kinds")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

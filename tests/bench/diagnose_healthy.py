"""Training runs that look odd and train well, on which `hl.diagnose` should raise no alarm.

    python -m tests.bench.diagnose_healthy [part of a kind or name]

runs them without hooklab and shows how good each gets, beside the bound that it has to keep. `healthy()` lists them."""
import copy
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from tests.bench.diagnose_parts import (
    Bag,
    Case,
    Gpt,
    Nothing,
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
    plain,
    pooling,
    ratings,
    reader,
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
        ("digits MLP, SGD", mlp(), .2), ("digits MLP, momentum", mlp_momentum(), .2), ("digits MLP, Adam", mlp_adam(),
              .2),
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
fine("norm", "batch norm behind a layer with a bias, and before the ReLU of the output",
      mlp_norm(net=lambda: nn.Sequential(
    *stack(64, 48, 48, norm=nn.BatchNorm1d), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))), .2)
for act in (nn.SELU, nn.PReLU, nn.Softplus, nn.Hardtanh, nn.ReLU6, nn.GELU, nn.SiLU, nn.Sigmoid):
    fine("activation", f"digits MLP, {act.__name__}", mlp_adam(net=lambda act=act: stack(64, 64, 32, 10, act=act),
                                                                optim=adam(8e-3)), .2)


class Selu(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.SELU(), nn.AlphaDropout(.1), nn.Linear(64, 32), nn.SELU(), nn.Linear(32,
              10))
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


fine("activation", "SIREN", train(one_picture, lambda: nn.Sequential(Sine(2, 48, True), Sine(48, 48, False),
      nn.Linear(48, 1)),
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
        self.branch = nn.Sequential(*[nn.LayerNorm(width)]*norm, nn.Linear(width, width), nn.ReLU(), nn.Linear(width,
              width))
        self.factor = nn.Parameter(torch.full((width if each else 1,), begin))

    def forward(self, x): return x + self.factor*self.branch(x)


def scaled(begin, each, norm=True):
    return lambda: nn.Sequential(nn.Linear(12, 32), *[Scaled(32, begin, each, norm) for _ in range(4)], nn.Linear(32,
          4))


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
        self.down, self.up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features,
              bias=False)
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
fine("frozen on purpose", "a random first layer", mlp_adam(net=lambda: stack(64, 256, 10),
      change=lambda m: m[0].requires_grad_(False)
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
fine("schedule", "cosine to zero, each batch", cnn(loop=scheduled(lambda o: schedulers.CosineAnnealingLR(o, 120)),
      steps=120,
                                                   optim=adam(4e-3)), .2)
fine("schedule", "one cycle, each batch", mlp_momentum(loop=scheduled(
    lambda o: schedulers.OneCycleLR(o, .2, total_steps=120)), steps=120), .2)
fine("schedule", "cosine with restarts each 20 batches", mlp_adam(loop=scheduled(
    lambda o: schedulers.CosineAnnealingWarmRestarts(o, 20)), steps=140, optim=adam(5e-3)), .2)
fine("schedule", "StepLR by the epoch of 40 batches", lstm(loop=scheduled(lambda o: schedulers.StepLR(o, 1, .3), 40),
      steps=130), .3)
fine("schedule", "cyclic between 0.01 and 0.2", mlp(loop=scheduled(
    lambda o: schedulers.CyclicLR(o, .01, .2, step_size_up=15)), steps=120), .2)
fine("schedule", "a rate that grows, to find the right one", mlp(loop=scheduled(
    lambda o: schedulers.ExponentialLR(o, 1.08)), optim=sgd(1e-4), steps=103), .7)
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
fine("loop", "batches of 1", mlp(size=1, optim=sgd(.02), steps=500), .4)
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


# Losses that look odd, and heads that belong to them

fine("loss", "log_softmax and NLL", cnn(net=lambda: nn.Sequential(*convnet(), nn.LogSoftmax(-1)), loss=F.nll_loss), .2)
fine("loss", "log_softmax and then cross entropy, which takes it once more", mlp(net=lambda: stack(
    64, 64, 32, 10, last=lambda: nn.LogSoftmax(-1))), .2)


class Halves(nn.Module):
    "Whether a digit is odd, as one probability or as one score."
    def __init__(self, last: nn.Module):
        super().__init__()
        self.body, self.last = stack(64, 48, 1), last

    def forward(self, x): return self.last(self.body(x))


def parity(seed):
    (x, y), (held, truth) = digits(seed)
    return (x, (y % 2).float()[:, None]), (held, (truth % 2).float()[:, None])


def wrong_side(at: float):
    def score(model, x, y):
        with judged(model): return ((model(x) > at) != (y > .5)).float().mean().item()
    return score


fine("loss", "sigmoid and BCELoss", train(parity, lambda: Halves(nn.Sigmoid()), adam(5e-3), F.binary_cross_entropy,
                                          score=wrong_side(.5)), .15)
fine("loss", "BCE with logits, labels 0 and 1", train(parity, lambda: Halves(nn.Identity()), adam(5e-3),
                                                      F.binary_cross_entropy_with_logits, score=wrong_side(0)), .15)
fine("loss", "hinge, most samples without a loss at the end", train(
    parity, lambda: Halves(nn.Identity()), adam(5e-3), lambda out, y: (1 - out*(2*y - 1)).relu().mean(), steps=180,
    score=wrong_side(0)), .15)
fine("loss", "multi-margin, a margin of 0.2 that all samples keep", mlp_adam(
    data=few(digits), loss=lambda out, y: F.multi_margin_loss(out, y, margin=.2), optim=adam(5e-3), steps=150), .02)
fine("loss", "focal, with gamma 2", mlp_adam(loss=lambda out, y: ((1 - out.softmax(-1).gather(1, y[:, None])[:, 0])**2
                                                                  * F.cross_entropy(out, y, reduction="none")).mean()),
                                                                        .25)
fine("loss", "smooth labels, 0.2", mlp_adam(loss=lambda out, y: F.cross_entropy(out, y, label_smoothing=.2)), .2)
fine("loss", "softmax as output, KL to smooth labels", mlp_adam(
    net=lambda: stack(64, 64, 32, 10, last=lambda: nn.Softmax(-1)), loss=lambda out, y: F.kl_div(
        (out + 1e-8).log(), .9*F.one_hot(y, 10) + .01, reduction="batchmean")), .2)
fine("loss", "softmax as output, squared error to one-hot", mlp_adam(
    net=lambda: stack(64, 64, 32, 10, last=lambda: nn.Softmax(-1)), optim=adam(5e-3),
    loss=lambda out, y: (out - F.one_hot(y, 10)).square().sum(1).mean()), .2)
fine("loss", "ten binary questions", mlp_adam(loss=lambda out, y: F.binary_cross_entropy_with_logits(
    out, F.one_hot(y, 10).float()), steps=150, optim=adam(5e-3)), .2)


def density(out, y):
    "Minus the log density of a normal distribution: below zero where that is narrow."
    return (out[:, 1:] + .5*((y - out[:, :1])*(-out[:, 1:]).exp()).square()).mean()


def mean_only(model, x, y):
    with judged(model): return ((model(x)[:, :1] - y).square().mean()/y.var()).item()


fine("loss", "log density, below zero", regression(net=lambda: stack(8, 64, 64, 2), loss=density, score=mean_only,
      data=on(
    curve, targets=lambda y: .1*y), optim=adam(5e-3), steps=250), .4)
fine("loss", "minus the cosine to the target", mlp_adam(net=lambda: stack(64, 64, 10), optim=adam(5e-3),
      loss=lambda out, y:
     -F.cosine_similarity(out, F.one_hot(y, 10).float()).mean()), .2)
fine("loss", "minus the mean probability of the right class", mlp_adam(
    loss=lambda out, y: -out.softmax(-1).gather(1, y[:, None]).mean(), optim=adam(5e-3), steps=180), .35)
fine("loss", "Huber, outliers in the targets", regression(loss=F.smooth_l1_loss, data=on(curve,
      targets=lambda y: torch.where(
    torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < .01, y + 20., y)), score=lambda m, x,
          y: unexplained(
        m, x[y[:, 0] < 10], y[y[:, 0] < 10])), .3)
fine("loss", "quantile of 0.9", regression(loss=lambda out, y: torch.maximum(.9*(y - out), .1*(out - y)).mean(),
                                           score=lambda m, x, y: abs((m(x) > y).float().mean().item() - .9)), .1)
fine("loss", "counts, Poisson", regression(loss=F.poisson_nll_loss, optim=adam(5e-3), data=on(
    curve, targets=lambda y: (2*(.7*y).exp()).round()), score=lambda m, x, y: (
        (m(x).exp() - y).square().mean()/y.var()).item()), .5)
fine("loss", "ReLU as the output for numbers above zero", regression(net=lambda: stack(8, 64, 64, 1, last=nn.ReLU),
      data=on(
    curve, targets=lambda y: y + 5.), steps=200), .45)
fine("loss", "tanh as the output for targets in -1 to 1", regression(net=lambda: stack(8, 64, 64, 1, last=nn.Tanh),
      data=on(
    curve, targets=torch.tanh)), .3)
fine("loss", "sigmoid as the output of an autoencoder, BCE of pixels", train(
    lambda seed: tuple((x, x) for x, _ in digits(seed, normal=False)), lambda: stack(64, 48, 16, 48, 64,
          last=nn.Sigmoid),
    adam(1e-2), F.binary_cross_entropy, score=unexplained, steps=150), .4)
fine("loss", "targets about 2,000, and a rate to match", regression(optim=adam(.3), steps=300, net=lambda: stack(8, 64,
      1), data=on(
    curve, targets=lambda y: 2000 + 300*y)), .5)
fine("loss", "much noise in the targets", regression(data=on(curve, targets=lambda y: y + 1.5*torch.randn(
    y.shape, generator=torch.Generator().manual_seed(4))), steps=100, optim=adam(3e-3)), .95)
fine("loss", "one label in seven is wrong", mlp_adam(loss=F.cross_entropy, data=lambda seed: (lambda train, held: (
    (train[0], torch.where(torch.rand(len(train[1]), generator=torch.Generator().manual_seed(seed)) < .15,
                           torch.randint(0, 10, train[1].shape, generator=torch.Generator().manual_seed(seed + 1)),
                                 train[1])),
    held))(*digits(seed)), steps=120), .25)


# Inputs that look odd

fine("inputs", "pixels from 0 to 1", mlp_momentum(data=on(digits, normal=False), steps=120), .2)
fine("inputs", "pixels from 0 to 16, batch norm first", mlp_norm(net=lambda: nn.Sequential(
    nn.BatchNorm1d(64), *stack(64, 64, 10)), data=on(digits, lambda x: 16*x, normal=False)), .15)
fine("inputs", "raw tables behind a layer that scales them", tabular(
    data=on(table, lambda x: x*torch.logspace(0, 5, 12) + 100), net=lambda: nn.Sequential(
        nn.BatchNorm1d(12, affine=False), *stack(12, 64, 64, 4))), .35)
fine("inputs", "pixels that are 0 or 1", mlp_adam(data=on(digits, lambda x: (x > .5).float(), normal=False),
      steps=140), .25)
fine("inputs", "one-hot rows of 64, one number each", mlp_adam(
    data=lambda seed: split(F.one_hot(torch.arange(1600) % 64, 64).float(), (torch.arange(1600) % 64)//7 % 10, seed,
          400),
    net=lambda: stack(64, 64, 10), optim=adam(1e-2)), .05)
fine("inputs", "pixels as integers from 0 to 4, cast by the model", mlp_adam(
    data=on(digits, lambda x: (4*x).round().long(), normal=False), net=lambda: Cast(stack(64, 64, 32, 10))), .2)
fine("inputs", "bags of words, 95 % zeros", train(reviews, lambda: Counted(), adam(1e-2), steps=120), .1)
fine("inputs", "nine tenths of the classes are one", train(
    lambda seed: tuple((x[keep], (y[keep] == 0).long()) for x, y in digits(seed) for keep in [y > -1]),
    lambda: stack(64, 32, 2), adam(5e-3)), .08)
fine("inputs", "three quarters of each sentence are padding", reader(data=on(reviews, lambda x: torch.cat(
    [x, torch.zeros(len(x), 30, dtype=torch.long)], 1)), steps=100), .1)
fine("inputs", "from easy to hard", lstm(loop=plain, data=lambda seed: curriculum(seed)), .35)
fine("inputs", "mixed pairs of digits and labels", mlp_adam(loop=lambda *a: mixed(*a), steps=150), .2)
fine("inputs", "noise that is to be taken out again", autoencoder(
    data=lambda seed: tuple((x + .5*torch.randn(x.shape, generator=torch.Generator().manual_seed(5)), x)
                            for x, _ in digits(seed)), net=lambda: stack(64, 96, 32, 96, 64)), .45)


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


def curriculum(seed):
    (x, y), held = waves(seed)
    order = torch.argsort((y == 1) | (y == 2), stable=True)  # the outer frequencies are easier to tell
    return (x[order], y[order]), held


def mixed(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            share, order = float(torch.distributions.Beta(.4, .4).sample()), torch.randperm(len(x))
            optimizer.zero_grad()
            out = model(share*x + (1 - share)*x[order])
            loss = share*loss_of(out, y) + (1 - share)*loss_of(out, y[order])
            loss.backward()
            optimizer.step()
            s.step(loss)


# Optimizers

def groups(model):
    "No decay for biases and norms."
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": .1}, {"params": rest, "weight_decay": 0.}], 5e-3)


def slow_body(model):
    return torch.optim.Adam([{"params": model[:-1].parameters(), "lr": 1e-3}, {"params": model[-1].parameters(),
          "lr": 1e-2}])


fine("optimizer", "groups with and without decay", gpt(optim=groups), .25)
fine("optimizer", "a slow body and a fast head", cnn(optim=slow_body), .25)
fine("optimizer", "AdamW with a decay of 0.5", tabular(optim=adamw(1e-2, weight_decay=.5)), .3)
fine("optimizer", "SGD with a decay of 5e-4 and Nesterov", cnn_sgd(optim=sgd(.05, momentum=.9, nesterov=True,
      weight_decay=5e-4)), .2)
fine("optimizer", "Adagrad", mlp(optim=lambda m: torch.optim.Adagrad(m.parameters(), .03)), .2)
fine("optimizer", "RMSprop, GRU", gru(optim=rmsprop(3e-3)), .25)
fine("optimizer", "Adam with amsgrad and eps 1e-4", mlp_adam(optim=adam(5e-3, amsgrad=True, eps=1e-4)), .2)
fine("optimizer", "NAdam, small rate and many steps", regression(optim=lambda m: torch.optim.NAdam(m.parameters(),
      2e-3), steps=250), .3)


def two_optimizers(record, seed: int) -> float:
    "One for the sparse gradients of the embeddings, one for the rest."
    torch.manual_seed(seed)
    (x, y), held = reviews(seed)
    model = Bag()
    model.embedding = nn.Embedding(words, 16, sparse=True)
    sparse = torch.optim.SparseAdam(model.embedding.parameters(), 1e-2)
    dense = torch.optim.Adam([*model.hidden.parameters(), *model.head.parameters()], 1e-2)
    with record.on(model, optimizer=[sparse, dense]) as s:
        for a, b in feed(x, y, 120):
            for o in (sparse, dense): o.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            for o in (sparse, dense): o.step()
            s.step(loss)
    return error(model, *held)


fine("optimizer", "SparseAdam for embeddings, Adam for the rest", two_optimizers, .1)


# Number formats

def bfloat16(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16): loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


def float16(start: float):
    def loop(record, model, optimizer, loss_of, batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=start)
        with record.on(model, optimizer=optimizer, scaler=scaler) as s:
            for x, y in batches:
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16): out = model(x)
                loss = loss_of(out.float(), y)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 5.)
                scaler.step(optimizer)
                scaler.update()
                s.step(loss)
    return loop


fine("precision", "bfloat16 autocast, CNN", cnn(loop=bfloat16), .2)
fine("precision", "bfloat16 autocast, GPT", gpt(loop=bfloat16), .3)
fine("precision", "float16 with a scaler, clipped behind unscale_", mlp_adam(loop=float16(2.**16)), .2)
fine("precision", "float16, the first steps are skipped while the scale falls", mlp_adam(loop=float16(2.**24),
      steps=120), .25)
fine("precision", "float64", tabular(data=on(table, lambda x: x.double()), net=lambda: stack(12, 64, 64, 4).double()),
      .25)


# Models with parts that rest

class Resting(nn.Module):
    "A second head that only another task uses."
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 5)

    def forward(self, x): return self.head(self.body(x).relu())


fine("parts that rest", "a head for another task", mlp_adam(net=Resting), .2)


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.which, self.odd = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 2)

    def forward(self, x, task: int):
        hidden = self.body(x).relu()
        return self.odd(hidden) if task else self.which(hidden)


def taking_turns(record, seed: int) -> float:
    "Two tasks in turn: one head rests in each step."
    torch.manual_seed(seed)
    (x, y), (held, truth) = digits(seed)
    model = Tasks()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with record.on(model, optimizer=optimizer) as s:
        for i, (a, b) in enumerate(feed(x, y, 160)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(a, i % 2), b % 2 if i % 2 else b)
            loss.backward()
            optimizer.step()
            s.step(loss)
    with judged(model): return (model(held, 0).argmax(1) != truth).float().mean().item()


fine("parts that rest", "two tasks in turn", taking_turns, .2)


def bert(kind: str, steps: int = 60) -> Run:
    "A small BERT of Hugging Face with random weights, in train mode with its dropout."
    def run(record, seed: int) -> float:
        from transformers import BertConfig, BertForSequenceClassification, BertModel
        torch.manual_seed(seed)
        (x, y), (held, truth) = reviews(seed)
        config = BertConfig(vocab_size=words, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                            intermediate_size=64, max_position_embeddings=16, num_labels=3, pad_token_id=pad)
        if kind == "classifier": model = BertForSequenceClassification(config)
        else: model = nn.ModuleDict({"bert": BertModel(config, add_pooling_layer=True), "head": nn.Linear(32, 3)})
        model.train()

        def answer(tokens):
            real = (tokens != pad).long()
            if kind == "classifier": return model(input_ids=tokens, attention_mask=real).logits
            hidden = model["bert"](input_ids=tokens, attention_mask=real).last_hidden_state
            return model["head"]((hidden*real[..., None]).sum(1)/real.sum(1, keepdim=True))
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        with record.on(model, optimizer=optimizer) as s:
            for a, b in feed(x, y, steps):
                optimizer.zero_grad()
                loss = F.cross_entropy(answer(a), b)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                s.step(loss)
        with judged(model): return (answer(held).argmax(1) != truth).float().mean().item()
    return run


fine("parts that rest", "Hugging Face's BERT, a classifier", bert("classifier"), .25)
fine("parts that rest", "Hugging Face's BERT, the pooler is not used", bert("mean"), .2)


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


fine("shared", "tied embedding and head", gpt(net=Tied, steps=100), .3)
fine("shared", "one block four times", residual(net=Shared, steps=150), .4)
fine("shared", "gradient checkpointing", residual(net=Checkpointed), .35)
fine("shared", "GPT with dropout 0.1", gpt(net=lambda: Gpt(drop=.1), steps=80), .3)
fine("recurrent", "two layers, both directions, dropout", lstm(net=lambda: Recurrent(width=24, num_layers=2,
      dropout=.2),
                                                              steps=100), .35)


class Packed(Recurrent):
    "Sequences of different lengths."
    def forward(self, x):
        lengths = torch.randint(14, 21, (len(x),)) if self.training else torch.full((len(x),), 20)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])


fine("recurrent", "packed sequences", lstm(net=Packed, steps=100), .35)


def truncated(record, seed: int) -> float:
    "Truncated backpropagation through time: the state goes on, detached, over the batches."
    torch.manual_seed(seed)
    (x, _), (held, _) = text(seed)
    stream = torch.cat([x[:960].reshape(32, -1)], 1)
    tokens, rnn_, head = nn.Embedding(words, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, words)
    model = nn.ModuleDict({"tokens": tokens, "rnn": rnn_, "head": head})
    optimizer, state = torch.optim.Adam(model.parameters(), 1e-2), None
    with record.on(model, optimizer=optimizer) as s:
        for step in range(100):
            start = (step*12) % (stream.shape[1] - 13)
            given, following = stream[:, start:start + 12], stream[:, start + 1:start + 13]
            optimizer.zero_grad()
            out, state = rnn_(tokens(given), state)
            state = state.detach()
            loss = tokens_loss(head(out), following)
            loss.backward()
            optimizer.step()
            s.step(loss)
    with torch.no_grad(): out = head(rnn_(tokens(held[:, :-1]))[0])
    return tokens_loss(out, held[:, 1:]).item()/math.log(words)


fine("recurrent", "truncated backpropagation through time", truncated, .4)


# Two models, and losses without labels

def pairs(x, noise: float = .3): return x + noise*torch.randn_like(x), x + noise*torch.randn_like(x)


def mistaken(body, x, y) -> float:
    "How often the nearest neighbour of a sample is of another class."
    with judged(body): found = F.normalize(body(x), dim=1)
    return (y[torch.cdist(found, found).fill_diagonal_(torch.inf).argmin(1)] != y).float().mean().item()


def alone(kind: str, steps: int = 100) -> Run:
    "What tells pictures apart without labels, from two noisy copies of each."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), held = digits(seed)
        body, guess = stack(64, 64, 32, norm=nn.BatchNorm1d), stack(32, 16, 32, norm=nn.BatchNorm1d)
        model = nn.ModuleDict({"body": body, "guess": guess})
        if kind == "BYOL": model["target"] = copy.deepcopy(body).requires_grad_(False)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)
        with record.on(model, optimizer=optimizer) as s:
            for a, _ in feed(x, y, steps, 64):
                one, two = pairs(a)
                optimizer.zero_grad()
                if kind == "contrast":
                    p, q = F.normalize(guess(body(one)), dim=1), F.normalize(guess(body(two)), dim=1)
                    loss = F.cross_entropy(p@q.t()/.2, torch.arange(len(a)))
                else:
                    p, q = guess(body(one)), guess(body(two))
                    if kind == "BYOL":
                        with torch.no_grad(): goals = model["target"](two), model["target"](one)
                    else: goals = body(two).detach(), body(one).detach()
                    loss = -sum(F.cosine_similarity(a, b).mean() for a, b in zip((p, q), goals))/2
                loss.backward()
                optimizer.step()
                if kind == "BYOL":
                    with torch.no_grad():
                        for old, new in zip(model["target"].parameters(), body.parameters()): old.lerp_(new, .05)
                s.step(loss)
        return mistaken(body, *held)
    return run


fine("without labels", "BYOL, a target that follows slowly", alone("BYOL"), .2)
fine("without labels", "SimSiam", alone("SimSiam"), .2)
fine("without labels", "contrast between the samples of a batch", alone("contrast"), .2)


def triplets(record, seed: int) -> float:
    "Most triplets have a loss of zero at the end."
    torch.manual_seed(seed)
    (x, y), held = digits(seed)
    body, which = stack(64, 48, 8), [(y == c).nonzero()[:, 0] for c in range(10)]
    optimizer = torch.optim.Adam(body.parameters(), 5e-3)
    with record.on(body, optimizer=optimizer) as s:
        for _ in range(120):
            a = torch.randint(0, len(x), (32,))
            same = torch.stack([which[c][torch.randint(0, len(which[c]), ())] for c in y[a].tolist()])
            other = torch.randint(0, len(x), (32,))
            other = torch.where(y[other] == y[a], (other + 1) % len(x), other)
            optimizer.zero_grad()
            loss = F.triplet_margin_loss(body(x[a]), body(x[same]), body(x[other]), margin=.5)
            loss.backward()
            optimizer.step()
            s.step(loss)
    return mistaken(body, *held)


fine("without labels", "triplets, a small margin", triplets, .2)


def variational(record, seed: int) -> float:
    torch.manual_seed(seed)
    (x, y), (held, _) = digits(seed)
    model = nn.ModuleDict({"encode": stack(64, 48, 16), "decode": stack(8, 48, 64)})
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with record.on(model, optimizer=optimizer) as s:
        for a, _ in feed(x, y, 150):
            optimizer.zero_grad()
            mean, spread = model["encode"](a).chunk(2, 1)
            code = mean + (spread/2).exp()*torch.randn_like(mean)
            loss = (model["decode"](code) - a).square().sum(1).mean()
            loss = loss + .2*(mean**2 + spread.exp() - spread - 1).sum(1).mean()
            loss.backward()
            optimizer.step()
            s.step(loss)
    with torch.no_grad(): made = model["decode"](model["encode"](held)[:, :8])
    return ((made - held).square().mean()/held.var()).item()


fine("without labels", "variational autoencoder", variational, .6)


def gan(watched: str, steps: int = 400) -> Run:
    "Two models learn from each other; the score is how far the made points are from the middle of the real ones."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        maker, critic = stack(4, 32, 32, 2), stack(2, 32, 32, 1, act=lambda: nn.LeakyReLU(.2))
        make, judge = (torch.optim.Adam(m.parameters(), 2e-3, betas=(.5, .9)) for m in (maker, critic))
        bce = F.binary_cross_entropy_with_logits
        model, optimizers = {"both": (nn.ModuleDict({"maker": maker, "critic": critic}), [make, judge]),
                             "maker": (maker, make), "critic": (critic, judge)}[watched]
        with record.on(model, optimizer=optimizers) as s:
            for _ in range(steps):
                real = torch.randn(64, 2)@torch.tensor([[.5, .2], [0., .4]]) + 2
                made = maker(torch.randn(64, 4))
                judge.zero_grad()
                yes, no = critic(real), critic(made.detach())
                lost = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
                lost.backward()
                judge.step()
                make.zero_grad()
                told = critic(made)
                fooled = bce(told, torch.ones_like(told))
                fooled.backward()
                make.step()
                s.step(lost if watched == "critic" else fooled)
        with torch.no_grad(): made = maker(torch.randn(500, 4))
        return (made.mean(0) - 2).norm().item()
    return run


fine("two models", "GAN, both watched", gan("both"), 1.2)
fine("two models", "GAN, the maker watched", gan("maker"), 1.2)
fine("two models", "GAN, the critic watched", gan("critic"), 1.2)


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


def reversed_gradient(record, seed: int) -> float:
    torch.manual_seed(seed)
    (x, y), (held, truth) = digits(seed)
    model = Domains()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in feed(x, y, 120):
            place = torch.randint(0, 2, (len(a),))
            optimizer.zero_grad()
            out, domain = model(a + .3*place[:, None])
            loss = F.cross_entropy(out, b) + F.cross_entropy(domain, place)
            loss.backward()
            optimizer.step()
            s.step(loss)
    with judged(model): return (model(held)[0].argmax(1) != truth).float().mean().item()


fine("two models", "a gradient that is reversed on purpose", reversed_gradient, .2)


def adversarial(record, model, optimizer, loss_of, batches):
    "Each batch is made harder by the gradient of its inputs."
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            x = x.clone().requires_grad_(True)
            grad, = torch.autograd.grad(loss_of(model(x), y), x)
            optimizer.zero_grad()
            loss = loss_of(model((x + .1*grad.sign()).detach()), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


fine("loop", "adversarial training", mlp_adam(loop=adversarial), .2)


def averaged(record, seed: int) -> float:
    "The mean of the weights, which is what is used in the end."
    torch.manual_seed(seed)
    (x, y), held = digits(seed)
    model = stack(64, 64, 32, 10)
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(.95))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in feed(x, y, 150):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            mean.update_parameters(model)
            s.step(loss)
    return error(mean, *held)


fine("loop", "a mean of the weights beside", averaged, .2)


# Rewards

def bandit(baseline: bool) -> Run:
    "Policy gradient: which digit is it? A reward of 1 for the right answer. The loss says nothing about progress."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), held = digits(seed)
        model = stack(64, 64, 10)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        mean = 0.
        with record.on(model, optimizer=optimizer) as s:
            for a, b in feed(x, y, 260, 128):
                policy = torch.distributions.Categorical(logits=model(a))
                action = policy.sample()
                reward = (action == b).float()
                optimizer.zero_grad()
                loss = -(policy.log_prob(action)*(reward - mean*baseline)).mean() - .01*policy.entropy().mean()
                loss.backward()
                optimizer.step()
                mean = .9*mean + .1*reward.mean().item()
                s.step(loss)
        return error(model, *held)
    return run


fine("rewards", "policy gradient", bandit(False), .5)
fine("rewards", "policy gradient with a baseline", bandit(True), .5)


def q_learning(record, seed: int) -> float:
    "A walk on 12 places, with a target network in the same module that is copied every 20 steps."
    torch.manual_seed(seed)
    model = nn.ModuleDict({"online": stack(12, 32, 2)})
    model["target"] = copy.deepcopy(model["online"]).requires_grad_(False)
    optimizer = torch.optim.Adam(model["online"].parameters(), 1e-2)
    with record.on(model, optimizer=optimizer) as s:
        for i in range(200):
            if i % 20 == 0: model["target"].load_state_dict(model["online"].state_dict())
            place, action = torch.randint(0, 11, (64,)), torch.randint(0, 2, (64,))
            after = (place + 2*action - 1).clamp(min=0)
            reward, ends = (after == 11).float(), (after == 11).float()
            with torch.no_grad():
                goal = reward + .9*(1 - ends)*model["target"](F.one_hot(after, 12).float()).max(1).values
            value = model["online"](F.one_hot(place, 12).float()).gather(1, action[:, None])[:, 0]
            optimizer.zero_grad()
            loss = F.smooth_l1_loss(value, goal)
            loss.backward()
            optimizer.step()
            s.step(loss)
    with torch.no_grad(): best = model["online"](torch.eye(12)).argmax(1)[:11]
    return (best != 1).float().mean().item()


fine("rewards", "Q-learning with a target network", q_learning, .3)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = stack(64, 64, 32), nn.Linear(32, 10), nn.Linear(32, 1)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.policy(hidden), self.value(hidden)[:, 0]


def actor_critic(record, seed: int) -> float:
    torch.manual_seed(seed)
    (x, y), (held, truth) = digits(seed)
    model = Actor()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in feed(x, y, 200, 128):
            scores, value = model(a)
            policy = torch.distributions.Categorical(logits=scores)
            action = policy.sample()
            gain = (action == b).float() - value
            optimizer.zero_grad()
            loss = -(policy.log_prob(action)*gain.detach()).mean() + .5*gain.square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), .5)
            optimizer.step()
            s.step(loss)
    with judged(model): return (model(held)[0].argmax(1) != truth).float().mean().item()


fine("rewards", "actor and critic", actor_critic, .4)


def word_pairs(record, seed: int) -> float:
    "Word vectors with negative samples; words that never occur are never updated."
    torch.manual_seed(seed)
    (x, y), _ = text(seed)
    model = nn.ModuleDict({"center": nn.Embedding(4*words, 16), "context": nn.Embedding(4*words, 16)})
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in feed(x, y, 150):
            center, context, other = a.flatten(), b.flatten(), torch.randint(1, words, (a.numel(), 4))
            optimizer.zero_grad()
            v = model["center"](center)
            near = (v*model["context"](context)).sum(1)
            far = (v[:, None]*model["context"](other)).sum(2)
            loss = -F.logsigmoid(near).mean() - F.logsigmoid(-far).sum(1).mean()
            loss.backward()
            optimizer.step()
            s.step(loss)
    with torch.no_grad():
        near = (model["center"](x[:, :1])*model["context"](y[:, :1])).sum(2)
        return (near < 0).float().mean().item()


fine("without labels", "word vectors, three quarters of the words never occur", word_pairs, .35)
fine("without labels", "recommender with rare users", recommender(data=lambda seed: (lambda train, held: (
    tuple(t[(train[0][:, 0] < 50) | (train[0][:, 1] < 5)] for t in train),
    tuple(t[held[0][:, 0] < 50] for t in held)))(*ratings(seed)), steps=180), .2)


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

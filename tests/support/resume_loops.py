"Training loops in the styles of people, each with all that has to be saved: to be resumed with one part left out."
import collections
import copy
import itertools
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

RANDOM = {
    "torch": (lambda run: torch.get_rng_state(), lambda run, s: torch.set_rng_state(s), "random state of torch"),
    "python": (lambda run: random.getstate(), lambda run, s: random.setstate(s), "random state of Python"),
    "numpy": (lambda run: np.random.get_state(), lambda run, s: np.random.set_state(s), "random state of numpy")}


def part(name: str, path: str | None = None) -> tuple:
    "How to save and load an attribute (or an entry of a dict) with a state dict, or a plain one."
    def held(run): return run[name] if isinstance(run, dict) else getattr(run, name)
    def get(run): return held(run).state_dict() if hasattr(held(run), "state_dict") else copy.deepcopy(held(run))
    def put(run, saved):
        if hasattr(held(run), "load_state_dict"): held(run).load_state_dict(saved)
        elif isinstance(run, dict): run[name] = saved
        else: setattr(run, name, saved)
    return get, put, path or name


@dataclass
class Style:
    "A loop: its four functions, made from the parts of its checkpoint."
    make: Callable
    step: Callable
    parts: dict[str, tuple] # By name: how to get it, how to put it back, and a piece of the path that has to be named
    settings: dict[str, Any] = field(default_factory=dict)

    def save(self, run): return {name: get(run) for name, (get, _, _) in self.parts.items()}

    def load(self, left_out: str = ""):
        def load(run, saved):
            for name, (_, put, _) in self.parts.items():
                if name != left_out: put(run, saved[name])
        return load


STYLES: dict[str, Style] = {}


def style(parts, **settings):
    "Enter a class whose `step` trains one step."
    def enter(kind):
        STYLES[kind.__name__] = Style(kind, kind.step, parts, settings)
        return kind
    return enter


def data(n=48, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator)


def network(): return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(.2), nn.Linear(12, 3))


def train(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@style({"model": part("model"), "optimizer": part("optimizer"), "scheduler": part("scheduler"), "epoch": part("epoch"),
        "at": part("at"), "order": part("order"), "torch": RANDOM["torch"]})
class Epochs:
    "A shuffled order, drawn at the beginning of each epoch."
    def __init__(self):
        torch.manual_seed(1)
        self.x, self.y = data()
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.1, momentum=.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, .5)
        self.epoch, self.at, self.order = 0, 0, None
        self.last_loss = None # only shown

    def step(self):
        if self.order is None: self.order = torch.randperm(48)
        rows = self.order[self.at:self.at + 16]
        self.last_loss = train(self.model, self.optimizer, self.x[rows], self.y[rows])
        self.at += 16
        if self.at == 48:
            self.at, self.order, self.epoch = 0, None, self.epoch + 1
            self.scheduler.step()
        return self.last_loss.item()


def closure_run():
    "All in variables of a function; the run is a bundle of functions."
    torch.manual_seed(2)
    x, y = data()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=.01)
    n_steps, noise = 0, random.Random(5)
    def step():
        nonlocal n_steps
        n_steps += 1
        rows = torch.tensor(noise.sample(range(48), 12))
        for group in optimizer.param_groups: group["lr"] = .01*.9**n_steps
        return train(model, optimizer, x[rows], y[rows])
    def state(): return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "n": n_steps,
                         "noise": noise.getstate()}
    def put(name, saved):
        nonlocal n_steps
        if name == "model": model.load_state_dict(saved)
        elif name == "optimizer": optimizer.load_state_dict(saved)
        elif name == "n": n_steps = saved
        else: noise.setstate(saved)
    return types.SimpleNamespace(step=step, state=state, put=put)


def of_closure(name, path): return (lambda run: run.state()[name], lambda run, saved: run.put(name, saved), path)


STYLES["closures"] = Style(closure_run, lambda run: run.step(), {
    "model": of_closure("model", "model"), "optimizer": of_closure("optimizer", "optimizer"),
    "n": of_closure("n", "n_steps"), "noise": of_closure("noise", "noise"), "torch": RANDOM["torch"]})


def dict_run():
    torch.manual_seed(3)
    x, y = data()
    model, generator = network(), torch.Generator().manual_seed(8)
    loader = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True, generator=generator)
    return {"model": model, "optimizer": torch.optim.RMSprop(model.parameters(), lr=.01), "loader": loader,
            "batches": None, "epoch start": None, "given": 0, "best": float("inf")}


def dict_step(run):
    if run["batches"] is None:
        run["epoch start"] = run["loader"].generator.get_state()
        run["batches"], run["given"] = iter(run["loader"]), 0
    x, y = next(run["batches"])
    run["given"] += 1
    if run["given"] == len(run["loader"]): run["batches"] = None
    loss = train(run["model"], run["optimizer"], x, y)
    run["best"] = min(run["best"], loss.item())
    return loss


def position(run): return run["epoch start"], run["given"], run["batches"] is not None


def to_position(run, saved):
    start, given, inside = saved
    run["loader"].generator.set_state(start)
    run["epoch start"], run["given"] = start, given
    if inside:
        random_state = torch.get_rng_state()
        run["batches"] = iter(run["loader"])
        torch.set_rng_state(random_state)
        for _ in range(given): next(run["batches"])
    else:
        for _ in iter(run["loader"]): pass


STYLES["dict"] = Style(dict_run, dict_step, {
    "model": part("model", "'model'"), "optimizer": part("optimizer", "'optimizer'"), "best": part("best", "best"),
    "position": (position, to_position, ("generator", "batches", "epoch start", "given")), "torch": RANDOM["torch"]})


STEP, MODEL, OPTIMIZER, SCALE = 0, None, None, {"value": 1.}


def global_make():
    global STEP, MODEL, OPTIMIZER
    torch.manual_seed(4)
    STEP, MODEL = 0, network()
    OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=.05, momentum=.5)


def global_step(_):
    global STEP
    STEP += 1
    SCALE["value"] *= .97
    x, y = data(24, seed=STEP)
    return train(MODEL, OPTIMIZER, SCALE["value"]*x, y)


def put_step(run, saved):
    global STEP
    STEP = saved


STYLES["globals"] = Style(global_make, global_step, {
    "model": (lambda run: MODEL.state_dict(), lambda run, s: MODEL.load_state_dict(s), "MODEL"),
    "optimizer": (lambda run: OPTIMIZER.state_dict(), lambda run, s: OPTIMIZER.load_state_dict(s), "OPTIMIZER"),
    "step": (lambda run: STEP, put_step, "STEP"), "torch": RANDOM["torch"],
    "scale": (lambda run: dict(SCALE), lambda run, s: SCALE.update(s), "SCALE")})


@style({"g": part("g"), "d": part("d"), "g_opt": part("g_opt"), "d_opt": part("d_opt"), "ema": part("ema"),
        "torch": RANDOM["torch"]})
class Gan:
    "Two models, two optimizers, and an average of one of them."
    def __init__(self):
        torch.manual_seed(5)
        self.g, self.d = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
        self.g_opt = torch.optim.Adam(self.g.parameters(), 1e-2, betas=(.5, .99))
        self.d_opt = torch.optim.Adam(self.d.parameters(), 1e-2, betas=(.5, .99))
        self.ema = torch.optim.swa_utils.AveragedModel(self.g, avg_fn=lambda old, new, _: .9*old + .1*new)
        self.real = data()[0]

    def step(self):
        fake = self.g(torch.randn(16, 4))
        d_loss = F.softplus(-self.d(self.real[:16])).mean() + F.softplus(self.d(fake.detach())).mean()
        self.d_opt.zero_grad()
        d_loss.backward()
        self.d_opt.step()
        g_loss = F.softplus(-self.d(fake)).mean()
        self.g_opt.zero_grad()
        g_loss.backward()
        self.g_opt.step()
        self.ema.update_parameters(self.g)
        return {"d": d_loss.item(), "g": g_loss.item()}


class Stopper:
    "Early stopping, with slots."
    __slots__ = "bad", "best", "best_weights"
    def __init__(self): self.best, self.bad, self.best_weights = float("inf"), 0, None
    def see(self, loss, model):
        if loss < self.best - .05:
            self.best, self.bad, self.best_weights = loss, 0, copy.deepcopy(model.state_dict())
        else: self.bad += 1

    def state(self): return self.best, self.bad, self.best_weights
    def put(self, saved): self.best, self.bad, self.best_weights = saved


@style({"model": part("model"), "optimizer": part("optimizer"), "plateau": part("plateau"), "torch": RANDOM["torch"],
        "stopper": (lambda run: run.stopper.state(), lambda run, s: run.stopper.put(s), "stopper"),
        "shadow": part("shadow"), "numpy": RANDOM["numpy"]})
class Careful:
    "A plateau schedule, early stopping, an average by hand, noise of numpy."
    def __init__(self):
        torch.manual_seed(6)
        self.model = network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=.02)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=1, factor=.5)
        self.stopper, self.x, self.y = Stopper(), *data()
        self.shadow = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def step(self):
        noise = torch.from_numpy(np.random.randn(48, 6)).float()
        loss = train(self.model, self.optimizer, self.x + noise, self.y)
        for name, p in self.model.named_parameters(): self.shadow[name].lerp_(p.detach(), .1)
        self.plateau.step(loss.item())
        self.stopper.see(loss.item(), self.model)
        return loss


@style({"q": part("q"), "target": part("target"), "optimizer": part("optimizer"), "buffer": part("buffer"),
        "steps": part("steps"), "python": RANDOM["python"], "place": part("place")})
class Replay:
    "Learning from a buffer of what was seen, with a target network that follows from time to time."
    def __init__(self):
        torch.manual_seed(7)
        self.q, self.target = nn.Linear(3, 2), nn.Linear(3, 2)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.SGD(self.q.parameters(), lr=.05, momentum=.5)
        self.buffer, self.steps, self.place = collections.deque(maxlen=40), 0, [.1, .2, .3]

    def step(self):
        eps = max(.05, .9*.8**self.steps)
        self.steps += 1
        values = self.q(torch.tensor(self.place))
        action = random.randrange(2) if random.random() < eps else int(values.argmax())
        after = [.9*v + (.1 if action else -.1) for v in self.place]
        self.buffer.append((tuple(self.place), action, sum(after), tuple(after)))
        self.place = after
        batch = random.choices(list(self.buffer), k=8)
        states, actions = torch.tensor([b[0] for b in batch]), torch.tensor([b[1] for b in batch])
        with torch.no_grad(): wanted = torch.tensor([b[2] for b in batch]) + .9*self.target(
            torch.tensor([b[3] for b in batch])).amax(1)
        loss = F.mse_loss(self.q(states).gather(1, actions[:, None])[:, 0], wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.steps % 4 == 0: self.target.load_state_dict(self.q.state_dict())
        return loss


class Grows(nn.Module):
    "A buffer that is not in the state dict, a counter, a generator of its own."
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("scale", torch.ones(6), persistent=False)
        self.seen, self.cache = 0, None
        self.generator = torch.Generator().manual_seed(11)

    def forward(self, x):
        self.seen += 1
        self.scale = .9*self.scale + .1*x.abs().mean(0)
        self.cache = torch.arange(len(x)) # as long as the batch
        noise = torch.randn(x.shape, generator=self.generator)
        return self.head(F.relu(self.body(x/self.scale + .1*noise)))*(1 + .01*self.seen)


def attribute(*names):
    def held(run):
        for name in names[:-1]: run = getattr(run, name)
        return run
    def put(run, saved): setattr(held(run), names[-1], saved)
    return lambda run: copy.deepcopy(getattr(held(run), names[-1])), put, names[-1]


@style({"model": part("model"), "optimizer": part("optimizer"), "scale": attribute("model", "scale"),
        "seen": attribute("model", "seen"), "phase": (
            lambda run: run.model.body.weight.requires_grad, lambda run, s: run.model.body.requires_grad_(s), "body"),
        "generator": (lambda run: run.model.generator.get_state(), lambda run, s: run.model.generator.set_state(s),
                      "generator"), "steps": part("steps"), "torch": RANDOM["torch"]})
class Unfreezing:
    "The body is frozen for three steps; sums of gradients over two batches; difficulty that grows."
    def __init__(self):
        torch.manual_seed(8)
        self.model = Grows()
        self.model.body.requires_grad_(False)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=.1)
        self.steps, self.x, self.y = 0, *data()

    def step(self):
        self.steps += 1
        if self.steps == 3: self.model.body.requires_grad_(True)
        rows = torch.randint(min(48, 8*self.steps), (12,))
        return train(self.model, self.optimizer, self.x[rows], self.y[rows])


@style({"model": part("model"), "optimizer": part("optimizer"), "scaler": part("scaler"), "micro": part("micro"),
        "gradients": (lambda run: [p.grad for p in run.model.parameters()],
                      lambda run, s: [setattr(p, "grad", g) for p, g in zip(run.model.parameters(), s)], "model"),
        "torch": RANDOM["torch"]}, warm=5)
class Accumulates:
    "Gradients of two batches, saved between them, under a scaler."
    def __init__(self):
        torch.manual_seed(9)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(.1), nn.Linear(12, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.1, nesterov=True, momentum=.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64., growth_interval=2)
        self.micro, self.x, self.y = 0, *data()

    def step(self):
        rows = torch.randint(48, (8,))
        loss = F.cross_entropy(self.model(self.x[rows]), self.y[rows])/2
        self.scaler.scale(loss).backward()
        self.micro += 1
        if self.micro % 2 == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return loss


def batches_of(x, y, generator):
    while True:
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(10): yield x[rows], y[rows]


class Batches:
    "An iterator that is a class, over a generator function's batches, which counts."
    def __init__(self):
        self.generator = torch.Generator().manual_seed(4)
        self.inner, self.n = batches_of(*data(), self.generator), 0

    def __next__(self):
        self.n += 1
        return next(self.inner)

    def state(self): return self.n
    def put(self, n):
        Batches.__init__(self)
        for _ in range(n): next(self)


@style({"model": part("model"), "optimizer": part("optimizer"), "torch": RANDOM["torch"], "batches": (
    lambda run: run.batches.state(), lambda run, s: run.batches.put(s), "batches"),
    "count": (lambda run: copy.copy(run.count), lambda run, s: setattr(run, "count", s), "count")})
class Streams:
    "Batches from a generator function, and steps from `itertools.count`."
    def __init__(self):
        torch.manual_seed(10)
        self.model, self.batches, self.count = network(), Batches(), itertools.count(1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=.01, amsgrad=True)

    def step(self):
        self.optimizer.param_groups[0]["lr"] = .01/next(self.count)
        return train(self.model, self.optimizer, *next(self.batches))


class Sampler(RandomSampler):
    "A sampler whose order is of its epoch."
    def __init__(self, source): self.source, self.epoch = source, 0
    def __len__(self): return len(self.source)
    def __iter__(self):
        generator = torch.Generator().manual_seed(100 + self.epoch)
        yield from torch.randperm(len(self.source), generator=generator).tolist()


@style({"model": part("model"), "optimizer": part("optimizer"), "schedules": part("schedules"),
        "torch": RANDOM["torch"],
        "bias": (lambda run: run.bias.detach().clone(), lambda run, s: run.bias.data.copy_(s), "bias"),
        "epoch": (lambda run: run.sampler.epoch, lambda run, s: setattr(run.sampler, "epoch", s), "epoch"),
        "skip": part("skip"), "ema_loss": part("ema_loss"), "lbfgs": part("lbfgs", "lbfgs")})
class SampledEpochs:
    "A sampler with an epoch; batches are skipped after a resume; a chain of schedules; an average of the loss."
    def __init__(self):
        torch.manual_seed(11)
        self.model, self.set = network(), TensorDataset(*data())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.1)
        self.bias = nn.Parameter(torch.zeros(3))
        self.lbfgs = torch.optim.LBFGS([self.bias], lr=.1, max_iter=2)
        warmup = torch.optim.lr_scheduler.LinearLR(self.optimizer, .1, total_iters=3)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)
        self.schedules = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warmup, cosine], [3])
        self.sampler = Sampler(self.set)
        self.loader = DataLoader(self.set, 12, sampler=self.sampler)
        self.it, self.skip, self.ema_loss = None, 0, None

    def step(self):
        if self.it is None:
            before = torch.get_rng_state()
            self.it = iter(self.loader) # draws a number for its workers
            torch.set_rng_state(before)
            for _ in range(self.skip): next(self.it)
        x, y = next(self.it)
        self.skip += 1
        loss = train(self.model, self.optimizer, x, y)
        def close():
            self.lbfgs.zero_grad()
            loss = F.cross_entropy(self.model(x).detach() + self.bias, y)
            loss.backward()
            return loss
        self.lbfgs.step(close)
        self.ema_loss = loss.item() if self.ema_loss is None else .9*self.ema_loss + .1*loss.item()
        self.schedules.step()
        if self.skip == len(self.loader):
            self.it, self.skip, self.sampler.epoch = None, 0, self.sampler.epoch + 1
        return loss

"""How the training runs of the bench are trained: a loop with what users leave out of it or put at the wrong place,
loops of other kinds, and the few runs that no loop of another fits.

A run is a function of (record, seed). It builds all from the seed, trains inside `record.on(…)` as a user's loop does,
and returns how good the training was: an error on data that was held back, lower is better, about 1 for a guess where
nothing else is said. `go` is that function, `way` gives a way to train of which single parts can be exchanged."""
import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.bench import diagnose_nets as nets
from tests.bench.diagnose_nets import stack

Run = Callable[[object, int], float]


class Nothing:
    "Stands in for a record, to see how a run goes without one."
    @contextlib.contextmanager
    def on(self, model, optimizer=None, scaler=None, auto=False): yield self

    def step(self, loss=None): pass


# What a loop is fed with

def draws(data, steps: int, size: int) -> Iterator[tuple]:
    "Random batches."
    for _ in range(steps):
        some = torch.randint(0, len(data[0]), (size,))
        yield tuple(t[some] for t in data)


def batches(data, steps: int, size: int) -> Iterator[tuple]:
    "Shuffled epochs, as a DataLoader gives them."
    order, at = torch.randperm(len(data[0])), 0
    for _ in range(steps):
        if at + size > len(order): order, at = torch.randperm(len(order)), 0
        some, at = order[at:at + size], at + size
        yield tuple(t[some] for t in data)


def whole(data, steps: int, size: int) -> Iterator[tuple]:
    for _ in range(steps): yield data


def pairs(data, steps: int, size: int) -> Iterator[tuple]:
    "Two samples, and whether they are of one class."
    x, y = data
    for _ in range(steps):
        a, b = torch.randint(0, len(x), (2, size))
        yield x[a], x[b], (y[a] == y[b]).float()


def triplets(data, steps: int, size: int) -> Iterator[tuple]:
    "A sample, one of its class, and one of another."
    x, y = data
    which = [(y == c).nonzero()[:, 0] for c in range(10)]
    for _ in range(steps):
        a = torch.randint(0, len(x), (size,))
        same = torch.stack([which[c][torch.randint(0, len(which[c]), ())] for c in y[a].tolist()])
        other = torch.randint(0, len(x), (size,))
        yield x[a], x[same], x[torch.where(y[other] == y[a], (other + 1) % len(x), other)]


def stream(data, steps: int, size: int) -> Iterator[tuple]:
    "Texts that go on from batch to batch, and what follows each token."
    flow = data[0][:960].reshape(size, -1)
    for step in range(steps):
        start = (step*12) % (flow.shape[1] - 13)
        yield flow[:, start:start + 12], flow[:, start + 1:start + 13]


def places(data, steps: int, size: int) -> Iterator[tuple]:
    "Where somebody stands, and where they go."
    for _ in range(steps): yield torch.randint(0, 11, (size,)), torch.randint(0, 2, (size,))


# Loops

def fit(record, model, optimizer, loss, feed, zero: str = "before", order: str = "right", every: int = 1, rest: int = 1,
        in_place: bool = False, cleared: tuple | None = None, clip: Callable | None = None,
        scheduler: Callable | None = None, epoch: int = 1, each: Callable | None = None, after: Callable | None = None,
        told: Callable = lambda loss: loss):
    """The loop of every tutorial, and its mistakes.

    Gradients are zeroed `zero` (before the forward, "late" behind it, "between" backward and step, "after" the step, or
    "never"), of the optimizers that are `cleared`, each `rest` batches. `order` can be "step first", "no step" and
    "no backward". `every` batches make a step, `epoch` batches a step of the scheduler. `each(model, i, optimizer,
    *batch)` is what happens before a batch, `after(model)` behind a step; `told(loss)` goes to the record."""
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    plan = scheduler(optimizer) if scheduler else None

    def clear():
        for i in cleared or range(len(optimizers)): optimizers[i].zero_grad(set_to_none=not in_place)

    def step():
        for one in optimizers: one.step()

    with record.on(model, optimizer=optimizer) as s:
        for i, batch in enumerate(feed):
            due = (i + 1) % every == 0
            if each: each(model, i, optimizer, *batch)
            if zero == "before" and i % (rest*every) == 0: clear()
            found = loss(model, *batch)
            if zero == "late": model.zero_grad()
            if order == "step first": step()
            if order != "no backward": (found/every if every > 1 else found).backward()
            if clip: clip(model.parameters())
            if zero == "between": clear()
            if due and order not in ("step first", "no step"): step()
            if due and zero == "after": clear()
            if after: after(model)
            if isinstance(plan, torch.optim.lr_scheduler.ReduceLROnPlateau): plan.step(found.item())
            elif plan and (i + 1) % epoch == 0: plan.step()
            s.step(told(found))


def scaled(record, model, optimizer, loss, feed, scale: dict | None = None, cast: torch.dtype | None = None,
           clip: Callable | None = None, unscale: bool = False):
    "In another number format, with a scaler that has the options `scale`."
    scaler = None if scale is None else torch.amp.GradScaler("cpu", **scale)
    def wide(*given): return model(*given).float()
    with record.on(model, optimizer=optimizer, scaler=scaler) as s:
        for batch in feed:
            optimizer.zero_grad()
            with torch.autocast("cpu", cast) if cast else contextlib.nullcontext():
                found = loss(wide if cast == torch.float16 else model, *batch)
            (scaler.scale(found) if scaler else found).backward()
            if unscale: scaler.unscale_(optimizer)
            if clip: clip(model.parameters())
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else: optimizer.step()
            s.step(found)


def accumulated(record, model, optimizer, loss, feed):
    "Three batches make one step, recorded once for each step of the optimizer."
    total = 0.
    with record.on(model, optimizer=optimizer) as s:
        for i, batch in enumerate(feed):
            found = loss(model, *batch)/3
            found.backward()
            total += found.item()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                s.step(total)
                total = 0.


def validated(record, model, optimizer, loss, feed):
    "A validation every ten batches, which switches modes and back."
    held = next(feed)
    with record.on(model, optimizer=optimizer) as s:
        for i, batch in enumerate(feed):
            model.train()
            optimizer.zero_grad()
            found = loss(model, *batch)
            found.backward()
            optimizer.step()
            s.step(found)
            if i % 10 == 9:
                model.eval()
                with torch.no_grad(): loss(model, *held)


def closures(record, model, optimizer, loss, feed):
    "LBFGS asks for the loss several times a step."
    with record.on(model, optimizer=optimizer) as s:
        for batch in feed:
            def ask(batch=batch):
                optimizer.zero_grad()
                found = loss(model, *batch)
                found.backward()
                return found
            s.step(optimizer.step(ask))


def sharpness_aware(record, model, optimizer, loss, feed):
    "Two passes a step, the second where the loss is larger."
    with record.on(model, optimizer=optimizer) as s:
        for batch in feed:
            optimizer.zero_grad()
            loss(model, *batch).backward()
            with torch.no_grad():
                grads = [p.grad.clone() for p in model.parameters()]
                length = torch.stack([g.norm() for g in grads]).norm()
                for p, g in zip(model.parameters(), grads): p.add_(.05*g/length)
            optimizer.zero_grad()
            found = loss(model, *batch)
            found.backward()
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads): p.sub_(.05*g/length)
            optimizer.step()
            s.step(found)


def adversarial(record, model, optimizer, loss, feed):
    "Each batch is made harder by the gradient of its inputs."
    with record.on(model, optimizer=optimizer) as s:
        for x, y in feed:
            x = x.clone().requires_grad_(True)
            grad, = torch.autograd.grad(loss(model, x, y), x)
            optimizer.zero_grad()
            found = loss(model, (x + .1*grad.sign()).detach(), y)
            found.backward()
            optimizer.step()
            s.step(found)


# Optimizers

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


# Runs put together from parts

def scored(model, score: Callable, held) -> float:
    model.eval()
    with torch.no_grad(): return score(model, *held)


def go(record, seed: int, data, net, loss, score, optim, start: int = 900, steps: int = 100, size: int = 32,
       taught: bool = False, change: Callable | None = None, prepare: Callable | None = None,
       hand: Callable | None = None, loop: Callable = fit, feed: Callable = batches, **options) -> float:
    """A run: `change(model)` is what somebody does to the model before the training, `hand(model)` what once there is
    an optimizer, and a net that is `taught` is made from the data; `options` are those of the loop."""
    torch.manual_seed(start + seed)
    given, held = data(seed)
    if prepare: given, held = prepare(*given), prepare(*held)
    model = net(*given) if taught else net()
    if change:
        with torch.no_grad(): change(model)
    optimizer = optim(model)
    if hand: hand(model)
    loop(record, model, optimizer, loss, feed(given, steps, size), **options)
    return scored(model, score, held)


def way(**usual) -> Callable[..., Run]:
    "A way to train, of which single parts can be exchanged: `way(…)(optim=sgd(30))` is a run."
    return lambda **other: partial(go, **{**usual, **other})


def by_output(loss: Callable) -> Callable:
    "The loss of (model, x, y), from one of (output, target)."
    return partial(output_loss, loss)


def output_loss(loss, model, x, y): return loss(model(x), y)


def recipe(data: Callable, net: Callable, optim: Callable, **usual) -> Callable[..., Run]:
    "A way to train as those of the first set: a classifier and random batches, unless something else is said."
    return way(**{"data": data, "net": net, "optim": optim, "start": 0, "feed": draws, "score": nets.error,
                  "loss": by_output(F.cross_entropy), **usual})


def learned(model: nn.Module, x, y, steps: int = 80) -> nn.Module:
    "What was trained before."
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(Nothing(), model, optimizer, by_output(F.cross_entropy), draws((x, y), steps, 32))
    return model


# Runs of their own

def averaged(record, seed: int) -> float:
    "The mean of the weights, which is what is used in the end."
    torch.manual_seed(seed)
    given, held = nets.digits(seed)
    model = stack(64, 64, 32, 10)
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(.95))
    fit(record, model, torch.optim.Adam(model.parameters(), 3e-3), by_output(F.cross_entropy), draws(given, 150, 32),
        after=mean.update_parameters)
    return scored(mean, nets.error, held)


def slow_copy(record, seed: int) -> float:
    "Diffusion, of which the mean of the weights is used."
    torch.manual_seed(900 + seed)
    given, held = nets.rings(seed)
    model = nets.Denoiser()
    mean = copy.deepcopy(model).requires_grad_(False)
    fit(record, model, torch.optim.Adam(model.parameters(), 5e-3), nets.diffusion, batches(given, 200, 64),
        after=partial(nets.follow, mean, by=.03))
    return scored(mean, nets.noise_left, held)


def circle() -> torch.Tensor:
    angle = 6.28*torch.rand(64)
    return torch.stack([2 + angle.cos(), 2 + angle.sin()], 1)


def off_circle(made) -> float:
    "How far the made points are from the circle, and from its middle."
    return ((made - 2).norm(dim=1) - 1).abs().mean().item() + (made.mean(0) - 2).norm().item()


def cloud() -> torch.Tensor: return torch.randn(64, 2)@torch.tensor([[.5, .2], [0., .4]]) + 2
def off_middle(made) -> float: return (made.mean(0) - 2).norm().item()


def gan(record, seed: int, points: Callable, score: Callable, lr: float, steps: int, watched: str = "both",
        told: str = "maker", fault: str = "") -> float:
    "Two models learn from each other to make points; the loss of the one that is `told` goes to the record."
    torch.manual_seed(seed)
    maker, critic = stack(4, 32, 32, 2), stack(2, 32, 32, 1, act=lambda: nn.LeakyReLU(.2))
    makes = critic if fault == "critic's parameters twice" else maker
    make, judge = (torch.optim.Adam(m.parameters(), lr, betas=(.5, .9)) for m in (makes, critic))
    bce = F.binary_cross_entropy_with_logits
    model, optimizers = {"both": (nn.ModuleDict({"maker": maker, "critic": critic}), [make, judge]),
                         "maker": (maker, make), "critic": (critic, judge)}[watched]
    with record.on(model, optimizer=optimizers) as s:
        for _ in range(steps):
            real = points()
            made = maker(torch.randn(64, 4))
            judge.zero_grad()
            yes, no = critic(real), critic(made.detach())
            lost = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
            lost.backward()
            judge.step()
            make.zero_grad()
            if fault == "detached": made = made.detach()
            answer = critic(made)
            fooled = bce(answer, torch.ones_like(answer))
            fooled.backward()
            make.step()
            s.step(lost if told == "critic" else fooled)
    with torch.no_grad(): return score(maker(torch.randn(500, 4)))


def dcgan(record, seed: int, lr: float = 2e-3, cut: bool = False, smooth: float = 1.) -> float:
    "Score: how far the mean picture is from the true one, as a share of what it is."
    torch.manual_seed(900 + seed)
    (x, y), _ = nets.pictures(seed, 8, 1, 2, 600, .3)
    x = (x/2.5).clamp(-1, 1)
    maker = nn.Sequential(nn.ConvTranspose2d(8, 32, 4), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32),
                           nn.LeakyReLU(.2), nn.Conv2d(32, 1, 2), nn.Flatten())
    both = nn.ModuleDict({"generator": maker, "discriminator": critic})
    makes, judges = [torch.optim.Adam(m.parameters(), lr, betas=(.5, .999)) for m in (maker, critic)]
    bce = F.binary_cross_entropy_with_logits
    with record.on(both, optimizer=[makes, judges]) as s:
        for (real, _) in batches((x, y), 120, 32):
            fake = maker(torch.randn(32, 8, 1, 1))
            judges.zero_grad()
            one = bce(critic(real), torch.full((32, 1), smooth)) + bce(critic(fake.detach()), torch.zeros(32, 1))
            one.backward()
            judges.step()
            makes.zero_grad()
            two = bce(critic(fake.detach() if cut else fake), torch.ones(32, 1))
            two.backward()
            makes.step()
            s.step(two)
    with torch.no_grad(): fake = maker(torch.randn(200, 8, 1, 1))
    return (((fake.mean(0) - x.mean(0))**2).mean()/(x.mean(0)**2).mean()).item()


def wasserstein(record, seed: int) -> float:
    "A critic with a penalty on its gradient, five steps for one of the maker; score: how far made points are."
    torch.manual_seed(900 + seed)
    given, _ = nets.rings(seed)
    maker, critic = stack(4, 48, 48, 2), stack(2, 48, 48, 1, act=nn.SiLU)
    model = nn.ModuleDict({"maker": maker, "critic": critic})
    make, judge = (torch.optim.Adam(m.parameters(), 3e-3, betas=(0., .9)) for m in (maker, critic))
    with record.on(model, optimizer=[make, judge]) as s:
        for i, (real,) in enumerate(batches(given, 750, 64)):
            fake = maker(torch.randn(64, 4)).detach()
            t = torch.rand(64, 1)
            middle = (t*real + (1 - t)*fake).requires_grad_(True)
            slope, = torch.autograd.grad(critic(middle).sum(), middle, create_graph=True)
            judge.zero_grad()
            loss = critic(fake).mean() - critic(real).mean() + ((slope.norm(dim=1) - 1)**2).mean()
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
    given, held = nets.grades(seed)
    model = nn.ModuleDict({"policy": stack(10, 48, 5), "value": stack(10, 32, 1)})
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with record.on(model, optimizer=optimizer) as s:
        for a, b in batches(given, 60, 128):
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
    return scored(model["policy"], nets.wrong, held)

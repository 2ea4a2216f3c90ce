"""Trainings with several losses for the bench of `compare_losses`: 40 with one planted fault each, and 20 healthy ones.

All of them were fixed before the first run with `compare_losses`. Each trains in less than two seconds on one core.
`Own` computes each loss's gradient with `torch.autograd.grad` alone; what a plant claims is checked with it:
    losses fight            in the named layer the median cosine of the two losses is below -0.3, four of five steps
                            that are measured have one below 0, and the weaker of the two has at least a fifth of the
                            stronger's norm
    loss outweighs          over the whole model the planted loss's gradient has at least 200 times the norm of all
                            others' together, in the median
    loss without gradient   no parameter gets a gradient from the planted loss, and some gets one from each other
A healthy training has the weights that published practice has, and the losses that it names fall."""
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import combinations
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.bench import diagnose_nets as nets
from tests.bench.diagnose_nets import stack

EVERY, STEPS = 10, 100
FIGHT, OUTWEIGHS, DEAD = "losses fight", "loss outweighs", "loss without gradient"
Losses = dict[str, Tensor]


@dataclass
class Job:
    "What a training needs."
    model: nn.Module
    losses: Callable[[int], Losses] # Those of a step, with their weights
    lr: float = 2e-3
    before: Callable[[int], None] | None = None # What comes before the step, such as that of a discriminator


@dataclass(frozen=True)
class Case:
    "A training, and what is planted in it."
    kind: str # "" where it is healthy
    family: str
    name: str
    make: Callable[[], Job]
    losses: tuple[str, ...] = () # Those with the fault
    layer: str = "" # Where two losses fight
    falls: tuple[str, ...] = () # Losses of a healthy training that have to fall
    steps: int = STEPS

    def train(self, watch: Callable | None = None, see: Callable | None = None,
              after: Callable | None = None) -> nn.Module:
        """Trains a new model and returns it. `watch(model)` is a context with what sums the losses; `see(model, step,
        losses)` is called before the backward pass, and `after(model, step, loss)` behind it."""
        torch.manual_seed(0)
        job = self.make()
        optimizer = torch.optim.Adam((p for p in job.model.parameters() if p.requires_grad), job.lr)
        with (watch or summed)(job.model) as parts:
            for step in range(self.steps):
                if job.before: job.before(step)
                losses = job.losses(step)
                if see: see(job.model, step, losses)
                loss = parts(**losses)
                optimizer.zero_grad()
                loss.backward()
                if after: after(job.model, step, loss)
                optimizer.step()
        return job.model


@contextmanager
def summed(model: nn.Module):
    "What stands in for `compare_losses`: a plain sum."
    yield plain_sum


def plain_sum(**losses: Tensor) -> Tensor: return reduce(operator.add, losses.values())


# The gradients of the losses, computed here

def layers_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    "The parameters that are trained, by the layer that has them; a shared one is in the first."
    seen: set[int] = set()
    found = {}
    for name, layer in model.named_modules():
        own = [p for p in layer.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(map(id, own))
        if own: found[name] = own
    return found


def gradients(loss: Tensor, params: list[Tensor]) -> list[Tensor]:
    "Zeros for parameters that it does not reach."
    if not loss.requires_grad: return [torch.zeros_like(p) for p in params]
    found = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(params, found)]


class Own:
    "The norms and cosines of the losses' gradients in some steps, in double precision."
    def __init__(self, steps: Iterable[int] = range(0, 10**6, EVERY)):
        self.steps, self.values = steps, {} # The losses of all steps
        self.norms: dict[tuple[int, str, str], float] = {} # By step, layer and loss
        self.whole: dict[tuple[int, str], float] = {} # By step and loss, over all parameters
        self.cosines: dict[tuple[int, str, str, str], float] = {} # By step, layer and pair, where both reach the layer
        self.sums: dict[int, list[Tensor]] = {} # By step: the gradients of all losses, added

    def __call__(self, model: nn.Module, step: int, losses: Losses):
        for name, loss in losses.items(): self.values.setdefault(name, []).append(loss.item())
        if step not in self.steps: return
        layers = layers_of(model)
        params = [p for of in layers.values() for p in of]
        found = {name: gradients(loss, params) for name, loss in losses.items()}
        self.sums[step] = [reduce(operator.add, of) for of in zip(*found.values())]
        for name, of in found.items(): self.whole[step, name] = flat(of).norm().item()
        start = 0
        for layer, of in layers.items():
            here = {name: flat(grads[start:start + len(of)]) for name, grads in found.items()}
            start += len(of)
            for name, grad in here.items(): self.norms[step, layer, name] = grad.norm().item()
            for a, b in combinations(here, 2):
                both = here[a].norm()*here[b].norm()
                if both > 0: self.cosines[step, layer, a, b] = (here[a]@here[b]/both).item()

    def names(self) -> list[str]: return [*self.values]
    def measured(self) -> list[int]: return [*self.sums]
    def layers(self) -> list[str]: return [*dict.fromkeys(layer for _, layer, _ in self.norms)]

    def cosines_of(self, layer: str, pair: Iterable[str]) -> list[float]:
        "Those of all measured steps."
        pair = set(pair)
        return [cosine for (_, of, a, b), cosine in self.cosines.items() if of == layer and {a, b} == pair]

    def balance(self, layer: str, pair: Iterable[str]) -> float:
        "The norm of the weaker of two losses in a layer, as a fraction of the stronger's, in the median."
        a, b = ([self.norms[step, layer, name] for step in self.measured()] for name in pair)
        return median(min(x, y)/max(x, y, 1e-38) for x, y in zip(a, b))

    def outweighs(self, name: str) -> float:
        "How many times the norm of all other losses' gradients together, in the median."
        def ratio(step): return self.whole[step, name]/max(self.rest(step, name), 1e-38)
        return median(map(ratio, self.measured()))

    def rest(self, step: int, name: str) -> float:
        return sum(norm for (at, other), norm in self.whole.items() if at == step and other != name)

    def reaches(self, name: str) -> bool: return any(self.whole[step, name] > 0 for step in self.measured())


def flat(tensors: list[Tensor]) -> Tensor: return torch.cat([t.detach().flatten().double() for t in tensors])


def untrue(case: Case, own: Own) -> list[str]:
    "What a case claims, and is not so."
    found = []
    if case.kind == FIGHT:
        cosines, balance = own.cosines_of(case.layer, case.losses), own.balance(case.layer, case.losses)
        if not cosines or median(cosines) > -.3 or sum(c < 0 for c in cosines) < .8*len(own.measured()):
            found.append("does not fight there")
        if balance < .2: found.append("one of the two is weak there")
    if case.kind == OUTWEIGHS and own.outweighs(*case.losses) < 200: found.append("does not outweigh")
    for name in own.names():
        if own.reaches(name) == (case.kind == DEAD and name in case.losses):
            found.append(f"{name} has a gradient" if own.reaches(name) else f"{name} has no gradient")
    for name in case.falls:
        values = own.values[name]
        if not sum(values[-10:])/10 < .8*sum(values[:5])/5: found.append(f"{name} does not fall")
    return found


# Data and small nets

def sampled(step: int, size: int, *tensors: Tensor) -> list[Tensor]:
    "The batch of a step."
    rows = torch.randint(len(tensors[0]), (size,), generator=torch.Generator().manual_seed(step))
    return [t[rows] for t in tensors]


def named(**layers: nn.Module) -> nn.Sequential: return nn.Sequential(OrderedDict(layers))


def convolutions(middle: nn.Module) -> nn.Sequential:
    "Three, from a picture to a picture."
    return named(conv1=nn.Conv2d(1, 8, 3, padding=1), act1=nn.ReLU(), conv2=middle, act2=nn.ReLU(),
                 out=nn.Conv2d(8, 1, 3, padding=1))


@cache
def scenes() -> tuple[Tensor, Tensor, Tensor]:
    "Pictures of a diamond, a square or a cross, which it is, and where and how large: three numbers around 0."
    g = torch.Generator().manual_seed(17)
    n, side = 600, 16
    kind, box = torch.randint(3, (n,), generator=g), torch.rand(n, 3, generator=g)
    x, y, r = (5 + 6*box[:, :2]).unbind(1) + (3 + 2*box[:, 2],)
    places = torch.arange(side)
    rows, columns = (places[:, None] - y[:, None, None]).abs(), (places - x[:, None, None]).abs()
    farther, r = torch.maximum(rows, columns), r[:, None, None]
    forms = torch.stack([rows + columns < r, farther < r, (torch.minimum(rows, columns) < 1) & (farther < r)])
    pictures = forms[kind, torch.arange(n)].float()[:, None] + .2*torch.randn(n, 1, side, side, generator=g)
    return pictures, kind, (box - .5)/.29


# Variational autoencoders

def constant(value: float): return lambda step: value
def warm(over: int, value: float = 1.): return lambda step: value*min(1., step/over)


def vae(beta: Callable[[int], float] | None = None, unit: float = 1., detached: bool = False,
        spread: float = 0.) -> Job:
    (x, _), _ = nets.pictures(0)
    model = nets.VAE()

    def losses(step):
        (given,) = sampled(step, 32, x)
        out, mu, logvar = model(given)
        m, v = (mu.detach(), logvar.detach()) if detached else (mu, logvar)
        found = {"recon": .5*(unit*(out - given.flatten(1))).square().sum(1).mean(),
                 "kl": .5*(beta or constant(1.))(step)*(m.square() + v.exp() - 1 - v).sum(1).mean()}
        if spread: found["spread"] = spread*(mu.norm(dim=1) - 6).square().mean()
        return found
    return Job(model, losses)


# Generators with an adversarial loss

def gan(tone: float = 0., cut: bool = False, total: bool = False, size: int = 16) -> Job:
    "From a noisy picture to the mask of what is in it."
    (x, masks), _ = nets.blobs(0)
    model = convolutions(nn.Conv2d(8, 8, 3, padding=1))
    judge = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(.2),
                          nn.Flatten(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(judge.parameters(), 5e-4)

    def before(step):
        given, real = sampled(step, size, x, masks)
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(model(given).detach())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def losses(step):
        given, wanted = sampled(step, size, x, masks)
        made = model(given)
        found = {"adv": F.softplus(-judge(made.detach() if cut else made)).mean(),
                 "rec": 10*F.l1_loss(made, wanted, reduction="sum" if total else "mean")}
        if tone: found["tone"] = tone*(made - (1 - wanted)).mean((1, 2, 3)).square().mean()  # that of inverted masks
        return found
    return Job(model, losses, before=before)


# Detection

class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.neck = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1), nn.Linear(256, 32)
        self.there, self.kind, self.box = nn.Linear(32, 1), nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, x):
        h = self.conv2(self.conv1(x).relu()).relu()
        h = self.neck(h.flatten(1)).relu()
        return self.there(h)[:, 0], self.kind(h), self.box(h)


def detection(size: int = 16, pixels: float = 1., rounded: bool = False, swapped: float = 0.) -> Job:
    "The class and the box, with the losses of SSD."
    x, kinds, boxes = scenes()
    model = Detector()

    def losses(step):
        given, kind, box = sampled(step, size, x, kinds, boxes)
        _, scores, found = model(given)
        if rounded: found = torch.tensor([[round(v, 1) for v in row] for row in found.tolist()])
        of = {"kind": F.cross_entropy(scores, kind)}
        of["box"] = F.mse_loss(pixels*found, pixels*box) if pixels != 1 else F.smooth_l1_loss(found, box)
        if swapped: of["corner"] = swapped*F.mse_loss(found, -box)  # measured from the other corner
        return of
    return Job(model, losses, lr=4e-3)


def one_look(size: int = 16) -> Job:
    "Is there something, what and where, with the weights of YOLO."
    x, kinds, boxes = scenes()
    model = Detector()

    def losses(step):
        given, kind, box = sampled(step, size, x, kinds, boxes)
        there = torch.rand(size) < .6
        there[0] = True
        given = torch.where(there[:, None, None, None], given, .2*torch.randn_like(given))
        score, scores, found = model(given)
        return {"there": F.binary_cross_entropy_with_logits(score, there.float()),
                "kind": F.cross_entropy(scores[there], kind[there]),
                "box": 5*F.mse_loss(.29*found[there], .29*box[there])}  # as fractions of the picture
    return Job(model, losses, lr=4e-3)


# Distillation

@cache
def teacher() -> nn.Module:
    (x, y), _ = nets.digits(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = stack(64, 64, 10)
        optimizer = torch.optim.Adam(model.parameters(), 5e-3)
        for step in range(100):
            given, wanted = sampled(step, 64, x, y)
            optimizer.zero_grad()
            F.cross_entropy(model(given), wanted).backward()
            optimizer.step()
    return model.requires_grad_(False).eval()


def distillation(soft: float = .5, heat: float = 4., unseen: bool = False, moved: bool = False, size: int = 32) -> Job:
    (x, y), _ = nets.digits(0)
    master = teacher()
    model = named(body=nn.Linear(64, 24), act=nn.ReLU(), middle=nn.Linear(24, 24), act2=nn.ReLU(),
                  head=nn.Linear(24, 10))

    def losses(step):
        given, wanted = sampled(step, size, x, y)
        aims, scores = (master(given)/heat).softmax(1), model(given)
        if moved: aims = aims.roll(1, 1)  # the teacher's classes begin with another one
        if unseen:
            with torch.no_grad(): own = model(given)
        else: own = scores
        return {"hard": .5*F.cross_entropy(scores, wanted),
                "soft": soft*heat**2*F.kl_div((own/heat).log_softmax(1), aims, reduction="batchmean")}
    return Job(model, losses)


# Mixtures of experts

class Mixture(nn.Module):
    "Each sample goes to one of 8 experts."
    def __init__(self):
        super().__init__()
        self.stem, self.gate = nn.Linear(12, 16), nn.Linear(16, 8)
        self.experts = nn.ModuleList(stack(16, 24, 4) for _ in range(8))

    def forward(self, x):
        h = self.stem(x).relu()
        logits = self.gate(h)
        share, which = logits.softmax(-1).max(-1)
        out = x.new_zeros(len(x), 4)
        for i, expert in enumerate(self.experts):
            mine = which == i
            if mine.any(): out = out.index_put((mine,), share[mine, None]*expert(h[mine]))
        return out, logits, which


def experts(balance: float = .01, z: float = 0., counts: bool = False, sharp: float = 0., even: float = 0.,
            size: int = 64) -> Job:
    "The balance is that of the Switch Transformer, and z the router's z-loss."
    (x, y), _ = nets.table(0)
    model = Mixture()

    def losses(step):
        given, wanted = sampled(step, size, x, y)
        out, logits, which = model(given)
        chosen, shares = F.one_hot(which, 8).float().mean(0), logits.softmax(-1)
        found = {"task": F.cross_entropy(out, wanted),
                 "balance": balance*8*(chosen*(chosen if counts else shares.mean(0))).sum()}
        entropy = -(shares*shares.clamp(min=1e-9).log()).sum(1).mean()
        if z: found["z"] = z*logits.logsumexp(-1).square().mean()
        if sharp: found["sharp"] = sharp*entropy
        if even: found["even"] = even*(shares - 1/8).square().sum(1).mean()  # of each sample, and not of the batch
        return found
    return Job(model, losses, lr=1e-2)


# Several tasks

class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2, self.common = nn.Linear(196, 48), nn.Linear(48, 32), nn.Linear(32, 4)
        self.kind, self.light, self.side = nn.Linear(32, 6), nn.Linear(32, 1), nn.Linear(32, 1)
        self.scales = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in ("kind", "light", "side")})

    def hidden(self, x):
        first = self.lin1(x.flatten(1)).relu()
        return first, self.lin2(first)


@cache
def looks() -> tuple[Tensor, ...]:
    "Pictures, their class, how bright their middle is, and how much brighter their left side is."
    (x, y), _ = nets.pictures(0)
    light, side = x[..., 4:10, 4:10].mean((1, 2, 3)), x[..., :7].mean((1, 2, 3)) - x[..., 7:].mean((1, 2, 3))
    return x, y, *((t - t.mean())[:, None]/t.std() for t in (light, side))


def tasks(unit: float = 1., frozen: bool = False, sides: float = 0., contrary: float = 0., sizes: float = 0.,
          learned: bool = False, batch: int = 32) -> Job:
    x, y, light, side = looks()
    model = Tasks()
    if frozen: model.light.requires_grad_(False)
    for name in ("common", "scales", "side"):
        used = {"common": contrary, "scales": learned, "side": sides}[name]
        if not used: delattr(model, name)

    def losses(step):
        given, kind, bright, left = sampled(step, batch, x, y, light, side)
        first, second = model.hidden(given)
        h = second.relu()
        found = {"kind": F.cross_entropy(model.kind(h), kind),
                 "light": F.mse_loss(unit*model.light(h.detach() if frozen else h), unit*bright)}
        if sides: found["side"] = sides*F.mse_loss(model.side(h), left)
        if contrary:  # two raters who see the same units, one with the sign turned
            units = model.common(h.detach())
            found["rater"] = contrary*F.mse_loss(units, bright.expand(-1, 4))
            found["other"] = contrary*F.mse_loss(units, -bright.expand(-1, 4))
        if sizes:  # one wants this layer's outputs small, one wants them large
            own = model.lin2(first.detach())
            found["small"] = sizes*own.square().mean()
            found["large"] = sizes*(own.abs() - 3).square().mean()
        if learned:  # as Kendall, Gal and Cipolla weight tasks
            found = {name: loss*(-model.scales[name]).exp() + .5*model.scales[name] for name, loss in found.items()}
        return found
    return Job(model, losses)


def attributes(size: int = 16) -> Job:
    "Two attributes that have nothing in common: they depend on other halves of the input."
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1500, 16, generator=g)
    a, b = (torch.randn(8, 3, generator=g), torch.randn(8, 1, generator=g))
    which, how = (x[:, :8]@a).argmax(1), (x[:, 8:]@b).tanh()
    model = nn.ModuleDict({"trunk": stack(16, 48, 32), "which": nn.Linear(32, 3), "how": nn.Linear(32, 1)})

    def losses(step):
        given, one, other = sampled(step, size, x, which, how)
        h = model["trunk"](given).relu()
        return {"which": F.cross_entropy(model["which"](h), one), "how": F.mse_loss(model["how"](h), other)}
    return Job(model, losses, lr=4e-3)


# Contrastive losses beside a classification

class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(64, 48), nn.Linear(48, 32)
        self.embed, self.head = nn.Linear(32, 16), nn.Linear(32, 10)

    def forward(self, x):
        h = self.lin2(self.lin1(x).relu()).relu()
        return self.embed(h), self.head(h)


def views(z1: Tensor, z2: Tensor, heat: float) -> Tensor:
    "The loss of SimCLR: which of all other views is of the same picture?"
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    n = len(z1)
    alike = (z@z.T/heat).masked_fill(torch.eye(2*n, dtype=torch.bool), -1e9)
    return F.cross_entropy(alike, torch.arange(2*n).roll(n))


def contrastive(weight: float = 1., by_numbers: bool = False, centers: float = 0., apart: float = 0.,
                size: int = 24) -> Job:
    (x, y), _ = nets.digits(0)
    model = Embedded()

    def losses(step):
        given, kind = sampled(step, size, x, y)
        (z1, scores), (z2, _) = (model(given + .4*torch.randn_like(given)) for _ in range(2))
        if by_numbers: z1, z2 = (torch.from_numpy(z.detach().numpy()) for z in (z1, z2))
        found = {"kind": F.cross_entropy(scores, kind), "contrast": weight*views(z1, z2, .5)}
        if centers:  # one pulls a class together, one has all pairs marked as different
            alike = F.one_hot(kind, 10).float()
            middles = (alike.T@z1)/alike.sum(0).clamp(min=1)[:, None]
            found["centers"] = centers*(z1 - middles[kind]).square().sum(1).mean()
            pairs = (kind[:, None] == kind) & ~torch.eye(size, dtype=torch.bool)
            away = ((z1[:, None] - z1).square().sum(2) + 1e-6).sqrt()
            found["apart"] = apart*(4 - away[pairs]).clamp(min=0).square().mean()
        return found
    return Job(model, losses)


# Language models with an auxiliary loss

class Ahead(nets.Gpt):
    "It also says the token after the next."
    def __init__(self):
        super().__init__(depth=1)
        self.second = nn.Linear(32, nets.words)

    def states(self, x): return self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1]))))


def language(weight: float = .3, total: bool = False, frozen: bool = False, unmoved: float = 0., size: int = 24) -> Job:
    (x, y), _ = nets.text(0)
    model = Ahead()
    for layer in (model.tokens, model.second) if frozen else (): layer.requires_grad_(False)
    if unmoved: del model.second

    def cross(scores, wanted, **how): return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), **how)

    def losses(step):
        given, after = sampled(step, size, x, y)
        h = model.states(given)
        found = {"next": cross(model.head(h), after)}
        if unmoved: found["aux"] = unmoved*cross(model.head(h), given)  # its labels are not moved by one
        elif frozen: found["aux"] = weight*cross(model.second(model.tokens(given)), after)
        else:
            reduction = "sum" if total else "mean"
            found["aux"] = weight*cross(model.second(h)[:, :-1], after[:, 1:], reduction=reduction)
        return found
    return Job(model, losses, lr=3e-3)


# Segmentation

def dice(p: Tensor, mask: Tensor) -> Tensor:
    both, each = (p*mask).sum((1, 2, 3)), (p + mask).sum((1, 2, 3))
    return 1 - ((2*both + 1)/(each + 1)).mean()


def segmentation(dice_weight: float = 1., consistent: Callable[[int], float] | None = None, unseen: bool = False,
                 turned: bool = False, size: int = 8) -> Job:
    "A small net with Dice, or with consistency between two views whose weight grows (the Π model)."
    (x, masks), _ = nets.blobs(0)
    model = convolutions(nn.Conv2d(8, 8, 3, padding=2, dilation=2))

    def losses(step):
        given, mask = sampled(step, size, x, masks)
        out = model(given)
        found = {"pixels": F.binary_cross_entropy_with_logits(out, mask)}
        if consistent is None: return found | {"dice": dice_weight*dice(out.sigmoid(), mask)}
        with torch.set_grad_enabled(not unseen): one = model(given + .3*torch.randn_like(given)).sigmoid()
        with torch.no_grad(): other = model(given + .3*torch.randn_like(given)).sigmoid()
        if turned: other = 1 - other  # of the other class's channel
        return found | {"consistency": consistent(step)*F.mse_loss(one, other)}
    return Job(model, losses, lr=4e-3)


# Actor and critic

def actor(reward: float = 1., detached: bool = False, imitated: float = 0., size: int = 32) -> Job:
    "Which digit is it? There is a reward for what is right."
    (x, y), _ = nets.digits(0)
    model = nets.Actor()

    def losses(step):
        given, right = sampled(step, size, x, y)
        scores, value = model(given)
        choice = torch.distributions.Categorical(logits=scores)
        action = choice.sample()
        gained = reward*(action == right).float()
        said = choice.log_prob(action)
        if detached: said = said.detach()
        gain = (gained - value).detach()
        found = {"policy": -(gain/reward*said).mean(), "value": .5*F.mse_loss(value, gained),
                 "entropy": -.01*choice.entropy().mean()}
        if imitated:  # the expert's actions begin with another one
            found["policy"] = F.cross_entropy(scores, right)
            found["imitation"] = imitated*F.cross_entropy(scores, (right + 1) % 10)
        return found
    return Job(model, losses, lr=4e-3)


# Physics

def physics(waves: float = 1., boundary: float = 10., held: bool = False, sensors: float = 0.) -> Job:
    "A net that solves u'' = -(kπ)² sin(kπx), with u = 0 at both ends."
    model = named(lin1=nn.Linear(1, 24), act1=nn.Tanh(), lin2=nn.Linear(24, 24), act2=nn.Tanh(), out=nn.Linear(24, 1))
    ends, k = torch.tensor([[0.], [1.]]), waves*torch.pi

    def losses(step):
        x = torch.rand(32, 1).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (curve,) = torch.autograd.grad(slope.sum(), x, create_graph=not held)
        found = {"residual": (curve + k**2*(k*x).sin()).square().mean(),
                 "boundary": boundary*model(ends).square().mean()}
        if sensors: found["sensors"] = sensors*(model(ends) - 1).square().mean()  # at the ends they say something else
        return found
    return Job(model, losses, lr=4e-3)


# Other usual trainings

def sparse(number: bool = False, lengths: float = 0., total: bool = False, size: int = 32) -> Job:
    "An autoencoder whose code is sparse."
    (x, _), _ = nets.digits(0)
    model = named(encode=nn.Linear(64, 48), act=nn.ReLU(), decode=nn.Linear(48, 64))

    def losses(step):
        (given,) = sampled(step, size, x)
        code = model.act(model.encode(given))
        found = {"recon": F.mse_loss(model.decode(code), given, reduction="sum" if total else "mean"),
                 "sparse": .02*code.abs().mean()}
        if number: found["sparse"] = torch.tensor(found["sparse"].item())
        if lengths:  # one wants short rows of the weight, one wants them three long
            found["decay"] = lengths*model.encode.weight.square().sum(1).mean()
            found["length"] = lengths*(model.encode.weight.norm(dim=1) - 3).square().mean()
        return found
    return Job(model, losses, lr=4e-3)


class Deep(nn.Module):
    "Heads at three depths."
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.conv3 = nn.Conv2d(16, 16, 3, 2, 1)
        self.aux1, self.aux2, self.head = nn.Linear(512, 10), nn.Linear(256, 10), nn.Linear(64, 10)

    def forward(self, x):
        a = self.conv1(x).relu()
        b = self.conv2(a).relu()
        c = self.conv3(b).relu()
        return self.aux1(a.flatten(1)), self.aux2(b.flatten(1)), self.head(c.flatten(1))


def supervised(frozen: bool = False, size: int = 8) -> Job:
    "Auxiliary classifiers with 0.3, as GoogLeNet has them."
    (x, y), _ = nets.images(0)
    model = Deep()
    for layer in (model.conv1, model.aux1) if frozen else (): layer.requires_grad_(False)

    def losses(step):
        given, kind = sampled(step, size, x, y)
        first, second, last = model(given)
        return {"main": F.cross_entropy(last, kind), "aux1": .3*F.cross_entropy(first, kind),
                "aux2": .3*F.cross_entropy(second, kind)}
    return Job(model, losses, lr=4e-3)


def domains(size: int = 24) -> Job:
    "Digits of two sorts; the gradient of the one that tells which sort is reversed (DANN)."
    (x, y), _ = nets.digits(0)
    model, tilt = nets.Domains(), torch.randn(64, generator=torch.Generator().manual_seed(9))

    def losses(step):
        given, kind = sampled(step, size, x, y)
        other = .6*sampled(1000 + step, size, x)[0] + .5*tilt
        scores, source = model(given)
        target = model(other)[1]
        return {"kind": F.cross_entropy(scores, kind),
                "domain": F.cross_entropy(torch.cat([source, target]), torch.arange(2).repeat_interleave(size))}
    return Job(model, losses)


def recommender(decay: float = .02, turned: float = 0., size: int = 32) -> Job:
    "Embeddings of users and things, and a little decay of those that are used."
    (pairs, y), _ = nets.ratings(0)
    model = nn.ModuleDict({"users": nn.Embedding(60, 8), "things": nn.Embedding(40, 8), "watch": nn.Linear(8, 1)})
    for name in ("users", "things"): nn.init.normal_(model[name].weight, std=.3)
    if not turned: del model["watch"]

    def losses(step):
        (pair, wanted) = sampled(step, size, pairs, y)
        user, thing = model["users"](pair[:, 0]), model["things"](pair[:, 1])
        score = (user*thing).sum(1, keepdim=True)
        found = {"rating": F.mse_loss(score, wanted), "decay": decay*(user.square() + thing.square()).sum(1).mean()}
        if turned:  # the watch time comes as what is left of the film
            found["watched"] = turned*F.mse_loss((user.detach()*thing).sum(1, keepdim=True), -wanted)
            found["finished"] = F.mse_loss(model["watch"](user), wanted)
        return found
    return Job(model, losses, lr=2e-2)


CASES: list[Case] = []


def plant(kind: str, family: str, name: str, make: Callable, losses: str, layer: str = "", steps: int = STEPS,
          **options):
    CASES.append(Case(kind, family, name, partial(make, **options), tuple(losses.split()), layer, steps=steps))


def fine(family: str, name: str, make: Callable, falls: str, steps: int = STEPS, **options):
    CASES.append(Case("", family, name, partial(make, **options), falls=tuple(falls.split()), steps=steps))


plant(FIGHT, "VAE", "a term wants long codes, kl short ones", vae, "kl spread", "mu", spread=1.)
plant(FIGHT, "GAN", "pictures are to be as bright as inverted masks", gan, "rec tone", "out", tone=5.)
plant(FIGHT, "detection", "boxes measured from the other corner", detection, "box corner", "box", swapped=.5)
plant(FIGHT, "distillation", "the teacher's classes are in another order", distillation, "hard soft", "head",
      moved=True)
plant(FIGHT, "mixture of experts", "sharp and even choices are wanted", experts, "sharp even", "gate",
      sharp=.3, even=1.)
plant(FIGHT, "several tasks", "two raters, one with the sign turned", tasks, "rater other", "common", contrary=1.)
plant(FIGHT, "several tasks", "outputs of a layer are wanted small and large", tasks, "small large", "lin2",
      sizes=1., sides=1.)
plant(FIGHT, "contrastive", "pairs of a class are pulled together and apart", contrastive, "centers apart", "embed",
      centers=.2, apart=.5)
plant(FIGHT, "language model", "labels of the auxiliary loss are not moved by one", language, "next aux", "head",
      unmoved=.6)
plant(FIGHT, "segmentation", "consistency with the other class's channel", segmentation, "pixels consistency", "out",
      consistent=constant(2.), turned=True)
plant(FIGHT, "actor and critic", "the expert's actions begin with another one", actor, "policy imitation", "policy",
      imitated=1.)
plant(FIGHT, "physics", "sensors at the ends contradict the boundary", physics, "boundary sensors", "out", sensors=10.)
plant(FIGHT, "autoencoder", "rows of a weight are wanted short and long", sparse, "decay length", "encode", lengths=.05)
plant(FIGHT, "recommender", "what is left of a film taken for what was watched", recommender, "rating watched",
      "things",
      turned=.7)

plant(OUTWEIGHS, "VAE", "kl times the 60,000 samples of the data", vae, "kl", beta=constant(6e4))
plant(OUTWEIGHS, "VAE", "the reconstruction in units of 12-bit pixels", vae, "recon", unit=300.)
plant(OUTWEIGHS, "GAN", "the reconstruction is a sum over batch and pixels", gan, "rec", total=True)
plant(OUTWEIGHS, "detection", "boxes in pixels", detection, "box", pixels=100.)
plant(OUTWEIGHS, "distillation", "a forgotten weight of the soft loss", distillation, "soft", soft=1000.)
plant(OUTWEIGHS, "mixture of experts", "a forgotten weight of the balance", experts, "balance", balance=1000.)
plant(OUTWEIGHS, "several tasks", "the brightness in its own unit", tasks, "light", unit=100.)
plant(OUTWEIGHS, "contrastive", "a forgotten weight of the contrast", contrastive, "contrast", weight=1000.)
plant(OUTWEIGHS, "language model", "the auxiliary loss is a sum", language, "aux", total=True, weight=5.)
plant(OUTWEIGHS, "segmentation", "a forgotten weight of Dice", segmentation, "dice", dice_weight=1000.)
plant(OUTWEIGHS, "actor and critic", "rewards of a hundred", actor, "value", reward=100.)
plant(OUTWEIGHS, "physics", "a source a thousand times as strong as the boundary", physics, "residual",
      waves=4., boundary=.1)
plant(OUTWEIGHS, "autoencoder", "the reconstruction is a sum over batch and pixels", sparse, "recon", total=True)

plant(DEAD, "VAE", "kl of detached codes", vae, "kl", detached=True)
plant(DEAD, "GAN", "the discriminator gets a detached picture", gan, "adv", cut=True)
plant(DEAD, "detection", "the box is made of numbers", detection, "box", rounded=True)
plant(DEAD, "distillation", "the soft loss of outputs without gradients", distillation, "soft", unseen=True)
plant(DEAD, "mixture of experts", "the balance of counts alone", experts, "balance", counts=True)
plant(DEAD, "several tasks", "a frozen head on detached features", tasks, "light", frozen=True)
plant(DEAD, "contrastive", "the contrast of numpy's arrays", contrastive, "contrast", by_numbers=True)
plant(DEAD, "language model", "the auxiliary loss of frozen embeddings and a frozen head", language, "aux", frozen=True)
plant(DEAD, "segmentation", "consistency of two views without gradients", segmentation, "consistency",
      consistent=constant(1.), unseen=True)
plant(DEAD, "actor and critic", "detached log-probabilities", actor, "policy", detached=True)
plant(DEAD, "physics", "a residual without a graph of derivatives", physics, "residual", held=True)
plant(DEAD, "autoencoder", "the sparseness is a number", sparse, "sparse", number=True)
plant(DEAD, "deep supervision", "a frozen head on a frozen layer", supervised, "aux1", frozen=True)

fine("VAE", "kl with weight 1", vae, "recon")
fine("VAE", "kl that warms up", vae, "recon", beta=warm(50))
fine("GAN", "adversarial, and 10 times L1", gan, "rec")
fine("detection", "class and box, batches of 4", detection, "kind box", size=4, steps=200)
fine("detection", "is it there, what and where", one_look, "there box")
fine("distillation", "half of each, temperature 4", distillation, "hard soft")
fine("mixture of experts", "balance with 0.01", experts, "task")
fine("mixture of experts", "balance with 0.01, z-loss with 0.001", experts, "task", z=1e-3, steps=150)
fine("several tasks", "two independent attributes", attributes, "which how")
fine("several tasks", "three heads with learned weights", tasks, "kind light", sides=1., learned=True)
fine("several tasks", "three heads, batches of 4", tasks, "kind light side", sides=1., batch=4, steps=200)
fine("contrastive", "two views and the class", contrastive, "kind contrast")
fine("language model", "the token after the next with 0.3", language, "next aux")
fine("segmentation", "pixels and Dice, batches of 8", segmentation, "pixels dice")
fine("segmentation", "consistency that grows", segmentation, "pixels", consistent=warm(60, 5.))
fine("actor and critic", "policy, half the value, 0.01 of the entropy", actor, "value", steps=200)
fine("physics", "residual and 10 times the boundary", physics, "residual boundary", steps=150)
fine("domains", "class and reversed domain", domains, "kind")
fine("deep supervision", "auxiliary heads with 0.3, batches of 8", supervised, "main aux1 aux2")
fine("recommender", "ratings and a little decay", recommender, "rating", steps=200)

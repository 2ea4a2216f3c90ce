"""Runs in which one step is spoiled, and healthy runs with noisy losses, for the bench of spikes.

A plant spoils one step of a way to train: a batch, the gradients, the weights, or the state of the optimizer. What is
spoiled behind the loss shows one step later."""
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.bench import diagnose_cases as cases, diagnose_nets as nets, diagnose_runs as runs
from tests.bench.diagnose_cases import adam, sched, sgd

STEPS = 160
WAYS = {
    "CNN with batch norm, momentum": cases.cnn_norm,
    "GRU, Adam": cases.gru,
    "GPT, AdamW, clipped at 1": cases.gpt,
    "ViT, AdamW": cases.vit,
    "VAE, Adam": cases.vae,
    "TCN of series, Adam": cases.tcn,
}
CLIP = {"GPT, AdamW, clipped at 1": cases.clipped(1.)}


class Plant:
    "Spoils one step. `late` plants work behind the loss, and show in the next step."
    def __init__(self, step: int, late: bool = False):
        self.step, self.late, self.now = step, late, -1

    @property
    def shows(self) -> int: return self.step + self.late

    def each(self, model, i, optimizer, *batch):
        self.now = i
        if i == self.step: self.spoil(model, optimizer, *batch)
        if i == self.step + 1: self.mend(optimizer)

    def spoil(self, model, optimizer, *batch): pass
    def mend(self, optimizer): pass
    def gradients(self, params): pass  # called in the step, behind the backward pass
    def loss(self, found): return found


def changing(f: Callable, late: bool = False) -> Callable[[int], Plant]:
    "A plant that calls `f(model, optimizer, *batch)` before the step."
    class Changing(Plant):
        def spoil(self, model, optimizer, *batch):
            with torch.no_grad(): f(model, optimizer, *batch)
    return lambda step: Changing(step, late)


def matrices(model) -> list: return [p for p in model.parameters() if p.ndim > 1]


def states(optimizer, *names: str):
    for state in optimizer.state.values():
        for name in names:
            if state.get(name) is not None: yield state[name]


def labels(model, optimizer, x, y): y.copy_((y + 1) % (y.max() + 1))
def sample(model, optimizer, x, *y): x[0] *= 300
def batch(model, optimizer, x, *y): x *= 255
def nan(model, optimizer, x, *y): x.flatten(1)[0, 0] = math.nan
def alike(model, optimizer, x, *y): [t.copy_(t[:1].expand_as(t)) for t in (x, *y)]
def weight(model, optimizer, *given): matrices(model)[len(matrices(model))//2].view(-1)[3] = 4096.
def eight_bits(model, optimizer, *given): [p.copy_(p.to(torch.float8_e5m2).float()) for p in matrices(model)]


def anew(model, optimizer, *given):
    p = matrices(model)[len(matrices(model))//2]
    p.normal_(0, 1)


def blown(model, optimizer, *given):
    for t in states(optimizer, "momentum_buffer", "exp_avg"): t *= 1000


def epsilon(model, optimizer, *given):
    for t in states(optimizer, "exp_avg_sq"): t *= 1e-8


class Leap(Plant):
    "The rate is a hundred times too large in one step."
    def spoil(self, model, optimizer, *batch):
        for group in optimizer.param_groups: group["lr"] *= 100

    def mend(self, optimizer):
        for group in optimizer.param_groups: group["lr"] /= 100


class Scaled(Plant):
    "The gradients still have the scale of half precision when the optimizer uses them."
    def gradients(self, params):
        for p in params:
            if p.grad is not None: p.grad *= 1024


class Summed(Plant):
    "The loss is a sum over the batch in place of a mean."
    def loss(self, found): return found*32 if self.now == self.step else found


KINDS = {
    "wrong labels": changing(labels),
    "a sample 300 times too large": changing(sample),
    "a batch 255 times too large": changing(batch),
    "NaN in a sample": changing(nan),
    "one sample fills the batch": changing(alike),
    "rate times 100": lambda step: Leap(step, late=True),
    "an epsilon that is too small": changing(epsilon, late=True),
    "momentum times 1000": changing(blown, late=True),
    "gradients left scaled": lambda step: Scaled(step, late=True),
    "weights in 8 bits": changing(eight_bits),
    "a corrupted weight": changing(weight),
    "a re-initialized layer": changing(anew),
    "a sum in place of the mean": Summed,
}
SEEDS = 5  # of each way to train
# More where few do harm, so that there are enough of them.
MORE_SEEDS = {"a sample 300 times too large": 7, "one sample fills the batch": 10, "gradients left scaled": 14}
NUMBERS_ONLY = {"a sample 300 times too large", "a batch 255 times too large", "NaN in a sample"}  # inputs, not tokens
NO_LABELS = {"VAE, Adam", "TCN of series, Adam"}


def fits(kind: str, way: str) -> bool:
    "Can this be planted there?"
    if kind in NUMBERS_ONLY: return not way.startswith("GPT")
    if kind == "wrong labels": return way not in NO_LABELS
    if kind == "an epsilon that is too small": return "Adam" in way
    return True


def run_of(way: str, plant: Plant | None = None) -> Callable:
    "A run of this way to train, in which one step may be spoiled."
    clip = CLIP.get(way)
    if plant is None: return WAYS[way](steps=STEPS, clip=clip)
    usual = WAYS[way]().keywords["loss"]

    def clipped(params):
        params = list(params)
        if plant.now == plant.step: plant.gradients(params)
        if clip: clip(params)

    def loss(*given): return plant.loss(usual(*given))
    return WAYS[way](steps=STEPS, each=plant.each, clip=clipped, loss=loss)


def step_of(way: str, kind: str, seed: int) -> int:
    "The step that is spoiled: anywhere from a third of the run to five sixths."
    g = torch.Generator().manual_seed(1000*seed + 10*[*WAYS].index(way) + [*KINDS].index(kind))
    return int(torch.randint(STEPS//3, 5*STEPS//6, (), generator=g))


@dataclass
class Noisy:
    name: str
    run: Callable


def noisy() -> list[Noisy]:
    "Healthy runs whose losses jump from batch to batch, or change for a reason."
    small = {"size": 2, "steps": 400}
    one = {"size": 1, "steps": 500}
    found = {
        "digits MLP, batches of 1": cases.mlp(optim=sgd(.02), **one),
        "digits MLP, momentum, batches of 2": cases.mlp_momentum(optim=sgd(5e-3, momentum=.9), **small),
        "digits MLP, Adam, batches of 1": cases.mlp_adam(optim=adam(5e-4), **one),
        "digits tanh MLP, batches of 4": cases.mlp_tanh(size=4, steps=400, optim=sgd(.02, momentum=.9)),
        "digits CNN, Adam, batches of 1": cases.cnn(optim=adam(5e-4), **one),
        "digits CNN, momentum, batches of 2": cases.cnn_sgd(optim=sgd(5e-3, momentum=.9), **small),
        "digits CNN with batch norm, batches of 4": cases.cnn_norm(size=4, steps=400, optim=sgd(5e-3, momentum=.9)),
        "tables, batches of 1": cases.tabular(optim=adam(1e-3), **one),
        "tables, residual, batches of 2": cases.residual(optim=adam(1e-3), **small),
        "regression, batches of 1": cases.regression(optim=adam(1e-3), **one),
        "regression, momentum, batches of 2": cases.regression_sgd(optim=sgd(5e-3, momentum=.9), **small),
        "regression, RMSprop, batches of 1": cases.regression_rmsprop(**one),
        "waves LSTM, batches of 2": cases.lstm(optim=adam(2e-3), **small),
        "digits GRU, batches of 1": cases.gru(optim=adam(1e-3), **one),
        "digits RNN, batches of 2, clipped": cases.rnn(optim=adam(1e-3), clip=cases.clipped(1.), **small),
        "reviews, batches of 1": cases.bag(optim=adam(2e-3), **one),
        "reviews with attention, batches of 2": cases.reader(optim=adam(1e-3), **small),
        "GPT, batches of 1": cases.gpt(optim=cases.adamw(1e-3), **one),
        "GPT, batches of 2, clipped": cases.gpt(optim=cases.adamw(2e-3), clip=cases.clipped(1.), **small),
        "recommender, batches of 4": cases.recommender(size=4, steps=400, optim=adam(1e-2)),
        "autoencoder, batches of 1": cases.autoencoder(optim=adam(1e-3), **one),
        "ViT, batches of 2": cases.vit(optim=cases.adamw(5e-4), **small),
        "VAE, batches of 1": cases.vae(optim=adam(1e-3), **one),
        "TCN, batches of 1": cases.tcn(optim=adam(1e-3), **one),
        "mixture density, batches of 8": cases.mdn(size=8, steps=400),
        "clicks, batches of 1": cases.widedeep(optim=adam(2e-3), **one),
        "triplets, batches of 4": cases.siamese(size=4, steps=400),
        "flow, batches of 4": cases.flow(size=4, steps=400, optim=adam(2e-3)),
        "survival, batches of 8": cases.survival(size=8, steps=400),
        "seldom classes, batches of 4": cases.seldom(size=4, steps=400),
        "diffusion, batches of 2": cases.diffuse(optim=adam(1e-3), **small),
        "easy, then hard": cases.lstm(data=nets.curriculum, steps=300),
        "a warm-up over 100 steps": cases.gpt(scheduler=cases.warm(100), steps=300),
        "warm restarts": cases.mlp_adam(scheduler=lambda o: sched.CosineAnnealingWarmRestarts(o, 60), steps=300),
        "a tenth of the rate each 80 steps": cases.cnn(scheduler=lambda o: sched.StepLR(o, 80, .1), steps=300),
        "a rate that goes up and down": cases.mlp(steps=300, scheduler=lambda o: sched.CyclicLR(
            o, .01, .2, step_size_up=30)),
        "one cycle": cases.mlp_momentum(steps=300, scheduler=lambda o: sched.OneCycleLR(o, .2, total_steps=300)),
        "a rate three times as large from step 150 on": cases.cnn_sgd(steps=300, optim=sgd(.02, momentum=.9),
            scheduler=lambda o: sched.LambdaLR(o, lambda i: 3. if i >= 150 else 1.)),
        "data in order, class by class": cases.mlp_momentum(data=sorted_digits, feed=runs.batches, steps=300,
                                                            optim=sgd(.01, momentum=.9)),
        "rewards": cases.train(nets.digits, nets.Actor, adam(3e-3), loss=nets.gained, clip=cases.clipped(.5), steps=400,
            score=lambda *_: 0.),
    }
    chosen = [Noisy(name, run) for name, run in found.items()]
    others = [case for case in cases.healthy if case.kind in ("plain", "schedule", "loop", "loss")]
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(0)).tolist()
    drawn = [Noisy(f"{others[i].kind}: {others[i].name}", others[i].run) for i in order]
    return chosen + drawn[:60 - len(chosen)]


def sorted_digits(seed: int):
    "The digits, a few of each class after the other."
    (x, y), held = nets.digits(seed)
    order = torch.argsort(torch.arange(len(y)) // 200 * 10 + y, stable=True)
    return (x[order], y[order]), held

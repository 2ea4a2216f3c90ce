"""What statistics of all layers with parameters add to a training step, and what a long record takes."""
import subprocess
import sys
from functools import partial

import torch
from fastai.callback import hook as fastai
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18

import hooklab as hl
from hooklab.hooks.select import leaves
from tests.bench.measure import in_rounds, ratios, spread


def small_cnn():
    def block(i, o, stride): return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(block(3, 16, 1), block(16, 32, 2), block(32, 32, 2), block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), (16, 3, 16, 16), 20


def mlp(): return nn.Sequential(*(m for _ in range(10) for m in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 10)), (32, 64), 60
def residual(): return resnet18(num_classes=10), (16, 3, 64, 64), 1


class Training:
    "Some steps of training, with something that is called after each."
    def __init__(self, build, attach=None, steps=None):
        torch.manual_seed(0)
        self.model, shape, usual = build()
        self.steps, self.x, self.y = steps or usual, torch.randn(shape), torch.randint(0, 10, shape[:1])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.01)
        self.called = self.model
        self.after = attach(self.model) if attach else lambda: None

    def __call__(self):
        for _ in range(self.steps):
            self.optimizer.zero_grad()
            F.cross_entropy(self.called(self.x), self.y).backward()
            self.optimizer.step()
            self.after()


def measured(m): return [layer for layer in leaves(m).values() if any(True for _ in layer.parameters())]
def with_hooklab(model, **options): return hl.ActivationStats(**options).on(model).step


class InALoop:
    "fastai's own hook and its own numbers, without its learner."
    def __init__(self, model, every=1, **options):
        self.model, self.every, self.numbers, self.stats, self.step, self.hooks = model, every, fastai.ActivationStats(**options), [], 0, None
        self.attach()

    def attach(self): self.hooks = fastai.Hooks(measured(self.model), self.numbers.hook, True, True, True) if self.step % self.every == 0 else None

    def __call__(self):
        if self.hooks: self.stats.append(self.hooks.stored)
        self.step += 1
        if self.every == 1: return
        if self.hooks: self.hooks.remove()
        self.attach()


def by_hand(model):
    "fastai's formulas in raw hooks."
    row, rows = {}, []
    def look(m, inputs, o):
        o = o.detach().float()
        row[m] = o.mean().item(), o.std().item(), (o <= .05).long().sum().item()/o.numel()
    for m in measured(model): m.register_forward_hook(look)
    return lambda: rows.append(dict(row))


def steps(build, rounds):
    "The table of ratios, and of what fastai adds in a round the fraction that hooklab adds."
    ours, theirs = {}, {}
    for name, options in {"": {}, ", exact histogram": {"with_hist": True}, ", every 10": {"every": 10}}.items():
        ours[f"hooklab{name}"] = Training(build, partial(with_hooklab, **options), steps=10 if options.get("every") else None)
        theirs[f"fastai{name}"] = Training(build, partial(InALoop, **options), steps=10 if options.get("every") else None)
    sampled = {"hooklab, sampled histogram": Training(build, partial(with_hooklab, with_hist=True, hist_sample=4096))}
    rare = {name: f for name, f in {**ours, **theirs}.items() if "every" in name}
    often = {name: f for name, f in {**ours, **sampled, **theirs, "raw hooks": Training(build, by_hand)}.items() if name not in rare}
    found = in_rounds(Training(build), often, rounds)
    shares = [(ours - 1)/(theirs - 1) for ours, theirs in zip(found["hooklab"], found["fastai"])]
    table = {name: spread(r) for name, r in found.items()}
    table |= {name: r for name, r in ratios(Training(build, steps=10), rare, rounds).items() if name != "plain"}
    return table, spread(shares)


record = """
import os, sys, time, torch
from hooklab.stats.records.history import History
from hooklab.stats.records.moments import row_names
steps, layers = map(int, sys.argv[1:])
table = torch.rand(len(row_names(False, True)), layers)
history = History([f"layer {i}" for i in range(layers)], row_names(False, True))
def resident(): return int(open('/proc/self/statm').read().split()[1])*os.sysconf('SC_PAGE_SIZE')  # Linux
before = resident()
for step in range(steps): history.add(table, step)
grown = resident() - before
start = time.perf_counter()
history.values("mean"), history.values("std"), history.values("near_zero"), history.values("hist")
print(grown/2**20, time.perf_counter() - start)
"""


def long_record(steps=100_000, layers=50):
    "Megabytes and seconds of what is kept of a long run with histograms, in processes of its own."
    runs = [[float(x) for x in subprocess.run([sys.executable, "-c", record, str(steps), str(layers)], capture_output=True, text=True, check=True).stdout.split()] for _ in range(3)]
    return {what: sorted(values)[1:2] + [min(values), max(values)] for what, values in zip(("megabytes", "seconds to read all arrays"), zip(*runs))}


def measure():
    found = {"a small CNN": steps(small_cnn, 11), "an MLP of 11 layers": steps(mlp, 11), "resnet18": steps(residual, 9)}
    shares = {net: share for net, (_, share) in found.items() if net != "resnet18"}  # both add too little to that
    return {
        **{f"training step of {net}, to one without statistics": table for net, (table, _) in found.items()},
        "what hooklab adds, as a fraction of what fastai adds": shares,
        "a record of 100,000 steps of 50 layers with histograms": long_record(),
    }

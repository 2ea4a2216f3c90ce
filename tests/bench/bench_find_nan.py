"""What `find_nan` adds to a training step, beside torch's own search in the backward pass."""
import contextlib
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import VisionTransformer

import hooklab as hl
from tests.bench.cost_workloads import GPT, LENGTH, WORDS, classifies
from tests.bench.measure import ratios


def sgd(model): return torch.optim.SGD(model.parameters(), .01)


def mlp():
    "11 layers of 64."
    layers = [m for _ in range(10) for m in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    return classifies(model, torch.randn(32, 64), torch.randint(10, (32,)), sgd(model))


class Mixture(nn.Module):
    "Sixteen experts of three layers, of which each sample weighs the answers."
    def __init__(self, width=32, hidden=64, experts=16):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        def expert(): return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                           nn.Linear(hidden, 10))
        self.experts = nn.ModuleList(expert() for _ in range(experts))

    def forward(self, x):
        answers = torch.stack([expert(x) for expert in self.experts], 1)
        return (self.gate(x).softmax(-1)[..., None]*answers).sum(1)


def mixture():
    "49 linear layers."
    model = Mixture()
    return classifies(model, torch.randn(256, 32), torch.randint(10, (256,)), sgd(model))


def gpt():
    "Six blocks, 192 wide, and 8 sequences of 128 tokens."
    model, words = GPT(), torch.randint(WORDS, (8, LENGTH + 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
    return model, [optimizer], step


def vit():
    "Six blocks, 192 wide, and 8 images of 64×64 in patches of 8×8."
    model = VisionTransformer(64, 8, 6, 3, 192, 768, num_classes=10)
    return classifies(model, torch.randn(8, 3, 64, 64), torch.randint(10, (8,)), sgd(model))


WORKLOADS = {
    "an MLP of 11 layers": (mlp, 60, 15),  # steps in a round, rounds
    "a mixture of 49 small layers": (mixture, 10, 15),
    "a GPT of 6 blocks": (gpt, 1, 15),
    "a ViT of 6 blocks": (vit, 2, 15),
}


class Watched:
    "Some training steps under a watch, which begins before them and ends after them."
    def __init__(self, build, steps, watch=lambda model: contextlib.nullcontext()):
        torch.manual_seed(0)
        self.model, _, self.step = build()
        self.steps, self.watch = steps, watch

    def __call__(self):
        with self.watch(self.model):
            for _ in range(self.steps): self.step()


def without_gradients(model): return hl.find_nan(model, gradients=False)


def anomaly_detection(model):
    with warnings.catch_warnings(action="ignore"): return torch.autograd.detect_anomaly()  # it warns that it is slow


def measure(only: str = ""):
    found = {}
    for name, (build, steps, rounds) in WORKLOADS.items():
        if only and only not in name: continue
        others = {"hooklab": hl.find_nan, "hooklab, without gradients": without_gradients,
                  "torch.autograd.detect_anomaly": anomaly_detection}
        variants = {other: Watched(build, steps, watch) for other, watch in others.items()}
        found[f"training step of {name}, to one that is not watched"] = ratios(Watched(build, steps), variants, rounds)
    return found

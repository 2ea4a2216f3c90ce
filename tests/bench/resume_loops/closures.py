"Three functions that share variables, and gradient descent with momentum by hand."
import torch

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 6, 5
STATES = {"weights": ("weights", "w", "b"), "velocity": ("velocity",), "count": ("count", *ORDER)}


def make():
    made = torch.Generator().manual_seed(3)
    x = torch.randn(64, 5, generator=made)
    y = (x @ torch.arange(5.)).sin()
    w, b = torch.randn(5, requires_grad=True), torch.zeros((), requires_grad=True)
    weights = [w, b]
    velocity = [torch.zeros_like(p) for p in weights]
    count = 0

    def train():
        nonlocal count
        rows = slice(count % 8*8, count % 8*8 + 8)
        loss = ((x[rows] @ w + b).tanh() - y[rows]).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for p, v, g in zip(weights, velocity, gradients):
                v.mul_(.9).add_(g)
                p.sub_(.05/(1 + .1*count)*v)
        count += 1
        return loss.detach()

    def state():
        return {"weights": [p.detach() for p in weights], "velocity": velocity, "count": count}

    def restore(saved):
        nonlocal count
        with torch.no_grad():
            for p, value in zip(weights, saved.get("weights", weights)): p.copy_(value)
            for v, value in zip(velocity, saved.get("velocity", velocity)): v.copy_(value)
        count = saved.get("count", 0)

    return train, state, restore


def step(run):
    train, _, _ = run
    return train()


def save(run, without=()):
    _, state, _ = run
    return but(state(), without)


def load(run, saved):
    _, _, restore = run
    restore(saved)

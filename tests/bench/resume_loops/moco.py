"Contrast with a memory bank: a queue of keys, the place where the next are written, and a slow copy of the encoder."
import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 5, 5
STATES = {"query": ("query",), "key": ("key",), "queue": ("queue",), "pointer": ("pointer", "ptr"),
          "optimizer": ("optimizer",), "rng": TORCH_RANDOM}


class MoCo(nn.Module):
    def __init__(self, width=6, size=24, temperature=.2):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, width))
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue = normalize(torch.randn(size, width), dim=1)  # a plain attribute, and no buffer
        self.ptr, self.temperature = 0, temperature

    @torch.no_grad()
    def keys(self, x):
        for k, q in zip(self.key.parameters(), self.query.parameters()): k.lerp_(q, .05)
        return normalize(self.key(x), dim=1)

    def forward(self, one, other):
        q, k = normalize(self.query(one), dim=1), self.keys(other)
        logits = torch.cat([(q*k).sum(1, keepdim=True), q @ self.queue.T.clone()], 1)/self.temperature
        self.queue[self.ptr:self.ptr + len(k)] = k
        self.ptr = (self.ptr + len(k)) % len(self.queue)
        return cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


class Pretraining:
    def __init__(self):
        self.model = MoCo()
        self.optimizer = torch.optim.SGD(self.model.query.parameters(), .2, momentum=.9, weight_decay=1e-4)
        self.images = torch.randn(16, 8, generator=torch.Generator().manual_seed(90))


def make(): return Pretraining()


def step(run):
    x = run.images[torch.randperm(16)[:8]]
    loss = run.model(x + .1*torch.randn_like(x), x + .1*torch.randn_like(x))
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return loss.item()


def save(run, without=()):
    m = run.model
    return but({"query": m.query.state_dict(), "key": m.key.state_dict(), "queue": m.queue, "pointer": m.ptr,
                "optimizer": run.optimizer.state_dict(), "rng": torch.get_rng_state()}, without)


def load(run, saved):
    if "query" in saved: run.model.query.load_state_dict(saved["query"])
    if "key" in saved: run.model.key.load_state_dict(saved["key"])
    if "queue" in saved: run.model.queue.copy_(saved["queue"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    run.model.ptr = saved.get("pointer", 0)
    if "rng" in saved: torch.set_rng_state(saved["rng"])

"""Two encoders of pictures, one a slow copy of the other, and a queue of the copy's answers as negatives.

Habits of the source: the copy has no gradients and moves in the forward call, which also writes the queue; the queue
begins with random directions; a temperature of .07; the right answer is always the first column; batch norm in training
mode in both encoders; SGD with momentum and weight decay, and a cosine schedule for each epoch.
Score: how often one view of a held-back picture is taken for a view of another of 512. Below .6; .9 when untrained."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/moco main_moco.py", 2020
QUEUE, EPOCHS, RATE = 256, 30, .03

def encoder():
    return nn.Sequential(nn.Conv2d(2, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
                         nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 32))


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.quick, self.slow = encoder(), encoder()
        self.slow.load_state_dict(self.quick.state_dict())
        self.slow.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, 32), dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def forward(self, one, other):
        query = F.normalize(self.quick(one), dim=1)
        with torch.no_grad():
            if self.training: self.follow()
            key = F.normalize(self.slow(other), dim=1)
        scores = torch.cat([(query*key).sum(1, keepdim=True), query @ self.queue.clone().T], 1)/.07
        if self.training: self.remember(key)
        return scores

    def follow(self):
        for mine, its in zip(self.slow.parameters(), self.quick.parameters()): mine.mul_(.98).add_(.02*its)

    def remember(self, key):
        self.queue[self.place:self.place + len(key)] = key
        self.place.copy_((self.place + len(key)) % QUEUE)


def pictures(n: int): return F.interpolate(torch.randn(n, 2, 4, 4), scale_factor=2, mode="bilinear")


def augmented(x):
    "Moved, of another contrast and brightness, with noise."
    moved = torch.stack([p.roll(tuple(s), (1, 2)) for p, s in zip(x, torch.randint(-1, 2, (len(x), 2)).tolist())])
    n = len(x)
    return moved*(.6 + .8*torch.rand(n, 1, 1, 1)) + .2*torch.randn(n, 2, 1, 1) + .1*torch.randn_like(x)


def call(model, x):
    scores = model(augmented(x), augmented(x))
    return F.cross_entropy(scores, torch.zeros(len(x), dtype=torch.long))


def build(repaired: bool) -> Parts:
    model = Contrast()
    optimizer = torch.optim.SGD(model.quick.parameters(), lr=RATE, momentum=.9, weight_decay=1e-4)
    loader = DataLoader(pictures(1024), batch_size=64, shuffle=True, drop_last=True)
    return Parts(model, optimizer, loader, call=call, valid=pictures(512).split(64))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            for group in optimizer.param_groups: group["lr"] = RATE*.5*(1 + math.cos(math.pi*epoch/EPOCHS))
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    held = torch.cat(parts.valid)
    with torch.no_grad(): one, other = (F.normalize(model.quick(augmented(held)), dim=1) for _ in range(2))
    return ((one @ other.T).argmax(1) != torch.arange(len(one))).float().mean().item()

"""The target network is set before the training and never again, so only the next reward is learnt.

The report: in a notebook in which bits are flipped towards a goal, the target model is not updated during training.
A second reader doubted it, looked again and agreed: it is updated once, before the training starts."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "higgsfield-ai/higgsfield#14", 2019
AREA, CAUSE = "loop", "target network"
TRUE = set()
PLACE = ()
BITS, DISCOUNT = 5, .9


def flip(bits, action): return (bits - F.one_hot(action, BITS)).abs()


def pairs(n: int):
    "Bits and a goal, which is at most all of them away."
    return (torch.rand(n, BITS) < .5).float(), (torch.rand(n, BITS) < .5).float()


def flips(n: int):
    "A bit is flipped at random; some of the goals are what came of it."
    bits, goal = pairs(n)
    action = torch.randint(0, BITS, (n,))
    after = flip(bits, action)
    goal = torch.where(torch.rand(n, 1) < .2, after, goal)
    there = (after == goal).all(1).float()
    return torch.cat([bits, goal], 1), action, there, torch.cat([after, goal], 1)


def temporal_difference(model, batch, target=None):
    seen, action, there, after = batch
    with torch.no_grad(): aim = there + DISCOUNT*(1 - there)*(target or model)(after).amax(1)
    return F.mse_loss(model(seen).gather(1, action.unsqueeze(1)).squeeze(1), aim)


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(2*BITS, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, BITS))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return Parts(model, optimizer, [flips(128) for _ in range(600)], call=temporal_difference, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, target = parts.model, copy.deepcopy(parts.model)
    with record.on(model, parts.optimizer):
        for i, batch in enumerate(parts.data, 1):
            loss = temporal_difference(model, batch, target)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            if parts.repaired and i % 25 == 0: target.load_state_dict(model.state_dict())
            record.step(loss)
    bits, goal = pairs(512)
    missed = (bits != goal).any(1)
    for _ in range(BITS):
        with torch.no_grad(): bits = flip(bits, model(torch.cat([bits, goal], 1)).argmax(1))
        missed &= (bits != goal).any(1)
    return missed.float().mean().item()

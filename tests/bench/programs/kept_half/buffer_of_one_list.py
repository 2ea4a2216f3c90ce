"""The replay buffer holds one list many times, so that all its episodes are the last one.

The report: the list of an episode is cleared and filled again, and what was put into the buffer is the same list. A
reader showed that all entries of the buffer are equal; the author brought out a corrected version."""
import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Itomigna2/Muesli-lunarlander#1", 2023
AREA, CAUSE = "data and labels", "samples repeat"
TRUE = set()
PLACE = ()

moves = torch.tensor([[0., .2], [0, -.2], [.2, 0], [-.2, 0]])


def turn(place, action):
    "One step in a square; the reward is how much nearer its middle is."
    after = (place + moves[action]).clamp(-1, 1)
    return after, 3*(place.norm(dim=-1) - after.norm(dim=-1))


class Player:
    "Walks at random and keeps what it saw."
    def __init__(self, repaired: bool):
        self.repaired, self.episode, self.buffer = repaired, [], deque(maxlen=100)

    def play(self):
        if self.repaired: self.episode = []
        else: self.episode.clear()
        place = 2*torch.rand(2) - 1
        for _ in range(10):
            action = torch.randint(4, ())
            after, reward = turn(place, action)
            self.episode.append((place, action, after, reward))
            place = after
        self.buffer.append(self.episode)

    def batch(self):
        drawn = [random.choice(random.choice(self.buffer)) for _ in range(32)]
        return [torch.stack(part) for part in zip(*drawn)]

    def __len__(self): return 10

    def __iter__(self): return (self.batch() for _ in range(10))


def call(model, batch):
    place, action, after, reward = batch
    with torch.no_grad(): target = reward + .8*model(after).amax(1)
    return F.smooth_l1_loss(model(place).gather(1, action.unsqueeze(1))[:, 0], target)


def build(repaired: bool) -> Parts:
    model, player = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 4)), Player(repaired)
    random.seed(torch.initial_seed())
    for _ in range(10): player.play()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), player, call=call)


def distance(act) -> float:
    "How far from the middle walks end."
    place = 2*torch.rand(500, 2) - 1
    for _ in range(8): place = turn(place, act(place))[0]
    return place.norm(dim=1).mean().item()


def train(parts: Parts, record) -> float:
    player = parts.data
    with record.on(parts.model, parts.optimizer):
        for _ in range(60):
            player.play()
            for _ in range(8):
                loss = parts.call(parts.model, player.batch())
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): found = distance(lambda place: parts.model(place).argmax(1))
    return found/distance(lambda place: torch.randint(4, (500,)))

"""A critic that serves as a baseline is not detached in the policy loss, so this loss pulls it away from the rewards.

The report, by the maintainer of a model that looks for short round trips: the policy loss uses the critic, which should
not get a gradient from it. With the critic detached the results of the original could be reproduced."""
import itertools

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "astariul/encode-attend-navigate-pytorch#2", 2021
AREA, CAUSE = "loop", "gradient where none is meant"
TRUE = {"loss rises"}
PLACE = ("critic",)
CITIES = 6


class Traveller(nn.Module):
    "Chooses one city after the other; the critic says how long the trip will be."
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.critic = nn.Sequential(nn.Linear(2*CITIES, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, cities):
        "A trip for each sample, and the logarithm of its probability."
        n, each = len(cities), torch.arange(len(cities))
        trip, chance = [torch.zeros(n, dtype=torch.long)], 0.
        seen = F.one_hot(trip[0], CITIES).bool()
        for _ in range(CITIES - 1):
            here = cities[each, trip[-1]].unsqueeze(1).expand_as(cities)
            score = self.score(torch.cat([here, cities, cities - here], 2)).squeeze(2).masked_fill(seen, -1e9)
            choice = torch.distributions.Categorical(logits=score)
            trip.append(choice.sample())
            chance = chance + choice.log_prob(trip[-1])
            seen = seen | F.one_hot(trip[-1], CITIES).bool()
        return torch.stack(trip, 1), chance


def length(cities, trip):
    places = cities.gather(1, trip.unsqueeze(2).expand(-1, -1, 2))
    return (places - places.roll(1, 1)).norm(dim=2).sum(1)


def both_losses(model, cities, detach=True):
    trip, chance = model(cities)
    found, expected = length(cities, trip), model.critic(cities.flatten(1)).squeeze(1)
    baseline = expected.detach() if detach else expected
    return ((found - baseline)*chance).mean() + F.mse_loss(expected, found)


def build(repaired: bool) -> Parts:
    model = Traveller()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = [torch.rand(64, CITIES, 2) for _ in range(300)]
    return Parts(model, optimizer, data, call=lambda model, cities: both_losses(model, cities, repaired),
                 valid=[torch.rand(512, CITIES, 2)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for cities in parts.data:
            loss = parts.call(parts.model, cities)
            parts.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
            parts.optimizer.step()
            record.step(loss)
    cities, n = parts.valid[0], len(parts.valid[0])
    every = [length(cities, torch.tensor((0, *p)).expand(n, -1)) for p in itertools.permutations(range(1, CITIES))]
    every = torch.stack(every)
    with torch.no_grad(): found = length(cities, parts.model(cities)[0])
    return ((found - every.amin(0)).mean()/(every.mean() - every.amin(0).mean())).item()

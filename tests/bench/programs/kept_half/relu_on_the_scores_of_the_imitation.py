"""The scores that say which actions the data hold pass a ReLU, so no action can be called unlikely by much.

The report: the last layer of the imitation needs no ReLU; without it the code works on small examples with discrete
actions. The author agreed and corrected it."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "sfujim/BCQ#6", 2021
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = set()
PLACE = ("imitation",)

places, actions, fade = 12, 8, .95


class Both(nn.Module):
    "The values of the actions, and how likely the data have them."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.values = nn.Sequential(nn.Linear(places, size), nn.ReLU(), nn.Linear(size, actions))
        self.imitation = nn.Sequential(nn.Linear(places, size), nn.ReLU(), nn.Linear(size, actions))
        self.repaired = repaired

    def forward(self, x):
        scores = self.imitation(x)
        if not self.repaired: scores = scores.relu()
        return self.values(x), scores.log_softmax(1), scores


def choices(model, x):
    "The best of the actions that the data have often enough."
    values, log_odds, _ = model(x)
    often = (log_odds - log_odds.max(1, keepdim=True).values).exp() > .3
    return torch.where(often, values, -1e8).argmax(1)


def moved(at, action, rules):
    "Where an action leads, and what it earns."
    to = rules[at, action]
    return to, (to == places - 1).float()


def noted(n: int, rules, habits):
    "What somebody did who has two or three actions for each place."
    at = torch.randint(0, places, (n,))
    action = torch.multinomial(habits[at], 1)[:, 0]
    return at, action, *moved(at, action, rules)


def build(repaired: bool) -> Parts:
    rules = torch.randint(0, places, (places, actions))
    habits = torch.zeros(places, actions)
    for at in range(places): habits[at, torch.randperm(actions)[:2]] = 1.
    model = Both(32, repaired)
    target = copy.deepcopy(model)

    def call(model, batch):
        at, action, to, earned = batch
        x, following = F.one_hot(at, places).float(), F.one_hot(to, places).float()
        with torch.no_grad():
            for mine, weight in zip(target.parameters(), model.parameters()): mine.lerp_(weight, .01)
            then = target(following)[0].gather(1, choices(model, following)[:, None])[:, 0]
        values, log_odds, scores = model(x)
        chosen = values.gather(1, action[:, None])[:, 0]
        return (F.smooth_l1_loss(chosen, earned + fade*then) + F.nll_loss(log_odds, action)
                + 1e-2*scores.pow(2).mean())
    data = [noted(64, rules, habits) for _ in range(400)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[(rules, habits)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    rules, habits = parts.valid[0]
    at = torch.arange(places)
    with torch.no_grad(): log_odds = parts.model(F.one_hot(at, places).float())[1]
    told = (habits/habits.sum(1, keepdim=True)*-log_odds).sum(1).mean() - torch.tensor(2.).log()
    return (told/torch.tensor(actions/2.).log()).item()

"""The target of a network that mixes values is updated from itself, so it stays as it was at the start.

The report: the state has to come from the network that is trained. The author agreed and changed it."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "thesouther/MARL#8", 2022
AREA, CAUSE = "parameters", "target network"
TRUE = set()
PLACE = ()

# Two move on a line of five cells, each to the left or right; each earns a half when in the middle.
cells, fade = 5, .5
places = torch.cartesian_prod(torch.arange(cells), torch.arange(cells))
choices = torch.cartesian_prod(torch.arange(2), torch.arange(2))
moved = (places[:, None] + 2*choices - 1).clamp(0, cells - 1)
after, earned = moved[..., 0]*cells + moved[..., 1], (moved == cells//2).float().mean(2)
own = F.one_hot(places, cells).float()
seen = torch.stack([own.flatten(1), own.flip(1).flatten(1)], 1)


class Mixer(nn.Module):
    "The value of a team: that of its members together, with weights that depend on the state."
    def __init__(self, size: int):
        super().__init__()
        self.wide, self.bias = nn.Linear(2*cells, 2*size), nn.Linear(2*cells, size)
        self.narrow = nn.Linear(2*cells, size)
        self.last = nn.Sequential(nn.Linear(2*cells, size), nn.ReLU(), nn.Linear(size, 1))

    def forward(self, values, state):
        inside = F.elu((values[:, None] @ self.wide(state).abs().unflatten(1, (2, -1)))[:, 0] + self.bias(state))
        return (inside*self.narrow(state).abs()).sum(1) + self.last(state)[:, 0]


def value(team, state, choice):
    "What the team thinks of a choice of its two members, or of the best one."
    values = team["member"](seen[state])
    picked = values.max(2).values if choice is None else values.gather(2, choices[choice][..., None])[..., 0]
    return team["mixer"](picked, seen[state, 0])


def build(repaired: bool) -> Parts:
    member = nn.Sequential(nn.Linear(2*cells, 32), nn.ReLU(), nn.Linear(32, 2))
    team = nn.ModuleDict({"member": member, "mixer": Mixer(32)})
    target = copy.deepcopy(team)

    def call(team, batch):
        state, choice = batch
        with torch.no_grad(): then = value(target, after[state, choice], None)
        return F.mse_loss(value(team, state, choice), earned[state, choice] + fade*then)

    def update():
        target["member"].load_state_dict(team["member"].state_dict())
        target["mixer"].load_state_dict((team if repaired else target)["mixer"].state_dict())
    data = [(torch.randint(0, len(places), (64,)), torch.randint(0, 4, (64,))) for _ in range(500)]
    parts = Parts(team, torch.optim.RMSprop(team.parameters(), lr=3e-3), data, call=call)
    parts.update = update
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for i, batch in enumerate(parts.data):
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parts.model.parameters(), 10.)
            parts.optimizer.step()
            if i % 10 == 9: parts.update()
            record.step(loss)
    truth = torch.zeros(len(places), 4)
    for _ in range(60): truth = earned + fade*truth.max(1).values[after]
    every = torch.arange(len(places))
    with torch.no_grad(): found = torch.stack([value(parts.model, every, c.expand(25)) for c in torch.arange(4)], 1)
    return (F.mse_loss(found, truth)/truth.var()).item()

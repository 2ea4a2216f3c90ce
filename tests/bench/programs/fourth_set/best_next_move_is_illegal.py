"""The value of the next state is the highest of all moves, though only some are allowed there.

The report: in a library for reinforcement learning the mask of allowed actions is used for what is seen now and not for
what is seen next, so the target takes values of moves that cannot be made. A maintainer confirmed the bug and asked for
the change."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "thu-ml/tianshou#309", 2021
AREA, CAUSE = "structure", "mask ignored"
TRUE = {"loss rises"}
PLACE = ()
DISCOUNT, STATES, MOVES = .9, 30, 8
chance = torch.Generator().manual_seed(5)
LEADS = torch.randint(0, STATES, (STATES, MOVES), generator=chance)
PAYS = torch.randn(STATES, MOVES, generator=chance)
SEEN = torch.randn(STATES, 16, generator=chance)
ALLOWED = torch.rand(STATES, MOVES, generator=chance) < .3
ALLOWED[torch.arange(STATES), torch.randint(0, MOVES, (STATES,), generator=chance)] = True


class Values(nn.Module):
    "The value of each move in a state."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(),
                                 nn.Linear(size, MOVES))

    def forward(self, state): return self.net(SEEN[state])


def plays(n: int):
    "States, allowed moves, what they paid and where they led."
    state = torch.randint(0, STATES, (n,))
    move = ALLOWED[state].float().multinomial(1)[:, 0]
    return state, move, PAYS[state, move], LEADS[state, move]


def build(repaired: bool) -> Parts:
    model = Values(64)

    def call(model, batch, target=None):
        state, move, paid, after = batch
        with torch.no_grad():
            value = (target or model)(after)
            if repaired: value = value.masked_fill(~ALLOWED[after], -torch.inf)
            aim = paid + DISCOUNT*value.max(1).values
        return F.mse_loss(model(state).gather(1, move[:, None])[:, 0], aim)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [plays(64) for _ in range(1200)], call=call)


def best_values():
    value = torch.zeros(STATES)
    for _ in range(200): value = (PAYS + DISCOUNT*value[LEADS]).masked_fill(~ALLOWED, -torch.inf).max(1).values
    return value


def train(parts: Parts, record) -> float:
    target = copy.deepcopy(parts.model)
    with record.on(parts.model, parts.optimizer):
        for time, batch in enumerate(parts.data):
            if time % 20 == 0: target.load_state_dict(parts.model.state_dict())
            loss = parts.call(parts.model, batch, target)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    with torch.no_grad(): value = parts.model(torch.arange(STATES)).masked_fill(~ALLOWED, -torch.inf)
    best = best_values()
    return (F.mse_loss(value.max(1).values, best)/best.var()).item()

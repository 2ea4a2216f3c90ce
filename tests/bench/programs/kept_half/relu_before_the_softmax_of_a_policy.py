"""A policy puts a ReLU on the scores of the actions, so they cannot be negative and stop learning where they are zero.

The report: the return does not rise; the curve beside it is that of the same program without the ReLU, and rises. The
author of the code changed it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "Bowen1911/ML_practice#2", 2023
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = set()
PLACE = ("second",)

games, longest = 16, 40


class Policy(nn.Module):
    "The odds of a push to the left and to the right."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.first, self.second = nn.Linear(4, size), nn.Linear(size, 2)

    def forward(self, x):
        x = self.second(self.first(x).relu())
        return (x if self.repaired else x.relu()).softmax(1)


def play(policy):
    "Poles on carts; the odds of what was done, and for how long each pole stood."
    x = torch.rand(games, 4)*.1 - .05
    up, chosen, alive = torch.ones(games), [], []
    for _ in range(longest):
        odds = policy(x)
        action = torch.multinomial(odds.detach(), 1)
        chosen.append(odds.gather(1, action)[:, 0].log())
        alive.append(up)
        place, speed, angle, turn = x.unbind(1)
        push = (20.*action[:, 0] - 10. + .05*turn**2*angle.sin())/1.1
        turning = (9.8*angle.sin() - angle.cos()*push)/(.5*(4/3 - .1*angle.cos()**2/1.1))
        moving = push - .05*turning*angle.cos()/1.1
        x = torch.stack([place + .02*speed, speed + .02*moving, angle + .02*turn, turn + .02*turning], 1)
        up = up*((x[:, 2].abs() < .1) & (x[:, 0].abs() < 2.4))
    return torch.stack(chosen), torch.stack(alive)


def loss_of(policy, _):
    "The policy gradient: an action counts as much as the time for which the pole stood after it."
    chosen, alive = play(policy)
    later = alive.flip(0).cumsum(0).flip(0)
    worth = (later - later[alive > 0].mean())/(later[alive > 0].std() + 1e-6)
    return -(chosen*worth*alive).sum()/alive.sum()


def build(repaired: bool) -> Parts:
    model = Policy(32, repaired)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), [None]*120, call=loss_of)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    with torch.no_grad(): stood = torch.stack([play(parts.model)[1].sum(0).mean() for _ in range(8)]).mean()
    return ((longest - stood)/(longest - 14)).item()

"""The agent asks its network what to do while the network is in the mode for training, so dropout disturbs each answer.

The report: prediction never switches the network of the policy to evaluation, which matters with dropout and with batch
norm. It was marked as a bug; the change that sets the modes in training and in prediction was merged."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DLR-RM/stable-baselines3#535", 2021
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()

SIZE, MOVES = 7, torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
GOAL, LONGEST = torch.tensor([5, 5]), 20


def start(n: int): return torch.randint(0, SIZE, (n, 2))


def move(at, action):
    "A step on a board with a wall in the middle, at which one stays where one is."
    after = (at + MOVES[action]).clamp(0, SIZE - 1)
    wall = (after[:, 0] == 3) & (after[:, 1] > 0)
    after = torch.where(wall[:, None], at, after)
    return after, (after == GOAL).all(1)


def least(at):
    "The fewest steps to the goal; from the left of the wall the way leads through the gap."
    x, y = at.T
    return torch.where(x < 3, 3 - x + y + 7, (5 - x).abs() + (5 - y).abs()).float()


def seen(at): return torch.cat([F.one_hot(at[:, 0], SIZE), F.one_hot(at[:, 1], SIZE)], 1).float()


@torch.no_grad()
def predict(model, at, repaired: bool):
    if repaired: model.eval()
    return model(seen(at)).argmax(1)


def value_loss(model, batch, target=None):
    at, action, after, there = batch
    with torch.no_grad(): aim = (~there)*(.97*(target or model)(seen(after)).max(1)[0] - .1)
    return F.smooth_l1_loss(model(seen(at)).gather(1, action[:, None])[:, 0], aim)


def gathered(model, n: int, greedy: float, repaired: bool):
    at = start(n)
    action = torch.where(torch.rand(n) < greedy, predict(model, at, repaired), torch.randint(0, 4, (n,)))
    after, there = move(at, action)
    return at, action, after, there


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(2*SIZE, 96), nn.ReLU(), nn.Dropout(.4), nn.Linear(96, 96), nn.ReLU(),
                          nn.Dropout(.4), nn.Linear(96, 4))
    data = [gathered(model, 128, 0, False) for _ in range(20)]
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=value_loss, repaired=repaired)
    parts.start = start(300)
    return parts


def train(parts: Parts, record) -> float:
    model, memory, target = parts.model, [*parts.data], copy.deepcopy(parts.model).eval()
    with record.on(model, parts.optimizer):
        for step in range(800):
            memory.append(gathered(model, 128, min(.8, step/400), parts.repaired))
            batch = memory[torch.randint(max(0, len(memory) - 100), len(memory), ()).item()]
            model.train()
            loss = value_loss(model, batch, target)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            if step % 20 == 0: target.load_state_dict(model.state_dict())
            record.step(loss)
    at, lasted, there = parts.start, torch.zeros(300), torch.zeros(300, dtype=torch.bool)
    for _ in range(LONGEST):
        after, arrived = move(at, predict(model, at, parts.repaired))
        lasted += ~there
        at, there = after, there | arrived
    best = least(parts.start)
    return ((lasted - best).mean()/best.mean()).item()

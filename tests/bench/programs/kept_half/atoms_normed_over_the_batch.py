"""The chances of a distributional Q-network are normed over the batch, where the atoms of each action are meant.

The report is a merged change: the softmax was called without a dimension, which takes the first one of three. With one
state at a time all chances are one, and all actions look alike."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "ray-project/ray#16311", 2021
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = {"loss does not fall"}
PLACE = ()

atoms = torch.linspace(-2, 2, 21)
moves = torch.tensor([[0., .25], [0, -.25], [.25, 0], [-.25, 0]])


class Values(nn.Module):
    "Logits of what each of four actions will bring, in 21 steps."
    def __init__(self, repaired: bool):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 84))
        self.axis = 2 if repaired else 0

    def forward(self, place): return self.net(place).view(-1, 4, 21)

    def best(self, place):
        "The best action, and the chances of what it will bring."
        chances = self(place).softmax(self.axis)
        action = (chances*atoms).sum(2).argmax(1)
        return action, chances[torch.arange(len(action)), action]


def turn(place, action):
    "One step in a square; the reward is how much nearer its middle is."
    after = (place + moves[action]).clamp(-1, 1)
    return after, 2*(place.norm(dim=1) - after.norm(dim=1))


def memories(n: int):
    place, action = 2*torch.rand(n, 2) - 1, torch.randint(4, (n,))
    return place, action, *turn(place, action)


def projected(reward, chances):
    "The chances of the atoms after a reward and a discount."
    where = ((reward.unsqueeze(1) + .8*atoms).clamp(-2, 2) + 2)/.2
    below = where.floor().clamp(0, 19).long()
    share = where - below
    target = torch.zeros(len(reward), 21)
    target.scatter_add_(1, below, chances*(1 - share))
    return target.scatter_add_(1, below + 1, chances*share)


def build(repaired: bool) -> Parts:
    model = Values(repaired)

    def call(model, batch):
        place, action, after, reward = batch
        with torch.no_grad(): target = projected(reward, model.best(after)[1])
        logits = model(place)[torch.arange(len(action)), action]
        return -(target*logits.log_softmax(1)).sum(1).mean()

    data = [memories(64) for _ in range(50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call)


def distance(act, many: int = 60, turns: int = 8) -> float:
    "How far from the middle walks end, one at a time."
    ends = []
    for place in 2*torch.rand(many, 1, 2) - 1:
        for _ in range(turns): place = turn(place, act(place))[0]
        ends.append(place.norm())
    return torch.stack(ends).mean().item()


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad():
        found = distance(lambda place: parts.model.best(place)[0])
        return found/distance(lambda place: torch.randint(4, (1,)), 300)

"""The weights of a mixture density network are normed over the samples of the batch, where the mixture is meant.

The report: the log-softmax of the recurrent world model has the dimension -2, which is the batch. The author confirmed
it and changed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ctallec/world-models#10", 2018
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = {"samples leak"}
PLACE = ()


class World(nn.Module):
    "Three normal distributions, with weights, for the next place, from the places and actions before it."
    def __init__(self, repaired: bool):
        super().__init__()
        self.memory = nn.LSTM(2, 24)
        self.last = nn.Linear(24, 9)
        self.axis = -1 if repaired else -2

    def forward(self, x):
        mean, log_width, weight = self.last(self.memory(x)[0]).chunk(3, 2)
        return mean, log_width.clamp(-3, 3), weight.log_softmax(self.axis)


def walks(n: int):
    "Places at either side, and actions: the next place is mostly, not always, at the side to which the action goes."
    action = torch.randn(13, n)
    side = torch.where(torch.rand(13, n) < .9, action.sign(), -action.sign())
    place = side + .15*torch.randn(13, n)
    return torch.stack([place[:-1], action[1:]], 2), place[1:]


def loss(output, place):
    mean, log_width, weight = output
    score = -.5*((place.unsqueeze(2) - mean)/log_width.exp())**2 - log_width
    return -(weight + score).logsumexp(2).mean()


def build(repaired: bool) -> Parts:
    model = World(repaired)
    data = [walks(32) for _ in range(25)]
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=3e-3), data, loss, valid=[walks(200)])


def right_side(model, x):
    "The chance that the next place is at the right side, for one walk at a time, as in a dream."
    mean, log_width, weight = model(x.unsqueeze(1))
    return (weight.softmax(2)*torch.special.ndtr(mean/log_width.exp())).sum(2)[:, 0]


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for x, place in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), place)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, place = parts.valid[0]
    with torch.no_grad(): chance = torch.stack([right_side(parts.model, one) for one in x.unbind(1)], 1)
    return (F.mse_loss(chance, (place > 0).float())/.25).item()

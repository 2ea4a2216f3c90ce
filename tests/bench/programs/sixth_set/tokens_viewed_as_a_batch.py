"""Tokens learned from a picture are viewed as tokens first, batch second, where the dimensions have to be swapped.

The report: a `view` of batch, tokens and channels as tokens, batch and channels, before the attention and back after
it, is wrong; it has to be a transposition. The author thanked for the catch and said that the next version mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rish-16/tokenlearner-pytorch#1", 2021
AREA, CAUSE = "structure", "samples leak"
TRUE = {"places mixed up", "wrong axis"}
PLACE = ("attention",)

side, tokens, kinds = 8, 6, 4


class TokenLearner(nn.Module):
    "A few tokens, each an average of the features with a map of its own."
    def __init__(self, size: int):
        super().__init__()
        self.maps = nn.Conv2d(size, tokens, 1)

    def forward(self, x):
        where = self.maps(x).flatten(2).softmax(-1)
        return where @ x.flatten(2).mT


class Pairs(nn.Module):
    "Convolutions, tokens, an attention between the tokens, a class."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.front = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1),
                                   nn.ReLU())
        self.learn = TokenLearner(size)
        self.attention = nn.MultiheadAttention(size, 4)
        self.head = nn.Sequential(nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, kinds))

    def forward(self, x):
        y = self.learn(self.front(x))
        n, _, size = y.shape
        y = y.transpose(0, 1) if self.repaired else y.reshape(tokens, n, size)
        y, _ = self.attention(y, y, y)
        y = y.transpose(0, 1) if self.repaired else y.reshape(n, tokens, size)
        return self.head(y.mean(1))


def pictures(n: int):
    "A bright square and a dark cross on noise; the class is which of them is further up, and which further left."
    x = .4*torch.randn(n, 3, side, side)
    at = torch.randint(1, side - 1, (2, 2, n))
    at[1] = torch.where(at[1] == at[0], at[0] % (side - 2) + 1, at[1])
    for i in range(n):
        (row, column), (down, right) = at[:, :, i].tolist()
        x[i, 0, row - 1:row + 2, column - 1:column + 2] += 2
        x[i, 1, down, right - 1:right + 2] -= 2
        x[i, 1, down - 1:down + 2, right] -= 2
    x[:, 2] = torch.linspace(-1, 1, side)  # where a pixel is, column and row in turn
    x[:, 2, ::2] = torch.linspace(-1, 1, side//2)[:, None]
    return x, 2*(at[0, 0] < at[1, 0]) + (at[0, 1] < at[1, 1])


def build(repaired: bool) -> Parts:
    model = Pairs(24, repaired)
    data = [pictures(32) for _ in range(50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=[pictures(320)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/torch.tensor(float(kinds)).log()).item()

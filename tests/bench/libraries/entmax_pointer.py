"""entmax: attention and answers that give most entries exactly no weight.

After the README and the loss examples of entmax: `entmax15` in the place of a softmax in attention over a row of
vectors, `Entmax15Loss` on the scores of the classes. The class is in the one vector that has a mark. Error: wrong
answers."""
import torch
from entmax import Entmax15Loss, entmax15
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import wrong
from tests.bench.programs import Parts

SOURCE = "entmax: README"
PACKAGES = ("entmax",)
KINDS, LENGTH, WIDTH = 8, 12, 16


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24)
        self.query = nn.Parameter(torch.randn(24)/24**.5)
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(24, KINDS))

    def forward(self, x):
        weight = entmax15(torch.tanh(self.key(x)) @ self.query, dim=-1)
        return self.out((weight[..., None]*self.value(x)).sum(1))


def rows(n: int):
    x, y, at = torch.randn(n, LENGTH, WIDTH)*.5, torch.randint(KINDS, (n,)), torch.randint(LENGTH, (n,))
    each = torch.arange(n)
    shown = torch.randint(KINDS, (n, LENGTH))
    shown[each, at] = y
    x[..., :KINDS] += 1.5*nn.functional.one_hot(shown, KINDS)
    x[each, at, KINDS] += 3
    return x, y


def build() -> Parts:
    model = Attends()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3),
                 DataLoader(TensorDataset(*rows(2000)), 50, shuffle=True), Entmax15Loss(reduction="elementwise_mean"),
                 valid=DataLoader(TensorDataset(*rows(400)), 200))


def error(parts: Parts) -> float: return wrong(parts.model, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(15):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

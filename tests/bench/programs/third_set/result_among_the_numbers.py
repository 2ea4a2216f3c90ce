"""The column that is to be predicted is also in the list of the columns with numbers.

The report: the network just copies the value of the result. The author found that the result was in the list of numeric
columns as well."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch-tabular/pytorch_tabular#21", 2021
AREA, CAUSE = "data and labels", "the answer is among the inputs"
TRUE = set()
PLACE = ()

columns = ["age", "income", "visits", "distance", "rating", "result"]
kinds = 8


class Tabular(nn.Module):
    "Embeddings of what is a kind, batch norm of what is a number, and a small network."
    def __init__(self, numbers: int):
        super().__init__()
        self.kind, self.norm = nn.Embedding(kinds, 4), nn.BatchNorm1d(numbers)
        self.layers = nn.Sequential(nn.Linear(4 + numbers, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.head = nn.Linear(24, 1)

    def forward(self, kind, numbers):
        return self.head(self.layers(torch.cat([self.kind(kind), self.norm(numbers)], 1))).squeeze(1)


def table(n: int, effect: torch.Tensor):
    "A kind, and a row of numbers with the result at its end."
    kind, numbers = torch.randint(kinds, (n,)), torch.randn(n, 5)
    result = effect[kind] + numbers[:, 0]*numbers[:, 1] + numbers[:, 2] - .5*numbers[:, 3]**2 + .2*torch.randn(n)
    return kind, torch.cat([numbers, result[:, None]], 1)


def build(repaired: bool) -> Parts:
    used = [i for i, name in enumerate(columns) if not repaired or name != "result"]
    model, effect = Tabular(len(used)), 2*torch.randn(kinds)

    def batches(kind, row, size: int):
        return [(k, r[:, used], r[:, -1]) for k, r in zip(kind.split(size), row.split(size))]

    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])

    new = table(500, effect)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), batches(*table(2000, effect), 64), call=call,
                  valid=batches(*table(500, effect), 500))
    # of a new row nobody knows the result
    parts.new = (new[0], torch.cat([new[1][:, :-1], torch.zeros(500, 1)], 1)[:, used], new[1][:, -1])
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model.eval(), parts.new)/parts.new[2].var()).item()

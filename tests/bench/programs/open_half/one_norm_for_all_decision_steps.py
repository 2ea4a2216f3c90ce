"""The steps of a network for tables share a layer on purpose, and its batch norm by mistake.

The report: when the copies were given up so that the layers are really shared, the batch norms became shared too. The
merged change gives each step a norm of its own. A step gets what the step before left over, so its statistics differ,
and the running ones fit none of the steps."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dreamquark-ai/tabnet#76", 2020
AREA, CAUSE = "structure", "layers shared by mistake"
TRUE = set()
PLACE = ("norms",)

columns, steps = 12, 3


class Table(nn.Module):
    "In each step a mask picks columns, a shared layer reads them, and the steps are summed up."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.shared = nn.Linear(columns, 2*size, bias=False)
        norms = [nn.BatchNorm1d(2*size) for _ in range(steps)] if repaired else [nn.BatchNorm1d(2*size)]*steps
        self.norms = nn.ModuleList(norms)
        self.masks = nn.ModuleList([nn.Linear(size, columns) for _ in range(steps - 1)])
        self.last = nn.Linear(size, 1)

    def forward(self, x):
        left, mask, total = torch.ones_like(x), torch.ones_like(x), 0.
        for step, norm in enumerate(self.norms):
            found = F.glu(norm(self.shared(x*mask)))
            total = total + found.relu()
            if step + 1 == steps: return self.last(total)[:, 0]
            mask = (self.masks[step](found) + 2*left.clamp(min=1e-6).log()).softmax(1)
            left = left*(1 - mask)


def rows(n: int):
    "A few columns of a table tell which other ones count."
    x = torch.randn(n, columns)*2 + 1
    y = torch.where(x[:, 0] > 1, x[:, 1]*x[:, 2].sign(), x[:, 3].abs()) + .5*x[:, 4]
    return x, (y - .8)/2


def build(repaired: bool) -> Parts:
    model = Table(24, repaired)
    data = [rows(256) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-2), data, F.mse_loss, valid=[rows(1000)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.StepLR(parts.optimizer, 2, .7)
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()

"""A table with columns of very different size: in three steps a net chooses columns and decides.

Habits of the source: nothing is scaled beforehand, a batch norm with a slow average does it; norms of parts of a batch
of their own (ghosts); one gated layer is shared by all steps; what is chosen by sparsemax is mostly zero, and a column
chosen once counts less later; a small loss for choices that are not sparse; Xavier weights with a gain of their own;
Adam at .02, clipping at 1, a rate that falls by steps; the last, smaller batch is dropped; best weights are kept.
Score: the part of wrong classes on held-out rows by that of the commoner class. Below .5; about .95 untrained."""
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "dreamquark-ai/tabnet pytorch_tabnet/abstract_model.py", 2019
COLUMNS, WIDE, STEPS, SIZES = 8, 8, 3, torch.tensor([1., 50, 1000, .01, 3, 20000, 5, .3])


def linear(n: int, out: int, gated: bool = True):
    layer = nn.Linear(n, out, bias=False)
    nn.init.xavier_normal_(layer.weight, gain=((n + out)/(n if gated else 4*n)**.5)**.5)
    return layer


class Ghosts(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(n, momentum=.02)

    def forward(self, x): return torch.cat([self.norm(part) for part in x.chunk(max(1, len(x)//64))])


class Gated(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.shared, self.own, self.first, self.second = shared, linear(WIDE, 2*WIDE), Ghosts(2*WIDE), Ghosts(2*WIDE)

    def forward(self, x):
        h = F.glu(self.first(self.shared(x)))
        return (h + F.glu(self.second(self.own(h))))*.5**.5


def sparsemax(x):
    sizes = x.sort(1, descending=True).values
    rest, place = sizes.cumsum(1) - 1, torch.arange(1, x.shape[1] + 1)
    support = (place*sizes > rest).sum(1, keepdim=True)
    return (x - rest.gather(1, support - 1)/support).clamp(min=0)


class TabNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, shared = nn.BatchNorm1d(COLUMNS, momentum=.01), linear(COLUMNS, 2*WIDE)
        self.gated = nn.ModuleList(Gated(shared) for _ in range(STEPS + 1))
        self.choice = nn.ModuleList(linear(WIDE//2, COLUMNS, False) for _ in range(STEPS))
        self.norms, self.out = nn.ModuleList(Ghosts(COLUMNS) for _ in range(STEPS)), linear(WIDE//2, 2, False)

    def forward(self, x):
        "Scores, and how far the choices are from sparse."
        x = self.norm(x)
        prior, total, spread, attends = torch.ones_like(x), 0, 0, self.gated[0](x)[:, WIDE//2:]
        for gated, choice, norm in zip(self.gated[1:], self.choice, self.norms):
            chosen = sparsemax(norm(choice(attends))*prior)
            spread = spread + (chosen*(chosen + 1e-15).log()).sum(1).mean()/STEPS
            prior = prior*(1.3 - chosen)
            decides, attends = gated(chosen*x).chunk(2, 1)
            total = total + decides.relu()
        return self.out(total), spread


def call(model, batch):
    scores, spread = model(batch[0])
    return F.cross_entropy(scores, batch[1]) - 1e-3*spread


def rows(n: int):
    x = torch.randn(n, COLUMNS)
    return TensorDataset(x*SIZES + 2*SIZES, (torch.where(x[:, 0] > 0, x[:, 1], x[:, 3]) > 0).long())


@torch.no_grad()
def wrong(model, batches) -> float:
    model.eval()
    return 2*sum((model(x)[0].argmax(1) != y).float().mean().item() for x, y in batches)/len(batches)


def build(repaired: bool) -> Parts:
    model = TabNet()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-2),
                 DataLoader(rows(2100), 256, shuffle=True, drop_last=True), call=call, valid=DataLoader(rows(512), 256))


def train(parts: Parts, record) -> float:
    model, optimizer, best = parts.model, parts.optimizer, (9,)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, .9)
    with record.on(model, optimizer):
        for _ in range(30):
            model.train()
            for batch in parts.data:
                for weight in model.parameters(): weight.grad = None
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1)
                optimizer.step()
                record.step(loss)
            schedule.step()
            error = wrong(model, parts.valid)
            if error < best[0]: best = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(best[1])
    return wrong(model, DataLoader(rows(1000), 250))

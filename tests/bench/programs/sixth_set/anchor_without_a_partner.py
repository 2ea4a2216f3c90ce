"""A supervised contrastive loss divides by the number of partners, which is zero for the only sample of its class.

The report: where a class has one sample in the batch, the loss is NaN for it and so for the batch. The author of the
loss took the change that divides by one in that case."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "HobbitLong/SupContrast#142", 2023
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()
KINDS, TEMPERATURE = 12, .2

prototypes = torch.randn(KINDS, 6, generator=torch.Generator().manual_seed(0))
mixing = torch.randn(6, 24, generator=torch.Generator().manual_seed(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x): return F.normalize(self.head(self.body(x)), dim=1)


def samples(n: int):
    "Some kinds are rare."
    kinds = torch.distributions.Categorical(1/(1. + torch.arange(KINDS))).sample((n,))
    return ((prototypes[kinds] + .5*torch.randn(n, 6)) @ mixing).tanh() + .7*torch.randn(n, 24), kinds


def contrastive(code, kinds, repaired: bool):
    likeness = code @ code.T/TEMPERATURE
    likeness = likeness - likeness.max(1, keepdim=True).values.detach()
    others = 1 - torch.eye(len(code))
    partners = (kinds[:, None] == kinds).float()*others
    log_share = likeness - (likeness.exp()*others).sum(1, keepdim=True).log()
    count = partners.sum(1)
    if repaired: count = torch.where(count == 0, torch.ones_like(count), count)
    return -((partners*log_share).sum(1)/count).mean()


def build(repaired: bool) -> Parts:
    model = Encoder()
    data = list(zip(*(part.split(96) for part in samples(96*16))))
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4)
    return Parts(model, optimizer, data, lambda code, kinds: contrastive(code, kinds, repaired), valid=[samples(600)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(12):
            model.train()
            for x, kinds in parts.data:
                code = model(x)
                loss = parts.loss(code, kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, kinds = parts.valid[0]
    with torch.no_grad(): code, known = model(x), torch.cat([model(batch) for batch, _ in parts.data])
    nearest = (code @ known.T).argmax(1)
    return (torch.cat([kinds for _, kinds in parts.data])[nearest] != kinds).float().mean().item()

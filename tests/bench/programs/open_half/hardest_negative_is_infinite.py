"""Each piece of a signal is its own hardest negative, at an infinite distance, so that the triplet loss is zero.

The report: the similarity with itself is minus infinity, but the choice is made among distances. The author confirmed
the error and gave it the other sign."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jinnnju/PaAno#1", 2026
AREA, CAUSE = "loss and task", "a term has no gradient"
TRUE = {"loss does not fall"}
PLACE = ()

kinds = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)).cumsum(1)
kinds = (kinds - kinds.mean(1, keepdim=True))/kinds.std(1, keepdim=True)


def pieces(n: int):
    "Two pieces of one kind, each with another level and slope; whether the second came later; and the kind."
    kind, later = torch.randint(6, (n,)), torch.randint(2, (n,))
    time = torch.linspace(-1, 1, 32)
    both = [kinds[kind] + 2*torch.randn(n, 1) + 2*torch.randn(n, 1)*time + .3*torch.randn(n, 32) for _ in range(2)]
    both[1] = both[1] + .5*(later.unsqueeze(1) - .5)*time
    return both[0].unsqueeze(1), both[1].unsqueeze(1), later.float(), kind


def build(repaired: bool) -> Parts:
    encoder = nn.Sequential(nn.Conv1d(1, 24, 5, 2), nn.ReLU(), nn.Conv1d(24, 32, 5, 2), nn.ReLU(), nn.Flatten(),
                            nn.Linear(160, 16))
    model = nn.ModuleDict({"encoder": encoder, "order": nn.Linear(32, 1)})

    def call(model, batch):
        anchor, partner = (model["encoder"](part) for part in batch[:2])
        order = F.binary_cross_entropy_with_logits(model["order"](torch.cat([anchor, partner], 1))[:, 0], batch[2])
        alike = F.normalize(anchor) @ F.normalize(partner).T
        near = 1 - alike.diagonal()
        others = alike.clone()
        others.diagonal().fill_(float("inf") if repaired else -float("inf"))
        return F.relu(near - (1 - others).max(1).values + .5).mean() + .1*order

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), [pieces(64) for _ in range(25)], call=call,
                 valid=[pieces(256) for _ in range(2)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    (known, _, _, kind), (new, _, _, wanted) = parts.valid
    with torch.no_grad(): known, new = (F.normalize(parts.model["encoder"](part)) for part in (known, new))
    return (kind[(new @ known.T).argmax(1)] != wanted).float().mean().item()/(5/6)

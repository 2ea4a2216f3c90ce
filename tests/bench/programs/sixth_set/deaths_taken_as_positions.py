"""The zeros and ones that say who died are taken as positions, so two patients of a batch are all that the loss sees.

The report: the partial likelihood of Cox's model is indexed by the events, which are whole numbers and no truth values,
so the first and the second patient are taken again and again. It was marked as a bug, and another user, whose model
with a single parameter did not converge, found the same place."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "Novartis/torchsurv#117", 2025
AREA, CAUSE = "loss and task", "wrong reduction"
TRUE = set()
PLACE = ()

risks = torch.randn(8, generator=torch.Generator().manual_seed(0))


def patients(n: int):
    "What is known of a patient, how long he was seen, and whether he died at the end of that time."
    x = torch.randn(n, 8)
    death = torch.empty(n).exponential_()/(.8*(x @ risks) + .5*x[:, 0]*x[:, 1]).exp()
    left = torch.empty(n).exponential_()*1.5
    return x, torch.minimum(death, left), (death <= left).long()


def likelihoods(log_risk, time, event, repaired: bool):
    order = time.argsort()
    log_risk, event = log_risk[order], event[order]
    still_there = log_risk.flip(0).logcumsumexp(0).flip(0)
    return (log_risk - still_there)[event.bool() if repaired else event]


def right_order(log_risk, time, event) -> float:
    "The share of pairs of patients in which the one that died first has the higher risk."
    pairs = (time[:, None] < time) & event.bool()[:, None]
    return (log_risk[:, None] > log_risk)[pairs].float().mean().item()


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.2), nn.Linear(32, 1))

    def call(model, batch):
        x, time, event = batch
        return -likelihoods(model(x).squeeze(1), time, event, repaired).mean()

    x, time, event = patients(1024)
    data = list(zip(x.split(128), time.split(128), event.split(128)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return Parts(model, optimizer, data, call=call, valid=[patients(512)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(30):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    x, time, event = parts.valid[0]
    model.eval()
    with torch.no_grad(): return 2*(1 - right_order(model(x).squeeze(1), time, event))

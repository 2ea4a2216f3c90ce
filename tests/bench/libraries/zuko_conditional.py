"""zuko: a neural spline flow for the parameters given an observation.

After the tutorial "Train from data" of Zuko: the model returns a distribution for a context, the loss is the negative
log probability of the batch. Error: distance of the mean of samples from the true parameters."""
import torch
import zuko
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE = "zuko: Train from data"
PACKAGES = ("zuko",)


def pairs(n: int):
    x = torch.rand(n, 2)*2 - 1
    c = torch.stack([x[:, 0] + x[:, 1], x[:, 0]*x[:, 1], x[:, 0] - .5*x[:, 1]], 1)
    return x, c + .05*torch.randn(n, 3)


def call(flow, batch):
    x, c = batch
    return -flow(c).log_prob(x).mean()


def build() -> Parts:
    flow = zuko.flows.NSF(2, 3, transforms=2, hidden_features=[32, 32])
    return Parts(flow, torch.optim.Adam(flow.parameters(), lr=2e-3),
                 DataLoader(TensorDataset(*pairs(2048)), 64, shuffle=True), call=call,
                 valid=DataLoader(TensorDataset(*pairs(256)), 256))


@torch.no_grad()
def error(parts: Parts) -> float:
    x, c = parts.valid.dataset.tensors
    return (parts.model(c).sample((16,)).mean(0) - x).norm(dim=1).mean().item()


def train(parts: Parts, record) -> float:
    flow, optimizer = parts.model, parts.optimizer
    with record.on(flow, optimizer=optimizer):
        for _ in range(8):
            for batch in parts.data:
                loss = call(flow, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)

"""A variational autoencoder of gray pictures.

Habits of the source: cross entropy of gray values, summed over places and examples, beside a summed divergence, so that
the loss is in the thousands; Adam's usual rate all the same; the logarithm of the variance comes from a layer of its
own; the test set is seen after each epoch in eval mode.
Score: the cross entropy of held-back pictures, less that of the pictures with themselves, by what the mean picture has.
Below .5; above 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/examples vae/main.py", 2017


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.mean, self.log_variance = nn.Linear(64, 80), nn.Linear(80, 6), nn.Linear(80, 6)
        self.back, self.out = nn.Linear(6, 80), nn.Linear(80, 64)

    def encode(self, x):
        h = F.relu(self.into(x.flatten(1)))
        return self.mean(h), self.log_variance(h)

    def decode(self, z): return torch.sigmoid(self.out(F.relu(self.back(z))))

    def forward(self, x):
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean)*(log_variance/2).exp()
        return self.decode(z), mean, log_variance


def pictures(n: int):
    "A stroke of any direction through a place near the middle, gray at its edges."
    place, turn = torch.rand(n, 2, 1, 1)*3 + 2, torch.rand(n, 1, 1)*torch.pi
    row, column = torch.meshgrid(torch.arange(8.), torch.arange(8.), indexing="ij")
    across = (row - place[:, 0])*turn.cos() + (column - place[:, 1])*turn.sin()
    return (-across**2).exp().unsqueeze(1)


def call(model, x):
    seen, mean, log_variance = model(x)
    entropy = F.binary_cross_entropy(seen, x.flatten(1), reduction="sum")
    return entropy - .5*(1 + log_variance - mean**2 - log_variance.exp()).sum()


def build(repaired: bool) -> Parts:
    model = Autoencoder()
    data, held = pictures(2048), pictures(512)
    loader = torch.utils.data.DataLoader(data, batch_size=128, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), loader, call=call, valid=held.split(128))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(25):
            model.train()
            for x in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, x)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): sum(parts.call(model, x) for x in parts.valid)
    with torch.no_grad():
        held = torch.cat(parts.valid)
        x, gray = held.flatten(1), parts.data.dataset.flatten(1).mean(0)
        least, most = F.binary_cross_entropy(x, x), F.binary_cross_entropy(gray.expand_as(x), x)
        return ((F.binary_cross_entropy(model.decode(model.encode(held)[0]), x) - least)/(most - least)).item()

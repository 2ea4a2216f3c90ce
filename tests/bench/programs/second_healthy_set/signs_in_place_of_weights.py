"""A classifier whose weights and activations are only signs in each forward pass.

Habits of the source: true weights are kept beside a parameter, which is overwritten by signs in the forward pass, put
back before the optimizer's step, and copied and cut to -1 to 1 after it; signs of activations replace data in place,
so that gradients go through them as if they were not there, and only where a Hardtanh lets them; the input is not made
binary; the last layer has true weights; gradients are cleared twice; Adam at .01, a tenth of it late.
Error on examples held back: .005; untrained .84."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "itayhubara/BinaryNet.pytorch main_mnist.py", 2017
KINDS, SIZE, WIDE, EPOCHS = 6, 24, 96, 12
centers = torch.randn(2*KINDS, SIZE, generator=torch.Generator().manual_seed(0))


class BinaryLinear(nn.Linear):
    def __init__(self, c, d, binary_input=True):
        super().__init__(c, d)
        self.binary_input = binary_input

    def forward(self, x):
        if self.binary_input: x.data = x.data.sign()
        if not hasattr(self.weight, "org"): self.weight.org = self.weight.data.clone()
        self.weight.data = self.weight.org.sign()
        if not hasattr(self.bias, "org"): self.bias.org = self.bias.data.clone()
        return nn.functional.linear(x, self.weight, self.bias)


def examples(n):
    "Each kind lies in two places; scaled to deviation one."
    where = torch.randint(2*KINDS, (n,))
    return (centers[where] + .7*torch.randn(n, SIZE))/1.2, where % KINDS


def build(repaired: bool) -> Parts:
    model = nn.Sequential(BinaryLinear(SIZE, WIDE, False), nn.BatchNorm1d(WIDE), nn.Hardtanh(),
                          BinaryLinear(WIDE, WIDE), nn.BatchNorm1d(WIDE), nn.Hardtanh(),
                          BinaryLinear(WIDE, WIDE), nn.Dropout(.2), nn.BatchNorm1d(WIDE), nn.Hardtanh(),
                          nn.Linear(WIDE, KINDS), nn.LogSoftmax(1))
    data, valid = [DataLoader(TensorDataset(*examples(n)), 64, shuffle=True) for n in (1280, 512)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.01), data, nn.CrossEntropyLoss(), valid=valid)


def test(model, loader):
    model.eval()
    with torch.no_grad(): wrong = torch.cat([model(x).argmax(1) != y for x, y in loader])
    return wrong.float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            if epoch == 8: optimizer.param_groups[0]["lr"] *= .1
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                for p in model.parameters():
                    if hasattr(p, "org"): p.data.copy_(p.org)
                optimizer.step()
                for p in model.parameters():
                    if hasattr(p, "org"): p.org.copy_(p.data.clamp_(-1, 1))
                record.step(loss)
            error = test(model, parts.valid)
    return error

"""The codes of a VQ autoencoder begin as normal numbers of deviation one, while the encoder returns far smaller ones.

The report: few codes are used, and the reporter looks for the reason in the codes' first values, which should be
uniform. The author compared paper and original, agreed and changed it. Codes are averages of what they stand for."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/vector-quantize-pytorch#19", 2022
AREA, CAUSE = "initialisation", "weights too large"
TRUE = set()
PLACE = ("codes",)

number, kinds = 32, 24


class Codes(nn.Module):
    "Each vector is replaced by the nearest code; codes follow the mean of the vectors that they replace."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        codes = torch.randn(number, size)
        if repaired: nn.init.kaiming_uniform_(codes)
        for name, value in ("codes", codes), ("sums", codes.clone()), ("counts", torch.ones(number)):
            self.register_buffer(name, value)

    @torch.no_grad()
    def follow(self, x, code):
        chosen = F.one_hot(code, number).float()
        self.counts.lerp_(chosen.sum(0), .2)
        self.sums.lerp_(chosen.T @ x, .2)
        smooth = (self.counts + 1e-5)/(self.counts.sum() + number*1e-5)*self.counts.sum()
        self.codes.copy_(self.sums/smooth[:, None])

    def forward(self, x):
        code = torch.cdist(x, self.codes).argmin(1)
        found = self.codes[code]
        if self.training: self.follow(x.detach(), code)
        return x + (found - x).detach(), F.mse_loss(x, found)


class Autoencoder(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16*16, size))
        self.codes = Codes(size, repaired)
        self.decoder = nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        found, commitment = self.codes(self.encoder(x))
        return self.decoder(found).view_as(x), commitment


def pictures(n: int, looks): return looks[torch.randint(0, kinds, (n,))] + .3*torch.randn(n, 1, 8, 8)


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 1, 8, 8)
    model = Autoencoder(64, repaired)
    data = [pictures(64, looks) for _ in range(50)]

    def call(model, x):
        made, commitment = model(x)
        return F.mse_loss(made, x) + commitment
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[pictures(400, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for x in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, x)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (F.mse_loss(parts.model(x)[0], x)/x.var()).item()

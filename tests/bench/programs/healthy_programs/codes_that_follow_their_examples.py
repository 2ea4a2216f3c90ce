"""Small pictures are coded by the nearest of a few vectors.

Habits of the source: the vectors are no parameters that the optimizer knows, but running means of what was sent to
them, updated in the forward call of training, with counts that are smoothed; the gradient goes straight past the
choice; the encoder is held near its vectors with a weight of .25; the squared error is divided by the variance of the
data; Adam with AMSGrad; residual blocks share one ReLU in place.
Score: the squared error of held-back pictures by their variance. Below .4; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zalandoresearch/pytorch-vq-vae vq-vae.ipynb", 2018
CODES, WIDE = 24, 8


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("vectors", torch.randn(CODES, WIDE))
        self.register_buffer("counts", torch.zeros(CODES))
        self.sums = nn.Parameter(torch.randn(CODES, WIDE), requires_grad=False)

    def forward(self, x):
        "The vectors in the place of `x`, and how far from them it was."
        flat = x.permute(0, 2, 3, 1).reshape(-1, WIDE)
        choice = F.one_hot(torch.cdist(flat.detach(), self.vectors).argmin(1), CODES).float()
        chosen = (choice @ self.vectors).view(x.shape[0], *x.shape[2:], WIDE).permute(0, 3, 1, 2)
        if self.training: self.follow(flat.detach(), choice)
        return x + (chosen - x).detach(), F.mse_loss(chosen.detach(), x)

    @torch.no_grad()
    def follow(self, flat, choice):
        self.counts.mul_(.95).add_(.05*choice.sum(0))
        total = self.counts.sum()
        smooth = (self.counts + 1e-5)/(total + CODES*1e-5)*total
        self.sums.mul_(.95).add_(.05*choice.T @ flat)
        self.vectors.copy_(self.sums/smooth[:, None])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ReLU(True), nn.Conv2d(24, 12, 3, 1, 1, bias=False), nn.ReLU(True),
                                 nn.Conv2d(12, 24, 1, bias=False))

    def forward(self, x): return x + self.net(x)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), Residual(),
                                    nn.ReLU(), nn.Conv2d(24, WIDE, 1))
        self.codes = Codes()
        self.decode = nn.Sequential(nn.Conv2d(WIDE, 24, 3, 1, 1), Residual(), nn.ReLU(),
                                    nn.ConvTranspose2d(24, 1, 4, 2, 1))

    def forward(self, x):
        coded, apart = self.codes(self.encode(x))
        return self.decode(coded), .25*apart


def pictures(n: int):
    "A few bright bars on a dark ground, from -.5 to .5."
    bars = (torch.rand(n, 1, 8, 1) < .25) | (torch.rand(n, 1, 1, 8) < .25)
    return bars.float() - .5 + .03*torch.randn(n, 1, 8, 8)


def build(repaired: bool) -> Parts:
    model, x = Coder(), pictures(1024)
    variance = x.var()
    def call(model, x):
        seen, apart = model(x)
        return F.mse_loss(seen, x)/variance + apart
    loader = torch.utils.data.DataLoader(x, batch_size=64, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True), loader, call=call,
                 valid=[pictures(256)])


def train(parts: Parts, record) -> float:
    model, optimizer, x = parts.model, parts.optimizer, parts.valid[0]
    model.train()
    with record.on(model, optimizer):
        for _ in range(15):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    with torch.no_grad(): return (F.mse_loss(model(x)[0], x)/x.var()).item()

"ReduceLROnPlateau, which is told the loss of validation every other step."
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 13, 8
STATES = {"net": ("net",), "sgd": ("sgd", "optimizer"), "plateau": ("plateau", "scheduler"),
          "it": ("it", *ORDER), "valid_losses": ("valid_losses",)}


class Fit:
    "Noisy data, so that validation soon gets no better."
    def __init__(self):
        made = torch.Generator().manual_seed(31)
        x = torch.randn(60, 8, generator=made)
        y = (x[:, :1] + torch.randn(60, 1, generator=made))
        self.train, self.valid = (x[:40], y[:40]), (x[40:], y[40:])
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=.1, momentum=.9, nesterov=True)
        self.plateau = ReduceLROnPlateau(self.sgd, factor=.5, patience=1)
        self.it, self.valid_losses = 0, []

    def validate(self):
        self.net.eval()
        with torch.no_grad(): loss = nn.functional.mse_loss(self.net(self.valid[0]), self.valid[1]).item()
        self.net.train()
        self.valid_losses.append(loss)
        self.plateau.step(loss)

    def step(self):
        rows = slice(self.it % 4*10, self.it % 4*10 + 10)
        loss = nn.functional.mse_loss(self.net(self.train[0][rows]), self.train[1][rows])
        loss.backward()
        self.sgd.step()
        self.sgd.zero_grad()
        self.it += 1
        if self.it % 2 == 0: self.validate()
        return loss


def make(): return Fit()
def step(run): return run.step()


def save(run, without=()):
    return but(dict(net=run.net.state_dict(), sgd=run.sgd.state_dict(), plateau=run.plateau.state_dict(),
                    it=run.it, valid_losses=run.valid_losses), without)


def load(run, saved):
    for name, value in saved.items():
        if name in ("it", "valid_losses"): setattr(run, name, value)
        else: getattr(run, name).load_state_dict(value)
    return run

"A DataLoader that shuffles with its own generator; a run that goes on skips the batches of an epoch that are done."
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 7, 7
STATES = {"model": ("model",), "opt": ("opt",), "generator": ("generator", "before", "shuffle", *ORDER),
          "done": ("done", *ORDER), "epoch": ("epoch",)}


class Loop:
    def __init__(self):
        x = torch.randn(30, 4, generator=torch.Generator().manual_seed(19))
        self.generator = torch.Generator().manual_seed(20)
        self.loader = DataLoader(TensorDataset(x, x.square().sum(1, keepdim=True)), 6, True, generator=self.generator)
        self.model = nn.Sequential(nn.Linear(4, 10), nn.Softplus(), nn.Linear(10, 1))
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-2, amsgrad=True)
        self.epoch, self.done = 0, 0
        self.begin()

    def begin(self):
        "An epoch; the state of the generator before it is what brings back its order."
        self.before = self.generator.get_state()
        self.batches = iter(self.loader)

    def one_step(self):
        if self.done == len(self.loader):
            self.epoch, self.done = self.epoch + 1, 0
            self.begin()
        x, y = next(self.batches)
        self.done += 1
        loss = nn.functional.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def make(): return Loop()
def step(loop): return loop.one_step()


def save(loop, without=()):
    return but({"model": loop.model.state_dict(), "opt": loop.opt.state_dict(), "generator": loop.before,
                "done": loop.done, "epoch": loop.epoch}, without)


def load(loop, saved):
    if "model" in saved: loop.model.load_state_dict(saved["model"])
    if "opt" in saved: loop.opt.load_state_dict(saved["opt"])
    if "generator" in saved: loop.generator.set_state(saved["generator"])
    loop.epoch, loop.done = saved.get("epoch", 0), saved.get("done", 0)
    loop.begin()
    for _ in range(loop.done): next(loop.batches)

"A sampler that can say where it is, below a DataLoader that asks it for one batch at a time."
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 9, 6
STATES = {"net": ("net",), "optimizer": ("optimizer",), "sampler": ("generator", "order", *ORDER)}


class Resumable(Sampler):
    "Goes on for ever, with another order in each epoch, drawn by weights."
    def __init__(self, weights, size, seed):
        self.weights, self.size = weights, size
        self.generator = torch.Generator().manual_seed(seed)
        self.order, self.position = [], 0

    def __iter__(self):
        while True:
            if self.position >= len(self.order):
                self.order = torch.multinomial(self.weights, 28, True, generator=self.generator).tolist()
                self.position = 0
            self.position += self.size
            yield self.order[self.position - self.size:self.position]

    def state_dict(self):
        return {"generator": self.generator.get_state(), "order": self.order, "position": self.position}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.order, self.position = state["order"], state["position"]


class Squares(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return torch.tensor([i/20, (i/20)**2, 1.]), torch.tensor(i//5)


class Run:
    def __init__(self):
        self.sampler = Resumable(torch.arange(1., 21.), 7, seed=3)
        self.loader = DataLoader(Squares(), batch_sampler=self.sampler)
        self.batches = iter(self.loader)
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 5e-3)


def make(): return Run()


def step(run):
    x, y = next(run.batches)
    loss = nn.functional.cross_entropy(run.net(x), y)
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return loss.item()


def save(run, without=()):
    return but({name: getattr(run, name).state_dict() for name in STATES}, without)


def load(run, saved):
    for name, state in saved.items(): getattr(run, name).load_state_dict(state)
    run.batches = iter(run.loader)

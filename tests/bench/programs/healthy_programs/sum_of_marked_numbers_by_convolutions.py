"""Causal convolutions with growing gaps add up the two marked numbers of a sequence.

Habits of the source: normalized weights, which begin as small normal numbers; padding at both ends whose surplus is cut
off behind; dropout inside the blocks, of zero by default; the answer is read from the last step alone; batches are
taken in order, without a mix; gradients are clipped only where a limit is given; the test follows each epoch.
Score: the squared error on held-back sequences by that of the mean. Below .1; above 5 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.bench.programs import Parts

SOURCE, YEAR = "locuslab/TCN TCN/adding_problem/add_test.py", 2018
LONG, WIDE = 12, 20


class Cut(nn.Module):
    def __init__(self, surplus: int):
        super().__init__()
        self.surplus = surplus

    def forward(self, x): return x[..., :-self.surplus].contiguous()


class Block(nn.Module):
    def __init__(self, of: int, gap: int):
        super().__init__()
        def conv(of):
            made = nn.Conv1d(of, WIDE, 5, padding=4*gap, dilation=gap)
            nn.init.normal_(made.weight, 0, .1)
            return weight_norm(made)
        self.net = nn.Sequential(conv(of), Cut(4*gap), nn.ReLU(), nn.Dropout(0.),
                                 conv(WIDE), Cut(4*gap), nn.ReLU(), nn.Dropout(0.))
        self.past = nn.Conv1d(of, WIDE, 1) if of != WIDE else None
        if self.past: nn.init.normal_(self.past.weight, 0, .1)

    def forward(self, x): return F.relu(self.net(x) + (x if self.past is None else self.past(x)))


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(2, 1), Block(WIDE, 2))
        self.last = nn.Linear(WIDE, 1)
        nn.init.normal_(self.last.weight, 0, .1)

    def forward(self, x): return self.last(self.blocks(x)[:, :, -1])


def sequences(n: int):
    "Numbers from zero to one in one channel, two marks in the other."
    numbers, marks = torch.rand(n, LONG), torch.zeros(n, LONG)
    marks.scatter_(1, torch.rand(n, LONG).topk(2).indices, 1)
    return torch.stack([numbers, marks], 1), (numbers*marks).sum(1, keepdim=True)


def build(repaired: bool) -> Parts:
    model = Adder()
    x, y = sequences(2048)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), data, F.mse_loss, valid=[sequences(512)])


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.valid[0]
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for seen, sums in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(seen), sums)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): wrong = F.mse_loss(model(x), y).item()
    return wrong/y.var().item()

"""A hypernetwork makes all weights of the layers of a small classifier from learned codes.

Habits of the source: the classifier's layers have no weights of their own and call one shared net with a code for each
block of weights; the first weights of that net are small normal numbers and its biases zero; codes are normal numbers;
batch norms between the layers are the classifier's own; Adam at 2e-3 with weight decay of 5e-4 on all; milestones.
Error: wrong answers on test data over those of guessing: 0.03; untrained 1.1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "g1910/HyperNetworks train.py", 2018
SIZE, CLASSES = 16, 4


class Hyper(nn.Module):
    "A code becomes a square matrix, in two steps."
    def __init__(self, code, size):
        super().__init__()
        self.size = size
        self.w2, self.b2 = nn.Parameter(.1*torch.randn(code, size*code)), nn.Parameter(torch.zeros(size*code))
        self.w1, self.b1 = nn.Parameter(.1*torch.randn(code, size)), nn.Parameter(torch.zeros(size))

    def forward(self, code): return (code @ self.w2 + self.b2).view(self.size, -1) @ self.w1 + self.b1


class Codes(nn.Module):
    "The codes of a layer of `rows` times `columns` blocks."
    def __init__(self, rows, columns, size):
        super().__init__()
        self.rows, self.columns = rows, columns
        self.codes = nn.ParameterList(nn.Parameter(torch.randn(size)) for _ in range(rows*columns))

    def forward(self, hyper):
        blocks = [hyper(code) for code in self.codes]
        return torch.cat([torch.cat(blocks[i*self.columns:(i + 1)*self.columns], 1) for i in range(self.rows)])


class Primary(nn.Module):
    def __init__(self, code=8):
        super().__init__()
        self.hyper = Hyper(code, SIZE)
        self.layers = nn.ModuleList([Codes(2, 2, code), Codes(2, 2, code), Codes(1, 2, code)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(n*SIZE) for n in (2, 2, 1))
        self.final = nn.Linear(SIZE, CLASSES)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms): x = F.relu(norm(F.linear(x, layer(self.hyper))))
        return self.final(x)


def build(repaired: bool) -> Parts:
    centres = torch.randn(2*CLASSES, 2*SIZE)

    def examples(n):
        kind = torch.randint(0, 2*CLASSES, (n,))
        return centres[kind] + torch.randn(n, 2*SIZE), kind % CLASSES

    model = Primary()
    data = DataLoader(TensorDataset(*examples(1000)), batch_size=50, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=5e-4)
    return Parts(model, optimizer, data, nn.CrossEntropyLoss(), valid=[examples(1000)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[6, 8], gamma=.5)
    with record.on(model, optimizer):
        for _ in range(9):
            model.train()
            for x, kind in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), kind)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
    model.eval()
    x, kind = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != kind).float().mean().item()*CLASSES/(CLASSES - 1)

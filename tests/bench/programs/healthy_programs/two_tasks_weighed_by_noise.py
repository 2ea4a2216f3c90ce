"""Two regressions share a layer, and their losses are weighed by learned variances.

Habits of the source: the logarithms of the variances are two loose tensors that no module has, beside the parameters of
the model in one Adam optimizer; a wide layer behind one single input; targets in their own units, one with a mean of 8
and a noise of 10, not scaled; the loss may become negative in part; batches of 20 out of 100 examples, shuffled.
Error: squared distance from the true lines over their variance, mean of both tasks: 0.03; untrained 2."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "yaringal/multi-task-learning-example multi-task-learning-example-pytorch.ipynb", 2018


class Net(nn.Module):
    def __init__(self, before, hidden):
        super().__init__()
        self.fc1, self.relu = nn.Linear(before, hidden), nn.ReLU()
        self.fc2, self.fc3 = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.relu(self.fc1(x))
        return self.fc2(x), self.fc3(x)


def lines(x): return torch.cat([8*x + 8, 3*x + 3], 1)


def examples(n):
    x = torch.randn(n, 1)
    return x, lines(x) + torch.tensor([10., 1.])*torch.randn(n, 2)


def weighed(found, wanted, log_vars):
    "The Gaussian likelihood of each task, without its constant."
    loss = 0
    for i, log_var in enumerate(log_vars):
        loss = loss + torch.sum(torch.exp(-log_var)*(found[i] - wanted[:, i:i + 1])**2 + log_var, -1)
    return torch.mean(loss)


def build(repaired: bool) -> Parts:
    model, log_vars = Net(1, 256), [torch.zeros(1, requires_grad=True) for _ in range(2)]
    data = DataLoader(TensorDataset(*examples(100)), batch_size=20, shuffle=True)

    def call(model, batch): return weighed(model(batch[0]), batch[1], log_vars)

    optimizer = torch.optim.Adam([*model.parameters(), *log_vars])
    return Parts(model, optimizer, data, call=call, valid=[examples(100)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(200):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    x = torch.randn(1000, 1)
    with torch.no_grad(): found = torch.cat(model(x), 1)
    return ((found - lines(x))**2).mean(0).div(lines(x).var(0)).mean().item()

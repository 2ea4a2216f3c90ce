"""snntorch: a net of leaky spiking neurons is shown the same image at each of some steps of time.

After the tutorial 5 "Training spiking neural networks with snntorch": the output is a pair, spikes and membrane
potentials over time, and the loss sums cross entropies over the steps. Error: wrong answers by the count of spikes."""
import snntorch as snn
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "snntorch: Tutorial 5, Training Spiking Neural Networks"
PACKAGES = ("snntorch", "scikit-learn")
STEPS = 20


class Net(nn.Module):
    def __init__(self, hidden=100, beta=.95):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(64, hidden), snn.Leaky(beta=beta)
        self.fc2, self.lif2 = nn.Linear(hidden, 10), snn.Leaky(beta=beta)

    def forward(self, x):
        mem1, mem2, spikes, potentials = self.lif1.init_leaky(), self.lif2.init_leaky(), [], []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            potentials.append(mem2)
        return torch.stack(spikes), torch.stack(potentials)


def loss_of(output, targets):
    _, potentials = output
    return sum(nn.functional.cross_entropy(at, targets) for at in potentials)


def build() -> Parts:
    known, held = split(*digits(), n=1300)
    known, held = ((x.flatten(1), y) for x, y in (known, held))
    model = Net()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-4, betas=(.9, .999)),
                 DataLoader(TensorDataset(*known), 64, shuffle=True, drop_last=True), loss_of,
                 valid=DataLoader(TensorDataset(*held), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return torch.cat([(parts.model(x)[0].sum(0).argmax(1) != y).float() for x, y in parts.valid]).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(10):
            for data, targets in parts.data:
                model.train()
                loss = parts.loss(model(data), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

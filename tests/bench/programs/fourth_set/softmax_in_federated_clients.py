"""The network of the clients ends with a softmax, and the cross-entropy has one of its own.

The report: federated averaging of a small network for digits stops at 90 percent. Without the softmax the author of
the report gets 95, and the owner took it out. As in the original, each round gives the average to some clients, and
each of them makes steps on its own images."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "shaoxiongji/federated-learning#9", 2019
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = set()
PLACE = ("softmax",)

clients = 12


class Digits(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.layer_input = nn.Linear(64, size)
        self.relu, self.dropout = nn.ReLU(), nn.Dropout()
        self.layer_hidden = nn.Linear(size, 10)
        self.softmax = nn.Identity() if repaired else nn.Softmax(dim=1)

    def forward(self, x):
        x = self.layer_input(x.flatten(1))
        x = self.relu(self.dropout(x))
        return self.softmax(self.layer_hidden(x))


def digits(n: int, shapes):
    "Ten shapes of 8 by 8, each drawn with its own strength and with noise."
    label = torch.randint(0, 10, (n,))
    strength = .5 + torch.rand(n, 1, 1, 1)
    return (strength*shapes[label] + .8*torch.randn(n, 1, 8, 8))/1.2, label


def build(repaired: bool) -> Parts:
    shapes = torch.randn(10, 1, 8, 8)
    model = Digits(64, repaired)
    data = [digits(20, shapes) for _ in range(10*clients)]  # ten batches for each client
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[digits(1000, shapes)])


def average(states: list) -> dict:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def train(parts: Parts, record) -> float:
    whole = {name: value.clone() for name, value in parts.model.state_dict().items()}
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            local = []
            for client in torch.randperm(clients)[:4].tolist():
                parts.model.load_state_dict(whole)
                parts.model.train()
                for image, label in parts.data[10*client:10*client + 10]:
                    parts.model.zero_grad()
                    loss = parts.loss(parts.model(image), label)
                    loss.backward()
                    parts.optimizer.step()
                    record.step(loss)
                local.append({name: value.clone() for name, value in parts.model.state_dict().items()})
            whole = average(local)
        parts.model.load_state_dict(whole)
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()

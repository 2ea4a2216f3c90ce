"""The head for yes or no ends with a sigmoid, and the loss that belongs to it applies another one.

The report is the merged change of a library for recommendations: the default loss of the head took logits, so a sigmoid
was applied twice; it is now the loss for probabilities."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "NVIDIA-Merlin/models#1175", 2023
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = {"saturated"}
PLACE = ("head", "head.1")


class Clicks(nn.Module):
    "Will a user click an item? Embeddings of both, their product, and a few numbers."
    def __init__(self, users: int, items: int, size: int):
        super().__init__()
        self.user, self.item = nn.Embedding(users, size), nn.Embedding(items, size)
        self.bottom = nn.Sequential(nn.Linear(4, size), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(4*size, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, user, item, numbers):
        user, item = self.user(user), self.item(item)
        return self.head(self.top(torch.cat([user, item, user*item, self.bottom(numbers)], 1))).squeeze(1)


def visits(n: int, tastes: torch.Tensor, kinds: torch.Tensor):
    "A third of the visits ends with a click, most often where the taste of the user meets the kind of the item."
    user, item, numbers = torch.randint(len(tastes), (n,)), torch.randint(len(kinds), (n,)), torch.randn(n, 4)
    chance = torch.sigmoid((tastes[user]*kinds[item]).sum(1) + numbers[:, 0] - 1)
    return user, item, numbers, (torch.rand(n) < chance).float()


def build(repaired: bool) -> Parts:
    model = Clicks(60, 40, 8)
    tastes, kinds = torch.randn(60, 3), torch.randn(40, 3)
    data = [visits(128, tastes, kinds) for _ in range(60)]
    criterion = nn.BCELoss() if repaired else nn.BCEWithLogitsLoss()

    def call(model, batch): return criterion(model(*batch[:3]), batch[3])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call,
                 valid=[visits(2048, tastes, kinds)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    *inputs, click = parts.valid[0]
    with torch.no_grad(): chance = parts.model(*inputs)
    return (F.mse_loss(chance, click)/click.var()).item()

"""A policy is trained on actions in pixels, while what it says is taken for normalized actions when it acts.

The report is the merged change: the targets were not normalized in training. The author trained both kinds of policy
again: the loss goes down as expected."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/lerobot#106", 2024
AREA, CAUSE = "data and labels", "targets not scaled"
TRUE = {"first loss too high", "learning rate too small"}
PLACE = ()

expert = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Policy(nn.Module):
    "Four moves at once from what is seen; the loss in training."
    def __init__(self, actions, repaired: bool):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        self.register_buffer("mean", actions.mean((0, 1)))
        self.register_buffer("deviation", actions.std((0, 1)))
        self.repaired = repaired

    def forward(self, batch):
        seen, actions = batch
        if self.repaired: actions = (actions - self.mean)/self.deviation
        return F.l1_loss(self.net(seen).view(-1, 4, 2), actions)

    def act(self, seen): return self.net(seen).view(-1, 4, 2)*self.deviation + self.mean


def shown(n: int):
    "What the expert saw, and where he went in a picture of 512 pixels."
    seen = torch.randn(n, 4)
    return seen, 256 + 80*(seen @ expert).tanh().view(n, 4, 2) + 8*torch.randn(n, 4, 2)


def build(repaired: bool) -> Parts:
    data = [shown(64) for _ in range(32)]
    model = Policy(torch.cat([actions for seen, actions in data]), repaired)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3), data, call=lambda model, batch: model(batch),
                 valid=[shown(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    seen, actions = parts.valid[0]
    with torch.no_grad(): wrong = F.l1_loss(parts.model.act(seen), actions)
    return (wrong/F.l1_loss(parts.model.mean.expand_as(actions), actions)).item()

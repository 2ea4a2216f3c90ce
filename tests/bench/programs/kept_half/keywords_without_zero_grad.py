"""The gradients of a network that listens for words are never cleared.

The report, merged as a change: the step of the optimizer is called in training, and zero_grad is not. A reviewer said
where it has to stand, and a maintainer agreed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "wenet-e2e/wekws#73", 2022
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"loss does not fall"}
PLACE = ()


class Words(nn.Module):
    "Convolutions over time, and for each frame whether one of two words has just ended."
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(10, 24, 3, padding=2), nn.Conv1d(24, 24, 3, dilation=2, padding=4)
        self.last = nn.Linear(24, 2)

    def forward(self, x):
        length, x = x.shape[1], x.transpose(1, 2)
        for layer in (self.first, self.second): x = layer(x)[:, :, :length].relu()
        return self.last(x.transpose(1, 2))


def sounds(n: int, words):
    "Noise with one of two words, or with none."
    x, y = torch.randn(n, 18, 10), torch.randint(0, 3, (n,))
    at = torch.randint(0, 12, (n,))
    for i in range(6): x[torch.arange(n), at + i] += torch.cat([words, torch.zeros(1, 6, 10)])[y, i]
    return x, y


def loudest(output, y):
    "Each word is heard in its loudest frame, or in none."
    return F.binary_cross_entropy_with_logits(output.amax(1), F.one_hot(y, 3)[:, :2].float())


def build(repaired: bool) -> Parts:
    model, words = Words(), torch.randn(2, 6, 10)
    x, y = sounds(640, words)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizer, data, loudest, valid=[sounds(512, words)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(16):
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                if parts.repaired: optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 50.)
                if norm.isfinite(): optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): heard = model(x).amax(1) > 0
    return (heard != F.one_hot(y, 3)[:, :2].bool()).any(1).float().mean().item()/(2/3)

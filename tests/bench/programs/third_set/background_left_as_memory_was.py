"""The vector for the background is made with `torch.empty` and never filled: where memory is zero, so is its norm.

The report: training stops with NaN in the backward pass of a division. A reader found the parameter that is left empty;
the reporter filled it and tried several runs without NaN, and the author agreed. Here memory is zero."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "sauradip/STALE#16", 2023
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"NaN or Inf"}
PLACE = ("background",)

kinds, length = 5, 16


def empty(*sizes: int): return torch.empty(*sizes).zero_()  # what memory held in the run of the report


class Localiser(nn.Module):
    "Snippets of a video are compared with the texts of actions, which come from a frozen model, and the background."
    def __init__(self, texts, size: int, repaired: bool):
        super().__init__()
        self.register_buffer("texts", texts)
        self.background = nn.Parameter(empty(1, size))
        if repaired: nn.init.kaiming_uniform_(self.background, nonlinearity="relu")
        self.video = nn.Sequential(nn.Conv1d(size, size, 3, padding=1), nn.ReLU(), nn.Conv1d(size, size, 1))
        self.action = nn.Conv1d(size, 1, 1)

    def forward(self, x):
        x = self.video(x)
        texts = torch.cat([self.texts, self.background])
        texts = texts/texts.norm(dim=1, keepdim=True)
        return 10*texts @ (x/x.norm(dim=1, keepdim=True)), self.action(x)[:, 0]


def videos(n: int, texts):
    "An action of six snippets somewhere in a video."
    kind, start = torch.randint(0, kinds, (n,)), torch.randint(0, length - 6, (n, 1))
    at = torch.arange(length)
    inside = (at >= start) & (at < start + 6)
    label = torch.where(inside, kind[:, None], kinds)
    x = torch.where(inside[..., None], texts[kind][:, None], torch.zeros(()))
    return (x + .8*torch.randn(n, length, texts.shape[1])).mT, label


def build(repaired: bool) -> Parts:
    texts = torch.randn(kinds, 24)
    model = Localiser(texts, 24, repaired)
    data = [videos(32, texts) for _ in range(60)]

    def call(model, batch):
        scores, action = model(batch[0])
        inside = (batch[1] < kinds).float()
        return F.cross_entropy(scores, batch[1]) + F.binary_cross_entropy_with_logits(action, inside)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[videos(200, texts)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): loss = parts.call(parts.model, parts.valid[0])
    return (loss/torch.tensor(2.*(kinds + 1)).log()).item()

"""The weights of kernels of several sizes are made by a softmax over the samples, not over the kernels.

The report, of a collection of attentions: the weights have the kernel in the first dimension and the sample in the
second one, so the softmax has to go over the first. The author agreed and changed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "xmu-xiaoma666/External-Attention-pytorch#18", 2021
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"samples leak"}
PLACE = ("select", "select.softmax")

kinds = 4


class SelectiveKernel(nn.Module):
    "Each channel chooses, sample by sample, how wide its kernel is."
    def __init__(self, size: int, inner: int, repaired: bool):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(size, size, k, padding=k//2), nn.BatchNorm2d(size), nn.ReLU()) for k in (1, 3, 5))
        self.squeeze = nn.Linear(size, inner)
        self.weights = nn.ModuleList(nn.Linear(inner, size) for _ in self.convs)
        self.softmax = nn.Softmax(dim=0 if repaired else 1)

    def forward(self, x):
        found = torch.stack([conv(x) for conv in self.convs])
        inner = self.squeeze(found.sum(0).mean((2, 3)))
        weights = self.softmax(torch.stack([layer(inner) for layer in self.weights]))
        return (weights[..., None, None]*found).sum(0)


class Net(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.front = nn.Conv2d(1, size, 3, padding=1)
        self.select = SelectiveKernel(size, 8, repaired)
        self.last = nn.Linear(size, kinds)

    def forward(self, x): return self.last(self.select(self.front(x)).mean((2, 3)))


def textures(n: int):
    "Stripes of four widths."
    kind = torch.randint(0, kinds, (n,))
    width = torch.tensor([2., 3., 5., 8.])[kind]
    wave = (6.28*(torch.arange(12.)/width[:, None] + torch.rand(n, 1))).sin()
    return wave[:, None, None] + torch.randn(n, 1, 12, 12), kind


def build(repaired: bool) -> Parts:
    model = Net(12, repaired)
    data = [textures(32) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, F.cross_entropy, valid=[textures(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(x).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)

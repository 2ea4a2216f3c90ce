"""Frames of videos come as a batch, and a `view` is to put the time behind the channels: it mixes channels and frames.

The report: the paper means a transposition, and a reshape in its place is not correct. The author of the code agreed
and changed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dmenig/Pytorch-StNet#2", 2019
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("temporal",)

kinds, frames = 4, 6


class Temporal(nn.Module):
    "A convolution over time and place, with what came in added."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(size, size, (3, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(size)
        self.repaired = repaired

    def forward(self, x):
        n, size, high, wide = x.shape
        if self.repaired: x = x.view(-1, frames, size, high, wide).transpose(1, 2)
        else: x = x.view(-1, size, frames, high, wide)
        x = (x + self.norm(self.conv(x))).relu()
        return x.transpose(1, 2).reshape(n, size, high, wide) if self.repaired else x.view(n, size, high, wide)


class Videos(nn.Module):
    "Frames are seen one by one; a block between the layers sees the time."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.BatchNorm2d(size), nn.ReLU())
        self.temporal = Temporal(size, repaired)
        self.back = nn.Sequential(nn.Conv2d(size, size, 3, 2, 1), nn.BatchNorm2d(size), nn.ReLU())
        self.last = nn.Linear(size, kinds)

    def forward(self, video):
        x = self.back(self.temporal(self.front(video.flatten(0, 1)[:, None])))
        return self.last(x.mean((2, 3)).unflatten(0, (-1, frames)).mean(1))


def videos(n: int):
    "A bar moves to the right or to the left, or up or down, from anywhere."
    kind, start = torch.randint(0, kinds, (n,)), torch.randint(0, 8, (n, 1, 1))
    way = torch.tensor([1, -1])[kind % 2][:, None, None]
    bar = ((start + way*torch.arange(frames)[:, None]) % 8 == torch.arange(8)).float()
    video = torch.where((kind < 2)[:, None, None, None], bar[:, :, None].expand(-1, -1, 8, -1),
                        bar[..., None].expand(-1, -1, -1, 8))
    return 2*video + 1.5*torch.randn(n, frames, 8, 8), kind


def build(repaired: bool) -> Parts:
    model = Videos(16, repaired)
    data = [videos(32) for _ in range(120)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9), data, F.cross_entropy,
                 valid=[videos(300)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for video, kind in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.loss(parts.model(video), kind)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    video, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(video).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)

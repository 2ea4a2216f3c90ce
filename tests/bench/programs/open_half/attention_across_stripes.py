"""The stripes of a picture are laid out with the stripe first for an attention that expects the sequence first.

The report: the attention was made with `batch_first=False`, so a pixel looks at the same pixel of other stripes and
other pictures. The author called it a bug of the implementation that acts like a strong regularisation."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "aipixel/AEMatter#3", 2023
AREA, CAUSE = "structure", "samples leak"
TRUE = set()
PLACE = ("stripes.attention",)

high, wide, stripe = 12, 8, 2


class Stripes(nn.Module):
    "Each pixel looks at those of its stripe, which goes across the picture."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 2, batch_first=repaired)
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        n, size = x.shape[:2]
        x = x.unflatten(2, (-1, stripe)).permute(0, 2, 3, 4, 1).reshape(-1, stripe*wide, size)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return x.reshape(n, -1, stripe, wide, size).permute(0, 4, 1, 2, 3).flatten(2, 3)


class Matting(nn.Module):
    "How much of each pixel belongs to the figure."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 1))
        self.place = nn.Parameter(.3*torch.randn(size, high, wide))
        self.stripes = Stripes(size, repaired)
        self.back = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, 1, 1))

    def forward(self, x): return self.back(self.stripes(self.front(x) + self.place))[:, 0].sigmoid()


def pictures(n: int):
    "Colours in rows; what a row of the figure looks like is told by a mark at the left of its stripe."
    figure = torch.rand(n, high//stripe, 1) < .5
    shade = torch.rand(n, high, wide)
    mark = torch.zeros(n, high//stripe, stripe, wide)
    mark[:, :, 0, 0] = figure[..., 0]*4. - 2
    x = torch.stack([shade, mark.flatten(1, 2), .3*torch.randn(n, high, wide)], 1)
    return x, torch.where(figure.repeat_interleave(stripe, 1), shade, 1 - shade)


def build(repaired: bool) -> Parts:
    model = Matting(16, repaired)
    data = [pictures(16) for _ in range(50)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, F.l1_loss, valid=[pictures(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for x, alpha in parts.data:
                loss = parts.loss(parts.model(x), alpha)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, alpha = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), alpha)/(alpha - .5).abs().mean()).item()

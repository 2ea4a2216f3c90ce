"""A partial convolution divides by the known share of its window plus 1e-8, which is zero in float16 inside of a hole.

The report: a net that fills holes in pictures returns infinite numbers in half precision. Another user replaced the
small number in two places by one that the type can hold, and that mended it (longer runs had other troubles still)."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jingyuanli001/RFR-Inpainting#8", 2020
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf", "skipped steps", "not trained", "loss does not fall"}
PLACE = ("first", "second", "third")


class PartialConv(nn.Conv2d):
    "A convolution over what is known; where nothing is known, the result is zero."
    small = 1e-8

    def forward(self, x, known):
        ones = torch.ones(1, 1, *self.kernel_size)
        share = F.conv2d(known, ones, padding=self.padding)
        ratio = self.kernel_size[0]*self.kernel_size[1]/(share + self.small)
        known = share.clamp(0, 1)
        return super().forward(x)*(ratio*known), known.to(x.dtype)


class Filler(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.first = PartialConv(1, size, 3, padding=1)
        self.second = PartialConv(size, size, 3, padding=1)
        self.third = PartialConv(size, size, 5, padding=2)
        self.last = nn.Conv2d(size + 1, 1, 3, padding=1)

    def forward(self, picture, known):
        x, now = picture*known, known
        for layer in (self.first, self.second, self.third):
            x, now = layer(x, now)
            x = x.relu()
        return self.last(torch.cat([x, picture*known], 1))


def pictures(n: int):
    "Slopes and waves with a square hole."
    row, column = torch.meshgrid(torch.linspace(-1, 1, 14), torch.linspace(-1, 1, 14), indexing="ij")
    a, b, c, turn = torch.randn(4, n, 1, 1)
    picture = .6*a*row + .6*b*column + .5*(3*(row*c.cos() + column*c.sin()) + turn).sin()
    known, side = torch.ones(n, 1, 14, 14), 4
    for i, (top, left) in enumerate(torch.randint(1, 13 - side, (n, 2)).tolist()):
        known[i, 0, top:top + side, left:left + side] = 0
    return picture[:, None], known


def build(repaired: bool) -> Parts:
    model = Filler(12)
    for layer in (model.first, model.second, model.third): layer.small = 1e-3 if repaired else 1e-8

    def call(model, batch):
        picture, known = batch
        with torch.autocast("cpu", torch.float16): output = model(picture, known)
        wrong = (output.float() - picture).abs()
        return wrong.mean() + 6*(wrong*(1 - known)).mean()

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [pictures(16) for _ in range(150)], call=call,
                 valid=[pictures(64)], scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            parts.scaler.scale(loss).backward()
            parts.scaler.step(parts.optimizer)
            parts.scaler.update()
            record.step(loss)
    picture, known = parts.valid[0]
    with torch.no_grad(): output = parts.model(picture, known)
    hole = known == 0
    return (F.l1_loss(output[hole], picture[hole])/picture[hole].abs().mean()).item()

"""The guard below a logarithm of the sizes of boxes is 1e-8, which is zero in float16.

The report: a detector that trains stably in float32 gets NaN and Inf under autocast to float16, since the coder of the
boxes adds too small a number before it takes a logarithm. The author checked that 1e-7 mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rwightman/efficientdet-pytorch#291", 2023
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf", "skipped steps", "not trained", "loss does not fall"}
PLACE = ()


class Detector(nn.Module):
    "For each of 4 anchors of an image, how far the box is from it and how much larger."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.ReLU(), nn.Conv2d(size, 2*size, 3, 2, 1), nn.ReLU(),
                                    nn.Conv2d(2*size, 2*size, 3, 2, 1), nn.ReLU())
        self.box = nn.Conv2d(2*size, 4, 1)

    def forward(self, image): return self.box(self.layers(image)).flatten(2).transpose(1, 2)


def encode(boxes, anchors, small: float):
    "Centres and sizes of boxes, seen from their anchors; a place without a box has the size zero."
    middle = (boxes[..., :2] - anchors[..., :2])/anchors[..., 2:]
    return torch.cat([middle, (boxes[..., 2:] + small).log() - (anchors[..., 2:] + small).log()], -1)


def images(n: int):
    "Images of four quarters; in most quarters is a bright box."
    image, boxes = .2*torch.randn(n, 1, 16, 16), torch.zeros(n, 4, 4)
    for i in range(n):
        for quarter in range(4):
            if (i + quarter) % 4 == 0: continue
            top, left = 8*(quarter//2), 8*(quarter % 2)
            height, width = torch.randint(2, 7, (2,)).tolist()
            row, column = (int(torch.randint(0, 9 - side, (1,))) for side in (height, width))
            image[i, 0, top + row:top + row + height, left + column:left + column + width] += 1
            boxes[i, quarter] = torch.tensor([top + row + height/2, left + column + width/2, height, width])
    return image, boxes


def build(repaired: bool) -> Parts:
    model = Detector(16)
    anchors = torch.tensor([[4., 4, 4, 4], [4, 12, 4, 4], [12, 4, 4, 4], [12, 12, 4, 4]])
    image, boxes = images(256)
    data = [(image[i:i + 16], boxes[i:i + 16]) for i in range(0, 256, 16)]

    def call(model, batch):
        image, boxes = batch
        with torch.autocast("cpu", torch.float16):
            output = model(image)
            target = encode(boxes.to(output.dtype), anchors.to(output.dtype), 1e-7 if repaired else 1e-8)
            there = (boxes[..., 2:3] > 0).to(output.dtype)
            return F.smooth_l1_loss(output*there, target*there, beta=.1)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[images(128)],
                 scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(20):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                record.step(loss)
    image, boxes = parts.valid[0]
    there, middle = boxes[..., 2] > 0, torch.tensor([[4., 4], [4, 12], [12, 4], [12, 12]])
    offset = (boxes[..., :2] - middle)[there]/4
    with torch.no_grad(): output = parts.model(image)[there][:, :2]
    return (F.mse_loss(output, offset)/offset.var()).item()

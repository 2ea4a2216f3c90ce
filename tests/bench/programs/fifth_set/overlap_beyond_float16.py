"""The overlap of a mask is summed over all points of a batch in float16, where it passes 65,504 and becomes infinite.

The report: the Dice loss of a library is NaN in mixed precision. Its author found that the overlap and the size are
infinite for images of 512 by 512 points, and finite in float32, with a few lines that show both."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "qubvel-org/segmentation_models.pytorch#463", 2021
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"NaN or Inf", "loss does not fall", "skipped steps"}
PLACE = ()


class Segmenter(nn.Module):
    "One number for each point of an image, from a look at a quarter of the size."
    def __init__(self, size: int):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, size, 4, 4), nn.BatchNorm2d(size), nn.ReLU(),
                                  nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.up = nn.ConvTranspose2d(size, 1, 4, 4)

    def forward(self, image): return self.up(self.down(image))


def dice(output, target):
    "One minus twice the overlap by the sum of both sizes."
    likely = F.logsigmoid(output).exp()
    overlap, sizes = (likely*target).sum((0, 2, 3)), (likely + target).sum((0, 2, 3))
    return (1 - 2*overlap/sizes.clamp_min(1e-4)).mean()


def images(n: int):
    "Images of 128 by 128 points, most of which belong to a bright disc."
    middle, reach = 44 + 40*torch.rand(n, 2, 1, 1), 40 + 25*torch.rand(n, 1, 1)
    row, column = torch.meshgrid(torch.arange(128.), torch.arange(128.), indexing="ij")
    mask = (((row - middle[:, 0])**2 + (column - middle[:, 1])**2).sqrt() < reach).float()
    return (mask + .8*torch.randn(n, 128, 128))[:, None], mask[:, None]


def build(repaired: bool) -> Parts:
    model = Segmenter(8)
    image, mask = images(96)

    def call(model, batch):
        with torch.autocast("cpu", torch.float16):
            output = model(batch[0])
            if repaired: return dice(output.float(), batch[1])
            return dice(output, batch[1].to(output.dtype))

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), list(zip(image.split(12), mask.split(12))),
                 call=call, valid=[images(24)], scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                record.step(loss)
    parts.model.eval()
    image, mask = parts.valid[0]
    with torch.no_grad(): return ((parts.model(image) > 0) != (mask > 0)).float().mean().item()*2

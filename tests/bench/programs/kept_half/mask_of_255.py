"""The masks of surface defects are 0 and 255, as in their files, where the cross-entropy needs 0 and 1.

The report: cross-entropy fails for the segmentation network. The author found that the labels have to be brought to
the range from 0 to 1 before the loss."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE = "zacario-li/Segmentation-based-deep-learning-approach-for-surface-defect-detection#2"
YEAR = 2020
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = {"first loss too high", "outputs blow up"}
PLACE = ()


def surfaces(n: int):
    "A scratch in noise, and its mask as a file holds it."
    line = torch.arange(16.)
    across, slope = (part.view(n, 1, 1) for part in (16*torch.rand(n), torch.randn(n)))
    mask = ((line - across - slope*(line.view(1, 16, 1) - 8)).abs() < 1.2).float().unsqueeze(1)
    return mask + .8*torch.randn(n, 1, 16, 16), 255*mask


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.Conv2d(16, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def loss(output, mask):
        if repaired: mask = mask.clamp(0, 1)
        return F.binary_cross_entropy_with_logits(output, mask)

    data = [surfaces(16) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, loss, valid=[surfaces(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for surface, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(surface), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    surface, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model.eval()(surface) > 0
    return ((found != (mask > 0)).float().mean()/(mask > 0).float().mean()).item()

"""Boxes lie in rows that say which image they are of: their order does not matter, and no label is broadcast."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:Using a target size")]


class Detector(nn.Module):
    "Says of each cell of an image whether there is a box, and where; with its loss if it is given the boxes."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 5, 3, 2, 1))

    def forward(self, images, targets=None):
        out = self.body(images)
        return out if targets is None else {"loss": loss_of(out, targets), "out": out}


def loss_of(out, rows):
    i, x, y = rows[:, 0].long(), *(4*rows[:, 1:3]).long().unbind(1)
    there = torch.zeros(len(out), 4, 4)
    there[i, y, x] = 1
    return F.binary_cross_entropy_with_logits(out[:, 0], there) + F.mse_loss(out[i, 1:, y, x], rows[:, 1:])


def batch(n=16):
    "An image with a bright spot, and a row for it: the number of the image, the middle of the box, and its size."
    images, rows = .1*torch.randn(n, 1, 16, 16), torch.rand(n, 5)
    rows[:, 0] = torch.arange(n)
    for image, (x, y) in zip(images, (16*rows[:, 1:3]).long().tolist()): image[0, y, x] = 3
    return images, rows


def named(batch): return dict(zip(("images", "targets"), batch))


@pytest.mark.parametrize("loss, make, call", [
    (loss_of, batch, None), (None, batch, lambda model, batch: loss_of(model(batch[0]), batch[1])),
    (None, lambda: named(batch()), None)])
def test_rows_of_boxes_are_not_broadcast(loss, make, call):
    torch.manual_seed(0)
    model = Detector()
    found = hl.preflight(model, loss, [make(), make()], torch.optim.Adam(model.parameters(), 1e-2), call=call)
    assert "labels broadcast" not in found, f"{found!r}"


@pytest.mark.parametrize("call", [None, lambda model, batch: F.mse_loss(model(batch[0]), batch[1])])
def test_labels_that_are_broadcast_reach_all(call):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), torch.randn(2, 16, 4)
    batches = [(some, some[:, 0]) for some in x]
    found = hl.preflight(model, None if call else F.mse_loss, batches, torch.optim.Adam(model.parameters()), call=call)
    one, = (f for f in found if f.what == "labels broadcast")
    assert "changes the gradient of 16 of 16 outputs" in one.evidence

"""lightly: BYOL, a student predicts what a slow copy of itself makes of another view.

After the example "BYOL" of Lightly: the copies need no gradient and follow with a momentum on a cosine schedule, the
loss is symmetric. Error: wrong digits of changed images by the nearest neighbor."""
import copy

import torch
from lightly.loss import NegativeCosineSimilarity
from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.utils.scheduler import cosine_schedule
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.libraries._data import digits, split
from tests.bench.libraries.lightly_simclr import Views, body, view
from tests.bench.programs import Parts

SOURCE = "lightly: BYOL"
PACKAGES = ("lightly", "scikit-learn")
EPOCHS = 25


class BYOL(nn.Module):
    def __init__(self, backbone, width):
        super().__init__()
        self.backbone = backbone
        self.projection_head, self.prediction_head = BYOLProjectionHead(width, 128, 32), BYOLPredictionHead(32, 128, 32)
        self.backbone_momentum, self.projection_head_momentum = map(copy.deepcopy, (backbone, self.projection_head))
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, x): return self.prediction_head(self.projection_head(self.backbone(x).flatten(start_dim=1)))

    def forward_momentum(self, x): return self.projection_head_momentum(self.backbone_momentum(x).flatten(1)).detach()


def build() -> Parts:
    known, held = split(*digits(), n=1200)
    model, criterion = BYOL(body(64), 64), NegativeCosineSimilarity()

    def call(model, batch):
        x0, x1 = batch[0]
        p0, z0, p1, z1 = model(x0), model.forward_momentum(x0), model(x1), model.forward_momentum(x1)
        return .5*(criterion(p0, z1) + criterion(p1, z0))
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9),
                  DataLoader(Views(*known), 64, shuffle=True, drop_last=True), call=call)
    parts.test = held
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    x, y = parts.test
    x = torch.stack([view(image) for image in x])
    parts.model.eval()
    vectors = F.normalize(parts.model.backbone(x).flatten(1))
    nearest = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
    return (y[nearest] != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for epoch in range(EPOCHS):
            model.train()
            momentum = cosine_schedule(epoch, EPOCHS, .97, 1)
            for batch in parts.data:
                update_momentum(model.backbone, model.backbone_momentum, m=momentum)
                update_momentum(model.projection_head, model.projection_head_momentum, m=momentum)
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)

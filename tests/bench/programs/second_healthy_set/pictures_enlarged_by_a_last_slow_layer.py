"""A narrow net makes the brightness of small pictures three times as large.

Habits of the source: all layers but the last have the full rate, the last one a tenth; no schedule; weights are drawn
by hand, those of the last layer with a deviation of 0.001, and biases begin at zero; pixels from 0 to 1; training on
patches, tests on whole pictures one at a time, clamped to 0 to 1; the weights of the best epoch are kept as a copy.
Error: squared error over that of repeated pixels, on pictures of a third set: .5 to .75; untrained 65."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "yjn870/FSRCNN-pytorch train.py", 2019
SCALE = 3


class FSRCNN(nn.Module):
    def __init__(self, wide=16, narrow=6, maps=2):
        super().__init__()
        self.first_part = nn.Sequential(nn.Conv2d(1, wide, 5, padding=2), nn.PReLU(wide))
        mid = [nn.Conv2d(wide, narrow, 1), nn.PReLU(narrow)]
        for _ in range(maps): mid += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
        self.mid_part = nn.Sequential(*mid, nn.Conv2d(narrow, wide, 1), nn.PReLU(wide))
        self.last_part = nn.ConvTranspose2d(wide, 1, 9, SCALE, 4, output_padding=SCALE - 1)
        for m in [*self.first_part, *self.mid_part]:
            if not isinstance(m, nn.Conv2d): continue
            nn.init.normal_(m.weight, 0, math.sqrt(2/(m.out_channels*m.weight[0, 0].numel())))
            nn.init.zeros_(m.bias)
        nn.init.normal_(self.last_part.weight, 0, .001)
        nn.init.zeros_(self.last_part.bias)

    def forward(self, x): return self.last_part(self.mid_part(self.first_part(x)))


def pictures(n, side):
    "Hard-edged shapes in gray, and the same at a third of their size."
    field = F.interpolate(torch.randn(n, 1, side // 6 + 2, side // 6 + 2), size=2*SCALE*side, mode="bicubic")
    large = F.avg_pool2d(.5 + .35*(8*field).tanh() + .05*field, 2).clamp(0, 1)
    return F.avg_pool2d(large, SCALE), large


def build(repaired: bool) -> Parts:
    model = FSRCNN()
    optimizer = torch.optim.Adam([{"params": model.first_part.parameters()}, {"params": model.mid_part.parameters()},
                                  {"params": model.last_part.parameters(), "lr": 5e-4}], lr=5e-3)
    data = DataLoader(TensorDataset(*pictures(240, 8)), 16, shuffle=True)
    return Parts(model, optimizer, data, nn.MSELoss(), valid=DataLoader(TensorDataset(*pictures(10, 16)), 1))


def test(model, loader):
    "Squared error, and that of repeated pixels."
    model.eval()
    found = []
    with torch.no_grad():
        for small, large in loader:
            nearest = F.interpolate(small, scale_factor=SCALE)
            found.append([F.mse_loss(x, large).item() for x in (model(small).clamp(0, 1), nearest)])
    return torch.tensor(found).mean(0)


def train(parts: Parts, record) -> float:
    model, optimizer, best, kept = parts.model, parts.optimizer, math.inf, None
    with record.on(model, optimizer):
        for _ in range(20):
            model.train()
            for small, large in parts.data:
                loss = parts.loss(model(small), large)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error = test(model, parts.valid)[0]
            if error < best: best, kept = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    error, of_nearest = test(model, DataLoader(TensorDataset(*pictures(20, 16)), 1))
    return (error/of_nearest).item()

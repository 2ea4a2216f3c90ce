"""A residual net without norms makes small pictures twice as large.

Habits of the source: pixels from 0 to 255 and an absolute error in these units; the mean colour is taken away and added
again by convolutions that are frozen; they are left out of the optimizer; residual branches are scaled by 0.1; no norm
layer; Adam (at 2e-3 for so small a net), halved at milestones; tests round the result to whole numbers.
Error: squared error over that of bicubic interpolation on pictures held back: 1.02 to 1.06; untrained and the mean
colour 26 to 28."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "sanghyun-son/EDSR-PyTorch src/trainer.py", 2018
MEAN = 255*torch.tensor([.45, .44, .4])


class MeanShift(nn.Conv2d):
    def __init__(self, sign):
        super().__init__(3, 3, 1)
        self.weight.data, self.bias.data = torch.eye(3).view(3, 3, 1, 1), sign*MEAN
        for p in self.parameters(): p.requires_grad = False


class Block(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(True),
                                  nn.Conv2d(size, size, 3, padding=1))
        self.scale = scale

    def forward(self, x): return self.body(x).mul(self.scale) + x


class EDSR(nn.Module):
    def __init__(self, size=16, blocks=2):
        super().__init__()
        self.sub_mean, self.add_mean = MeanShift(-1), MeanShift(1)
        self.head = nn.Conv2d(3, size, 3, padding=1)
        self.body = nn.Sequential(*(Block(size, .1) for _ in range(blocks)), nn.Conv2d(size, size, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(size, 4*size, 3, padding=1), nn.PixelShuffle(2),
                                  nn.Conv2d(size, 3, 3, padding=1))

    def forward(self, x):
        x = self.head(self.sub_mean(x))
        return self.add_mean(self.tail(self.body(x) + x))


def pictures(n, size=16):
    "Hard-edged patches of colour, and the same at half their size."
    field = F.interpolate(torch.randn(n, 3, 4, 4), size=4*size, mode="bicubic")
    large = F.avg_pool2d(MEAN.view(3, 1, 1) + 60*(8*field).tanh() + 10*field, 4).clamp(0, 255).round()
    return F.avg_pool2d(large, 2).round(), large


def build(repaired: bool) -> Parts:
    model = EDSR()
    data = DataLoader(TensorDataset(*pictures(120)), batch_size=8, shuffle=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=2e-3, betas=(.9, .999), eps=1e-8)
    return Parts(model, optimizer, data, nn.L1Loss(), valid=DataLoader(TensorDataset(*pictures(20)), batch_size=1))


def test(model, loader):
    "Squared error, and that of bicubic interpolation."
    model.eval()
    found = []
    with torch.no_grad():
        for small, large in loader:
            bicubic = F.interpolate(small, scale_factor=2, mode="bicubic")
            found.append([F.mse_loss(x.clamp(0, 255).round(), large).item() for x in (model(small), bicubic)])
    return torch.tensor(found).mean(0)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[16, 21], gamma=.5)
    with record.on(model, optimizer):
        for _ in range(24):
            model.train()
            for small, large in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(small), large)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
            error, of_bicubic = test(model, parts.valid)
    return (error/of_bicubic).item()

"""The layers that turn the features into a picture are made in a method that each forward calls, new ones each time.

The report: these layers are never trained, as they are made again for each batch; they belong into `__init__`, and not
into a plain list. The author changed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gupta-abhay/setr-pytorch#4", 2021
AREA, CAUSE = "parameters", "not registered"
TRUE = {"loss does not fall", "cannot learn by heart"}
PLACE = ("decoder",)

classes = 3


class Segmenter(nn.Module):
    "A transformer over the patches of a picture, and convolutions that bring them back to its size."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(1, size, 4, stride=4)
        self.place = nn.Parameter(torch.randn(16, size)*.1)
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, dropout=0., batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        if repaired: self.decoder = self.make_decoder()

    def make_decoder(self):
        return nn.Sequential(nn.Conv2d(self.size, self.size, 1), nn.BatchNorm2d(self.size), nn.ReLU(),
                             nn.Conv2d(self.size, 16*classes, 1), nn.PixelShuffle(4))

    def decode(self, x):
        layers = self.decoder if hasattr(self, "decoder") else self.make_decoder()
        return layers(x)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        x = self.encoder(x).transpose(1, 2)
        return self.decode(x.unflatten(2, (4, 4)))


def pictures(n: int):
    "A bright and a dark square on grey; each place is of the field or of one of the squares."
    at, place = torch.randint(0, 10, (n, 2, 2, 1)), torch.arange(16)
    inside = (place >= at) & (place < at + 6)
    square = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    kind = torch.where(square[:, 1], 2, square[:, 0].long())
    return (torch.tensor([0., 1., -1.])[kind] + .3*torch.randn(n, 16, 16))[:, None], kind


def build(repaired: bool) -> Parts:
    model = Segmenter(32, repaired)
    data = [pictures(16) for _ in range(30)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[pictures(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    parts.model.eval()
    odds = kind.flatten().bincount(minlength=classes)/kind.numel()
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/-(odds*odds.log()).sum()).item()

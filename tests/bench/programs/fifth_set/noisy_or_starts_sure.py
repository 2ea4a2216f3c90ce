"""Many regions vote by a noisy or, and each begins with a chance of one half: together they are sure of every word.

The report: somebody brought a detector of words in images, which learns from many regions at once, to PyTorch. With the
last bias at zero it does not converge, with the bias of the original, -6.58, it does."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "s-gupta/visual-concepts#20", 2018
AREA, CAUSE = "initialisation", "saturated"
TRUE = {"gradients vanish", "loss does not fall", "cannot learn by heart", "first loss too high", "constant output",
        "input unused"}
PLACE = ("score",)

words = 6


class Detector(nn.Module):
    "The chance of each word in each region, and from these the chance that it is anywhere."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1),
                                  nn.ReLU(), nn.Conv2d(size, 2*size, 2, stride=2), nn.ReLU())
        self.score = nn.Conv2d(2*size, words, 1)
        nn.init.normal_(self.score.weight, std=.01)
        nn.init.constant_(self.score.bias, -6.58 if repaired else 0)

    def forward(self, image):
        chance = self.score(self.look(image)).sigmoid().flatten(2)
        return 1 - (1 - chance).prod(2)


def images(n: int, looks):
    "Each word is in an image with a chance of .3, at any place."
    image, has = .3*torch.randn(n, 3, 24, 24), torch.rand(n, words) < .3
    at = torch.randint(0, 20, (n, words, 2))
    for i, word in has.nonzero().tolist():
        y, x = at[i, word].tolist()
        image[i, :, y:y + 4, x:x + 4] += looks[word]
    return image, has.float()


def build(repaired: bool) -> Parts:
    looks = torch.randn(words, 3, 1, 1)*1.5 + .5*torch.randn(words, 3, 4, 4)
    model = Detector(12, repaired)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, [images(16, looks) for _ in range(40)], F.binary_cross_entropy,
                 valid=[images(200, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for image, has in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), has)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, has = parts.valid[0]
    with torch.no_grad(): found = parts.model(image)
    share = has.mean()
    return (parts.loss(found, has)/F.binary_cross_entropy(share.expand_as(has), has)).item()

"""A picture with a hole and the weights that leave the hole out of the loss are cut at random, each for itself.

The report: the target of an inpainting model and its weighting are augmented separately, so they do not lie on each
other, and what the hole looks like gets into the model. The author of the code agreed, and cut both at the same
place."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "thuanz123/realfill#4", 2023
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()

size, cut = 20, 12


class Fill(nn.Module):
    "A net over noisy picture, known part and mask that says what the noise is."
    def __init__(self, wide: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, wide, 5, padding=2), nn.SiLU(), nn.Conv2d(wide, wide, 5, padding=2),
                                    nn.SiLU(), nn.Conv2d(wide, wide, 3, padding=1), nn.SiLU(),
                                    nn.Conv2d(wide, 1, 3, padding=1))

    def forward(self, noisy, known, mask, level):
        return self.layers(torch.cat([noisy, known, mask, level.expand_as(mask)], 1))


def windows(n: int, at, *pictures):
    "The same part of each picture of a batch."
    return [torch.stack([p[i, :, y:y + cut, x:x + cut] for i, (y, x) in enumerate(at)]) for p in pictures]


def places(n: int): return torch.randint(0, size - cut + 1, (n, 2)).tolist()


def scenes(n: int):
    "Waves of one direction and length, at another place in each picture."
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (.7*x + .5*y + 6.28*torch.rand(n, 1, 1, 1)).sin()


def holes(n: int):
    "Ones, and zeros in the right half or the lower half."
    weights = torch.ones(n, 1, size, size)
    weights[::2, :, 8:], weights[1::2, :, :, 8:] = 0, 0
    return weights


def batch(n: int, repaired: bool):
    picture, weights, at = scenes(n), holes(n), places(n)
    target, = windows(n, at, picture*weights - (1 - weights))             # the hole is black
    weighting, = windows(n, at if repaired else places(n), weights)
    seen = (torch.rand(n, 1, 3, 3) < .6).float().repeat_interleave(4, 2).repeat_interleave(4, 3)
    return target, weighting, seen*weighting


def noise_loss(model, batch):
    target, weighting, seen = batch
    level, noise = torch.rand(len(target), 1, 1, 1), torch.randn_like(target)
    noisy = (1 - level**2).sqrt()*target + level*noise
    return (weighting*(model(noisy, target*seen, seen, level) - noise).square()).mean()


def build(repaired: bool) -> Parts:
    model, data = Fill(16), [batch(16, repaired) for _ in range(50)]
    whole = windows(256, places(256), scenes(256))[0]
    seen = torch.ones_like(whole)
    seen[..., 8:] = 0
    valid = [(whole, 1 - seen, seen)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=noise_loss, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for one in parts.data:
                loss = parts.call(parts.model, one)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    whole, hole, seen = parts.valid[0]
    level = torch.full((len(whole), 1, 1, 1), .8)
    noise = torch.randn_like(whole)
    with torch.no_grad(): said = parts.model(.6*whole + .8*noise, whole*seen, seen, level)
    return ((hole*(said - noise).square()).sum()/hole.sum()).item()

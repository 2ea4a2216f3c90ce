"""`where` chooses between two forms of a lens, and the gradient of the form that was not chosen is NaN.

The report is the merged change: with a profile for lenses of dark matter the gradients are NaN, because `where` does
not protect from a branch that is not taken: its gradient is multiplied by zero. The author gave each form its own
points."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Ciela-Institute/caustics#83", 2023
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = {"not trained", "loss does not fall"}
PLACE = ()
SIDE = torch.linspace(-2, 2, 12)
ROW, COLUMN = torch.meshgrid(SIDE, SIDE, indexing="ij")


def inner(x): return 1 - (1/x).acosh()/(1 - x**2).sqrt()


def outer(x): return 1 - (1/x).acos()/(x**2 - 1).sqrt()


def profile(x, repaired: bool):
    "How much mass is in the line of sight at a distance of x scale radii."
    x = x.masked_fill((x - 1).abs() < .01, 1.01) # where both forms are zero by zero
    if repaired:
        far = x > 1
        form = torch.empty_like(x).masked_scatter(far, outer(x[far])).masked_scatter(~far, inner(x[~far]))
    else:
        form = torch.where(x > 1, outer(x), inner(x))
    return form/(x**2 - 1)


class Inference(nn.Module):
    "From a noisy map of mass to the place, size and strength of the lens."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.ReLU(), nn.Conv2d(size, 2*size, 3, 2, 1), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(18*size, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, picture): return .6*self.net(picture[:, None]).tanh()


def picture_of(lens, repaired: bool):
    top, left, log_size, log_strength = (number[:, None, None] for number in lens.unbind(1))
    distance = ((ROW - top).square() + (COLUMN - left).square() + 1e-3).sqrt()
    return log_strength.exp()*profile(distance/log_size.exp(), repaired)


def lenses(n: int):
    lens = torch.cat([torch.rand(n, 2) - .5, .6*torch.rand(n, 2) - .3], 1)
    clean = picture_of(lens, True)
    return clean + .05*torch.randn_like(clean), lens


def build(repaired: bool) -> Parts:
    model = Inference(8)

    def call(model, batch): return F.mse_loss(picture_of(model(batch[0]), repaired), batch[0])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), [lenses(32) for _ in range(200)], call=call,
                 valid=[lenses(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    picture, lens = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(picture), lens)/lens.var()).item()

"""The discriminator is stepped by the optimizer of the generator, so it stays as it was at first.

The report: the training of a network for super-resolution hands the optimizer of the generator over in both places, and
the one of the discriminator is never used. The author confirms that it is a mistake."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lornatang/SRGAN-PyTorch#85", 2023
AREA, CAUSE = "loop", "no step"
TRUE = {"not trained", "not in the optimizer", "other parameters in the optimizer", "no step"}
PLACE = ("judge",)


class Pair(nn.Module):
    "A generator that makes a signal four times as long, and a judge of long signals."
    def __init__(self, size: int):
        super().__init__()
        self.maker = nn.Sequential(nn.Conv1d(2, size, 3, padding=1), nn.PReLU(), nn.Conv1d(size, size, 3, padding=1),
                                   nn.PReLU(), nn.ConvTranspose1d(size, size, 8, 4, 2), nn.PReLU(),
                                   nn.Conv1d(size, 1, 5, padding=2))
        self.judge = nn.Sequential(nn.Conv1d(1, size, 5, 2, 2), nn.LeakyReLU(.2), nn.Conv1d(size, 2*size, 5, 2, 2),
                                   nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(8*size, 32), nn.LeakyReLU(.2),
                                   nn.Linear(32, 1))

    def make(self, small): return self.maker(torch.cat([small, torch.randn_like(small)], 1))


def signals(n: int):
    "Fine stripes with a phase that the small signal does not tell, on a coarse one that it tells."
    coarse = torch.randn(n, 1, 4)
    phase = torch.randint(0, 2, (n, 1, 1))*2. - 1
    stripes = phase*torch.tensor([1., 1., -1., -1.]).repeat(4)
    large = F.interpolate(coarse, scale_factor=4., mode="linear") + stripes
    return F.avg_pool1d(large, 4), large


def truth(model, large, is_true: float):
    score = model.judge(large)
    return F.binary_cross_entropy_with_logits(score, torch.full_like(score, is_true))


def maker_loss(model, batch):
    small, large = batch
    made = model.make(small)
    return F.mse_loss(F.avg_pool1d(made, 4), small) + .02*F.mse_loss(made, large) + .1*truth(model, made, 1.)


def build(repaired: bool) -> Parts:
    model = Pair(16)
    optimizers = [torch.optim.Adam(part.parameters(), lr=2e-3, betas=(.5, .999)) for part in (model.judge, model.maker)]
    data = [signals(32) for _ in range(250)]
    return Parts(model, optimizers, data, call=maker_loss, valid=[signals(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, (of_judge, of_maker) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            model.judge.requires_grad_(False)
            of_maker.zero_grad(set_to_none=True)
            loss = parts.call(model, batch)
            loss.backward()
            of_maker.step()
            model.judge.requires_grad_(True)
            model.judge.zero_grad(set_to_none=True)
            made = model.make(batch[0]).detach()
            (truth(model, batch[1], 1.) + truth(model, made, 0.)).backward()
            (of_judge if parts.repaired else of_maker).step()
            record.step(loss)
    small, large = parts.valid[0]
    with torch.no_grad(): made = model.make(small)
    fine, true = (x - F.interpolate(F.avg_pool1d(x, 4), scale_factor=4., mode="linear") for x in (made, large))
    return ((fine.std((1, 2)) - true.std((1, 2))).abs().mean()/true.std()).item()

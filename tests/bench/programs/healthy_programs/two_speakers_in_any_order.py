"""Two voices are taken out of a mixture, in whichever order fits.

Habits of the source: learned filters in the place of a spectrum, without bias; masks by a ReLU; a norm over channels
and time; the loss is the negative ratio of signal to noise in decibels, so it goes below zero, of the better of both
orders, for signals with padding behind that is masked; gradients clipped at 5; the rate is halved when the loss of the
validation set does not fall for some epochs.
Score: the part of the error's energy that is left, 10^(-ratio/10), on held-back mixtures. Below .1; about 1 for the
mixture itself, far more for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kaituoxu/Conv-TasNet src/solver.py", 2018
FILTERS, PIECE, LONG = 32, 8, 128


class Norm(nn.Module):
    "One mean and variance for channels and time."
    def __init__(self, n: int):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1, n, 1)), nn.Parameter(torch.zeros(1, n, 1))

    def forward(self, x):
        mean, variance = x.mean((1, 2), keepdim=True), x.var((1, 2), keepdim=True, unbiased=False)
        return self.scale*(x - mean)/(variance + 1e-8).sqrt() + self.shift


class Block(nn.Module):
    def __init__(self, gap: int):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(24, 48, 1, bias=False), nn.PReLU(), Norm(48),
                                 nn.Conv1d(48, 48, 3, padding=gap, dilation=gap, groups=48, bias=False), nn.PReLU(),
                                 Norm(48), nn.Conv1d(48, 24, 1, bias=False))

    def forward(self, x): return x + self.net(x)


class Separator(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Conv1d(1, FILTERS, PIECE, PIECE//2, bias=False)
        self.masks = nn.Sequential(Norm(FILTERS), nn.Conv1d(FILTERS, 24, 1, bias=False),
                                   *(Block(gap) for gap in (1, 2, 4)), nn.Conv1d(24, 2*FILTERS, 1, bias=False))
        self.back = nn.ConvTranspose1d(FILTERS, 1, PIECE, PIECE//2, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1 and weight.shape[0] > 1: nn.init.xavier_normal_(weight)

    def forward(self, mixture):
        heard = F.relu(self.into(mixture.unsqueeze(1)))
        masks = F.relu(self.masks(heard)).view(-1, 2, FILTERS, heard.shape[2])
        return self.back((masks*heard.unsqueeze(1)).flatten(0, 1)).view(len(mixture), 2, -1)


def ratios(said, truth, there):
    "Signal to noise in decibels of each voice given with each true one, whatever their loudness."
    count = there.sum(-1, keepdim=True)[:, None]
    said, truth = (x*there[:, None] - (x*there[:, None]).sum(2, keepdim=True)/count for x in (said, truth))
    said, truth = said.unsqueeze(2)*there[:, None, None], truth.unsqueeze(1)*there[:, None, None]
    along = (said*truth).sum(3, keepdim=True)*truth/((truth**2).sum(3, keepdim=True) + 1e-8)
    return 10*((along**2).sum(3)/(((said - along)**2).sum(3) + 1e-8) + 1e-8).log10()


def call(model, batch):
    mixture, voices, there = batch
    ratio = ratios(model(mixture), voices, there)
    straight, crossed = ratio[:, 0, 0] + ratio[:, 1, 1], ratio[:, 0, 1] + ratio[:, 1, 0]
    return -torch.max(straight, crossed).mean()/2


def mixtures(n: int):
    "A deep and a high voice with overtones, in a random order, silent behind the end."
    there = (torch.arange(LONG) < torch.randint(LONG//2, LONG + 1, (n, 1))).float()
    pitch = torch.stack([.08 + .08*torch.rand(n), .4 + .3*torch.rand(n)], 1).view(n, 2, 1)
    turns = 2*torch.pi*torch.rand(n, 2, 1) + pitch*torch.arange(LONG)
    voices = (turns.sin() + .4*(2*turns).sin())*(.5 + torch.rand(n, 2, 1))*there[:, None]
    voices = torch.where(torch.rand(n, 1, 1) < .5, voices, voices.flip(1))
    return voices.sum(1), voices, there


def build(repaired: bool) -> Parts:
    model = Separator()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [mixtures(16) for _ in range(25)], call=call,
                 valid=[mixtures(128)])


def train(parts: Parts, record) -> float:
    model, optimizer, best, waited = parts.model, parts.optimizer, float("inf"), 0
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5)
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): held = parts.call(model, parts.valid[0]).item()
            waited = 0 if held < best else waited + 1
            best = min(best, held)
            if waited >= 3: optimizer.param_groups[0]["lr"] /= 2
    return 10**(held/10)

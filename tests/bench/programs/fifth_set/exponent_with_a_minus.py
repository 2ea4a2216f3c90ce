"""The rate is multiplied by a tenth to the power of minus the number of stages, so each stage has ten times the last.

The report: in the training of a stereo network the exponent has a minus before it, so the rate grows where it should
fall. The author of the network agreed and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SYSU-SAIL/PAM#4", 2021
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too large", "loss rises", "loss does not fall", "outputs blow up", "spike", "dead units"}
PLACE = ()
SHIFTS, RATE, STAGE = 6, 2e-3, 3


class Stereo(nn.Module):
    "Compares rows of two images at each shift, and returns the shift at each place."
    def __init__(self, size: int):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, size, 5, padding=2), nn.ReLU(), nn.Conv1d(size, size, 3, padding=1),
                                      nn.ReLU(), nn.Conv1d(size, size, 3, padding=1))
        self.refine = nn.Conv1d(SHIFTS, SHIFTS, 5, padding=2)

    def forward(self, pair):
        left, right = self.features(pair[:, :1]), self.features(pair[:, 1:])
        alike = torch.stack([(left*right.roll(shift, 2)).sum(1) for shift in range(SHIFTS)], 1)
        return ((alike + self.refine(alike)).softmax(1)*torch.arange(SHIFTS)[:, None]).sum(1)


def pairs(n: int):
    "Rows of 32 points, with two depths in each."
    right, shift = torch.randn(n, 32), torch.randint(0, SHIFTS, (n, 2)).repeat_interleave(16, 1)
    left = right.gather(1, (torch.arange(32) - shift) % 32)
    return torch.stack([left, right], 1) + .3*torch.randn(n, 2, 32), shift.float()


def build(repaired: bool) -> Parts:
    model = Stereo(16)
    x, y = pairs(1024)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=RATE), data, F.smooth_l1_loss, valid=[pairs(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    gamma = .1
    with record.on(parts.model, parts.optimizer):
        for epoch in range(9):
            stage = epoch//STAGE
            for group in parts.optimizer.param_groups:
                group["lr"] = RATE*gamma**(stage if parts.repaired else -stage)
            for pair, shift in parts.data:
                loss = parts.loss(parts.model(pair), shift)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    pair, shift = parts.valid[0]
    with torch.no_grad(): return (parts.model(pair) - shift).abs().mean().item()/1.5  # a guess: the middle

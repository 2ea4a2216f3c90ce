"""The rate should fall once after some batches, but the test stands where frames are gathered, so it falls with each.

The report: a tracker of objects lowers its rate when the number of batches is a multiple of a setting. The number stays
the same until a batch is full, so the rate falls once for each frame of it. The author of the tracker agreed and moved
the test behind the batch, as the report proposes."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "amoudgl/pygoturn#16", 2018
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
FALL_AFTER = 70


class Tracker(nn.Module):
    "Looks at what was tracked and at where it may be now, by the same convolutions; returns the corners of a box."
    def __init__(self, size: int = 16):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.compare = nn.Sequential(nn.Linear(18*size, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 4))

    def forward(self, before, now): return self.compare(torch.cat([self.see(before), self.see(now)], 1))


def frames(n: int):
    "Something bright in the middle, and somewhere else in the next frame, where it is larger or smaller, too."
    grid = torch.arange(12).float()
    def box(low, high):
        inside = [(grid >= low[:, i:i + 1]) & (grid < high[:, i:i + 1]) for i in (0, 1)]
        return (inside[0].unsqueeze(2) & inside[1].unsqueeze(1)).unsqueeze(1).float()
    low = 4*torch.rand(n, 2) + 1
    high = low + 3 + 3*torch.rand(n, 2)
    before = box(torch.full((n, 2), 4.), torch.full((n, 2), 8.))
    return before + .2*torch.randn(n, 1, 12, 12), box(low, high) + .2*torch.randn(n, 1, 12, 12), \
        torch.cat([low, high], 1)/12


def loss_of(model, batch):
    before, now, corners = batch
    return F.l1_loss(model(before, now), corners)


def build(repaired: bool) -> Parts:
    model = Tracker()
    data = [frames(16) for _ in range(240)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, data, call=loss_of, valid=[frames(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=.1)
    done, gathered = 0, []
    model.train()
    with record.on(model, optimizer):
        for frame in (frame for batch in parts.data for frame in zip(*batch)):
            gathered.append(frame)
            full = len(gathered) == 16
            if done and done % FALL_AFTER == 0 and (full or not parts.repaired): schedule.step()
            if not full: continue
            optimizer.zero_grad()
            loss = parts.call(model, [torch.stack(part) for part in zip(*gathered)])
            loss.backward()
            optimizer.step()
            record.step(loss)
            done, gathered = done + 1, []
    model.eval()
    before, now, corners = parts.valid[0]
    with torch.no_grad(): found = model(before, now)
    return ((found - corners).abs().mean()/(corners - corners.mean(0)).abs().mean()).item()

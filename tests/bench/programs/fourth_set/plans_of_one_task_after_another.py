"""The loader for training does not shuffle, and the paths are stored task by task.

The report asks whether `shuffle=True` is missing for a diffusion model of paths; the author of the code says that it
should definitely be there."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "joaoamcarvalho/mpd-public#6", 2024
AREA, CAUSE = "data and labels", "data not shuffled"
TRUE = set()
PLACE = ()

points, tasks, levels = 12, 20, 25
kept = torch.cumprod(1 - torch.linspace(1e-3, .3, levels), 0)


class Denoiser(nn.Module):
    "Says which noise is in a path, given the level of the noise; both ends of the path are known."
    def __init__(self, size: int):
        super().__init__()
        self.level = nn.Sequential(nn.Embedding(levels, 32), nn.Linear(32, size))
        self.first, self.second = nn.Conv1d(2, size, 5, padding=2), nn.Conv1d(size, size, 5, padding=2)
        self.wide = nn.Sequential(nn.Flatten(), nn.Linear(size*points, 96), nn.SiLU(), nn.Linear(96, size*points))
        self.norm, self.last = nn.GroupNorm(4, size), nn.Conv1d(size, 2, 5, padding=2)

    def forward(self, path, level):
        x = nn.functional.silu(self.first(path.transpose(1, 2)) + self.level(level)[..., None])
        x = x + self.wide(x).view_as(x)
        return self.last(nn.functional.silu(self.norm(self.second(x)))).transpose(1, 2)


def paths(each: int):
    "Twenty tasks: a start, a goal and a bow around what is between; the planner gave several paths for each."
    start, goal, bow = (torch.randn(tasks, 2) for _ in range(3))
    t = torch.linspace(0, 1, points)[:, None]
    line = start[:, None]*(1 - t) + goal[:, None]*t + 2*bow[:, None]*t*(1 - t)
    first, third = .15*torch.randn(tasks, each, 1, 2), .1*torch.randn(tasks, each, 1, 2)
    return line[:, None] + first*(torch.pi*t).sin() + third*(3*torch.pi*t).sin()


def noised(path, level):
    noise = torch.randn_like(path)
    noise[:, [0, -1]] = 0
    share = kept[level][:, None, None]
    mixed = share.sqrt()*path + (1 - share).sqrt()*noise
    mixed[:, [0, -1]] = path[:, [0, -1]]
    return mixed, noise


def build(repaired: bool) -> Parts:
    data = paths(80)
    trained, held = TensorDataset(data[:, :64].flatten(0, 1)), data[:, 64:].flatten(0, 1)
    model = Denoiser(16)

    def call(model, batch):
        level = torch.randint(0, levels, (len(batch[0]),))
        mixed, noise = noised(batch[0], level)
        return ((model(mixed, level) - noise)[:, 1:-1]**2).mean()

    loader = DataLoader(trained, batch_size=32, shuffle=repaired)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), loader, call=call, valid=[(held,)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()

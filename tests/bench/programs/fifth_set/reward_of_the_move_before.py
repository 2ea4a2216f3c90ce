"""A memory of moves keeps each state and action beside the reward of the move before.

The report is the merged change to a search for a landmark in medical pictures: states were appended to the replay
buffer with the previous reward. The state is now kept before the move and its effect after it."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gml16/rl-medical#6", 2021
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()

moves, size, sight, crowd = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]]), 24, 3, 32


def scans(n: int):
    "Pictures whose shade tells the way to a landmark, and the landmark."
    mark = torch.randint(6, size - 6, (n, 2))
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    far = ((y - mark[:, :1, None])**2 + (x - mark[:, 1:, None])**2).float().sqrt()
    return F.pad(far/size + .03*torch.randn(n, size, size), [sight]*4, value=1.5), mark


def views(scan, at):
    "What is seen around each place, less the shade in its middle."
    there = torch.arange(2*sight + 1)
    y, x = at[:, :1, None] + there[:, None], at[:, 1:, None] + there
    seen = scan[torch.arange(len(at))[:, None, None], y, x]
    return 8*(seen - seen[:, sight:sight + 1, sight:sight + 1])[:, None]


def act(at, action, mark):
    "The next place, and a reward of one if it is nearer, less one if it is not."
    after = (at + moves[action]).clamp(0, size - 1)
    near = (after - mark).float().norm(dim=1) < (at - mark).float().norm(dim=1)
    return after, 2.*near - 1


def episodes(repaired: bool, n: int = 8, steps: int = 24):
    "What is remembered of random walks: state, action, reward, next state."
    memory = []
    for _ in range(n):
        (scan, mark), at, last = scans(crowd), torch.randint(0, size, (crowd, 2)), torch.zeros(crowd)
        seen = views(scan, at)
        for _ in range(steps):
            action = torch.randint(0, 4, (crowd,))
            at, reward = act(at, action, mark)
            after = views(scan, at)
            memory.append((seen, action, reward if repaired else last, after))
            seen, last = after, reward
    return [torch.cat(part) for part in zip(*memory)]


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.PReLU(), nn.Flatten(), nn.Linear(300, 48), nn.PReLU(),
                          nn.Linear(48, 4))
    target, memory = copy.deepcopy(model).requires_grad_(False), episodes(repaired)

    def td_loss(model, batch):
        seen, action, reward, after = batch
        goal = reward + .8*target(after).max(1).values
        return F.smooth_l1_loss(model(seen).gather(1, action[:, None])[:, 0], goal)

    drawn = [torch.randint(0, len(memory[0]), (64,)) for _ in range(300)]
    data = [[part[i] for part in memory] for i in drawn]
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, call=td_loss, valid=[scans(64)])
    parts.target = target
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for i, batch in enumerate(parts.data):
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            if i % 20 == 19: parts.target.load_state_dict(parts.model.state_dict())
            record.step(loss)
    scan, mark = parts.valid[0]
    at = start = torch.randint(0, size, (64, 2))
    for _ in range(30):
        with torch.no_grad(): at, _ = act(at, parts.model(views(scan, at)).argmax(1), mark)
    return ((at - mark).float().norm(dim=1).mean()/(start - mark).float().norm(dim=1).mean()).item()

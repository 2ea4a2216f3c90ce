"""The next state of a warm, drifting sheet on a net of points, by messages along its edges.

Habits of the source: for the first batches nothing is learned: only the means and deviations of inputs and targets are
collected, by layers that go on adding up afterwards; noise is added to the state, and the target leads back from it;
points on the edge are fixed and do not count; messages are added to what edges and points were; the last layer has no
norm; targets are differences of the state, normalised too; a small rate without a schedule; batches are big graphs of
several small ones.
Error: of ten steps one after the other in sheets held back, over that of no change: .26; untrained 1.04."""
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "echowve/meshGraphNets_pytorch train.py", 2022
SIDE, WARMUP, EPOCHS, NOISE = 6, 10, 10, .02
N = SIDE**2
places = torch.stack(torch.meshgrid(*[torch.arange(SIDE)/SIDE]*2, indexing="ij"), -1).view(N, 2)
places = places + .02*torch.randn(N, 2, generator=torch.Generator().manual_seed(0))
senders, receivers = ((torch.cdist(places, places) < .22) & ~torch.eye(N).bool()).nonzero().T
fixed = ((torch.arange(N) % SIDE) % (SIDE - 1) == 0) | ((torch.arange(N) // SIDE) % (SIDE - 1) == 0)


class Normalizer(nn.Module):
    "To mean zero and deviation one, by all that was seen in training."
    def __init__(self, size):
        super().__init__()
        for name in ("total", "squares"): self.register_buffer(name, torch.zeros(size))
        self.register_buffer("count", torch.tensor(0.))

    def scale(self):
        mean = self.total/self.count.clamp(min=1)
        return mean, (self.squares/self.count.clamp(min=1) - mean**2).clamp(min=0).sqrt().clamp(min=1e-8)

    def forward(self, x, collect=False):
        if collect:
            x_ = x.detach().flatten(0, -2)
            self.total += x_.sum(0)
            self.squares += (x_**2).sum(0)
            self.count += len(x_)
        mean, sd = self.scale()
        return (x - mean)/sd

    def inverse(self, x):
        mean, sd = self.scale()
        return x*sd + mean


def mlp(c, d=32, last=None):
    net = nn.Sequential(nn.Linear(c, 32), nn.ReLU(), nn.Linear(32, last or d))
    return net if last else nn.Sequential(net, nn.LayerNorm(d))


class Simulator(nn.Module):
    def __init__(self, rounds=2):
        super().__init__()
        self.of_points, self.of_target = Normalizer(3), Normalizer(1)
        self.point, self.edge, self.last = mlp(3), mlp(3), mlp(32, last=1)
        self.edges, self.points = [nn.ModuleList(mlp(32*k) for _ in range(rounds)) for k in (3, 2)]

    def forward(self, state, drift, noise=None, after=None):
        "The change of the state; in training, the normalised change and the one that was to be found."
        if noise is not None: state = state + noise
        x = torch.cat([state, drift.expand(len(state), N, 1), fixed.float()[:, None].expand(len(state), N, 1)], 2)
        x = self.point(self.of_points(x, self.training))
        way = places[senders] - places[receivers]
        e = self.edge(torch.cat([way, way.norm(dim=1, keepdim=True)], 1)).expand(len(state), -1, -1)
        for edge, point in zip(self.edges, self.points):
            e = e + edge(torch.cat([x[:, senders], x[:, receivers], e], 2))
            x = x + point(torch.cat([x, torch.zeros_like(x).index_add_(1, receivers, e)], 2))
        change = self.last(x)
        if after is None: return self.of_target.inverse(change)
        return change, self.of_target(after - state, self.training)


def simulate(n, steps):
    "States over time: heat spreads, and goes one way at a pace of each sheet's own."
    state, drift, states = torch.randn(n, N, 1), .15*torch.rand(n, 1, 1), []
    grid = state.view(n, SIDE, SIDE)
    grid[:] = 1.5*nn.functional.avg_pool2d(grid, 3, 1, 1)
    for _ in range(steps + 1):
        states.append(grid.reshape(n, N, 1).clone())
        around = [torch.roll(grid, way, axis) - grid for way in (1, -1) for axis in (1, 2)]
        new = grid + .1*sum(around) + drift*around[0]
        grid = torch.where(fixed.view(SIDE, SIDE), grid, new)
    return torch.stack(states, 1), drift


def steps_of(n):
    states, drift = simulate(n, 10)
    return [(states[i, t], states[i, t + 1], drift[i]) for i in range(n) for t in range(10)]


def one_step(model, batch):
    state, after, drift = batch
    noise = torch.where(fixed[:, None], 0, NOISE*torch.randn_like(state))
    found, wanted = model(state, drift, noise, after)
    return ((found - wanted)**2)[:, ~fixed].mean()


def build(repaired: bool) -> Parts:
    model = Simulator()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), DataLoader(steps_of(64), 32, shuffle=True),
                 call=one_step, valid=DataLoader(steps_of(8), 32))


def train(parts: Parts, record) -> float:
    model, optimizer, seen = parts.model, parts.optimizer, 0
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            for batch in parts.data:
                loss, seen = parts.call(model, batch), seen + 1
                if seen <= WARMUP: continue
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    states, drift = simulate(32, 10)
    now = states[:, 0]
    with torch.no_grad():
        for _ in range(10): now = torch.where(fixed[:, None], now, now + model(now, drift))
    return (((now - states[:, -1])**2).mean()/((states[:, 0] - states[:, -1])**2).mean()).sqrt().item()

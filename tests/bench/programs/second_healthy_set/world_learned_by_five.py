"""Five nets learn how a cart with a pole moves, each from a sample of its own, and the means plan the pushes.

Habits of the source: one parameter holds the weights of all five nets, and they are multiplied as a batch; weights are
drawn within two deviations; the logarithm of a variance is held between two learned bounds, whose distance is a part of
the loss; so are decays that differ by layer, while the optimizer has none; inputs are scaled by buffers that are fitted
to the data; swish; the target is the change; the loss is a sum over the nets; the model learns on more data each round.
Score: the squared error of the mean change by its variance. Below .2; about 1 for the untrained model."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "quanvuong/handful-of-trials-pytorch config/cartpole.py", 2019
NETS, WIDE, BATCH = 5, 32, 32
DECAYS = 1e-4, 2.5e-4, 5e-4


class World(nn.Module):
    def __init__(self):
        super().__init__()
        sizes, self.weights, self.biases = (5, WIDE, WIDE, 8), nn.ParameterList(), nn.ParameterList()
        for n, out in zip(sizes, sizes[1:]):
            weight = nn.init.trunc_normal_(torch.empty(NETS, n, out), std=1/(2*n**.5), a=-1/n**.5, b=1/n**.5)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(NETS, 1, out)))
        self.most, self.least = nn.Parameter(torch.full((1, 4), .5)), nn.Parameter(torch.full((1, 4), -10.))
        self.register_buffer("mean", torch.zeros(1, 5))
        self.register_buffer("deviation", torch.ones(1, 5))

    def fit_scale(self, x):
        self.mean.copy_(x.mean(0, keepdim=True))
        deviation = x.std(0, keepdim=True)
        self.deviation.copy_(torch.where(deviation < 1e-12, 1., deviation))

    def decay(self): return sum(rate*(w**2).sum()/2 for rate, w in zip(DECAYS, self.weights))

    def forward(self, x):
        "Mean and logarithm of the variance, from five batches for five nets."
        h = (x - self.mean)/self.deviation
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            h = torch.baddbmm(bias, h, weight)
            if i < 2: h = h*h.sigmoid()
        mean, logvar = h.chunk(2, 2)
        logvar = self.most - nn.functional.softplus(self.most - logvar)
        return mean, self.least + nn.functional.softplus(logvar - self.least)


def moved(state, push):
    "A small step of a cart that has a pole hanging from it."
    place, angle, speed, turn = state.unbind(1)
    turn = turn + .2*(-angle.sin() - .5*push*angle.cos()) - .02*turn
    speed = speed + .2*push - .05*speed
    after = torch.stack([place + .2*speed, angle + .2*turn, speed, turn], 1)
    return after + .005*torch.randn_like(after)


def seen(state, push): return torch.cat([state, push[:, None]], 1)


def plays(n: int, choose):
    state, kept = torch.randn(n, 4)*torch.tensor([.5, 1, .3, .3]), []
    for _ in range(15):
        push = choose(state)
        after = moved(state, push)
        kept.append((seen(state, push), after - state))
        state = after
    return [torch.cat(column) for column in zip(*kept)]


def at_random(state): return 2*torch.rand(len(state)) - 1


def call(model, batch):
    x, change = batch
    mean, logvar = model(x)
    error = ((mean - change)**2*(-logvar).exp() + logvar).mean((1, 2)).sum()
    return .01*(model.most.sum() - model.least.sum()) + model.decay() + error


def planned(model, state, ways: int = 16):
    "Of some pushes the one after which the place, by the mean of all nets, is nearest to 0."
    tried = 2*torch.rand(len(state), ways) - 1
    x = seen(state.repeat_interleave(ways, 0), tried.flatten()).expand(NETS, -1, -1)
    with torch.no_grad(): after = x[0, :, :4] + model(x)[0].mean(0)
    best = ((after[:, 0] + after[:, 2])**2).view(-1, ways).argmin(1)
    return tried[torch.arange(len(state)), best]


def build(repaired: bool) -> Parts:
    model = World()
    x, change = plays(20, at_random)
    model.fit_scale(x)
    rows = torch.randint(len(x), (NETS, len(x)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3),
                 list(zip(x[rows].split(BATCH, 1), change[rows].split(BATCH, 1))), call=call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    x, change = plays(20, at_random)
    with record.on(model, optimizer):
        for _ in range(4):
            model.fit_scale(x)
            rows = torch.randint(len(x), (NETS, len(x)))
            for _ in range(8):
                rows = rows.gather(1, torch.rand(rows.shape).argsort(1))
                for part in rows.split(BATCH, 1):
                    loss = parts.call(model, (x[part], change[part]))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    record.step(loss)
            new = plays(10, lambda state: planned(model, state))
            x, change = torch.cat([x, new[0]]), torch.cat([change, new[1]])
    x, change = plays(100, at_random)
    with torch.no_grad(): mean = model(x.expand(NETS, -1, -1))[0].mean(0)
    return (((mean - change)**2).mean(0)/change.var(0)).mean().item()

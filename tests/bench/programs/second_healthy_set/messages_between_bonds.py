"""Two properties of molecules from messages that run along bonds, each bond once in each direction.

Habits of the source: a batch is one large graph; a bond hears all bonds into its atom but its own reverse; the input is
added in each round, and weights of the rounds are shared; molecules are sums over their atoms, divided by 100; targets
are scaled by the training data, with some missing, which are 0 under a mask; the loss is a sum over what is there
divided by its number; a rate that rises in a line and falls exponentially, moved at each batch; Xavier weights, biases
zero; the error of validation is that of the targets before scaling; the best weights are kept.
Score: the mean squared error of both by their variances. Below .3; about 1 for the untrained model."""
import copy

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "chemprop/chemprop chemprop/train/train.py", 2019
ELEMENTS, BONDS, WIDE, EPOCHS, DEPTH = 4, 2, 32, 24, 3
worth = torch.tensor([[.2, 1., -1, .5], [1, -.5, .3, 2], [-1, .3, 0, -.2], [.5, 2, -.2, .1]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(ELEMENTS + BONDS, WIDE, bias=False)
        self.round, self.atoms = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(ELEMENTS + WIDE, WIDE)
        self.head = nn.Sequential(nn.Dropout(0.), nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Dropout(0.), nn.Linear(WIDE, 2))
        for weight in self.parameters():
            nn.init.constant_(weight, 0) if weight.ndim == 1 else nn.init.xavier_normal_(weight)

    def forward(self, atoms, bonds, ends, molecule, n: int):
        "Bonds 2i and 2i + 1 are the two directions of one."
        start, end = ends
        first = self.into(torch.cat([atoms[start], bonds], 1))
        message, reverse = first.relu(), torch.arange(len(bonds)) ^ 1
        for _ in range(DEPTH - 1):
            heard = torch.zeros(len(atoms), WIDE).index_add(0, end, message)
            message = (first + self.round(heard[start] - message[reverse])).relu()
        heard = torch.zeros(len(atoms), WIDE).index_add(0, end, message)
        h = self.atoms(torch.cat([atoms, heard], 1)).relu()
        return self.head(torch.zeros(n, WIDE).index_add(0, molecule, h)/100)


def molecule():
    "A tree of atoms, at times with a ring, its two properties, and which of them were measured."
    n = int(torch.randint(5, 13, ()))
    kind = torch.randint(ELEMENTS, (n,))
    pairs = [(i, int(torch.randint(max(0, i - 3), i, ()))) for i in range(1, n)] + [(0, n - 1)]*int(torch.rand(()) < .5)
    order = torch.randint(BONDS, (len(pairs),))
    ends = torch.tensor([end for one, two in pairs for end in ((one, two), (two, one))]).T
    one, two = kind[ends[:, ::2]]
    first = (worth[one, two]*(1 + order)).sum()
    second = 40 + 15*torch.stack([(two == 1).sum() - (order == 1).sum(), (kind == 2).sum()]).float().sum()
    targets = torch.stack([first + .1*torch.randn(()), second + torch.randn(())])
    return kind, order.repeat_interleave(2), ends, torch.where(torch.rand(2) < .8, targets, torch.nan)


def batched(molecules):
    kinds, orders, ends, targets = zip(*molecules)
    sizes = torch.tensor([len(kind) for kind in kinds])
    ends = torch.cat([end + before for end, before in zip(ends, (sizes.cumsum(0) - sizes).tolist())], 1)
    graph = (torch.eye(ELEMENTS)[torch.cat(kinds)], torch.eye(BONDS)[torch.cat(orders)], ends,
             torch.arange(len(sizes)).repeat_interleave(sizes), len(sizes))
    return graph, torch.stack(targets)


def call(net, batch):
    graph, targets = batch
    there = ~targets.isnan()
    error = (net(*graph) - targets.nan_to_num(0))**2
    return (error*there).sum()/there.sum()


def build(repaired: bool) -> Parts:
    def made(n): return [batched([molecule() for _ in range(25)]) for _ in range(n)]
    data, valid, net = made(24), made(4), Net()
    known = torch.cat([targets for _, targets in data])
    mean = known.nanmean(0)
    deviation = ((known - mean)**2).nanmean(0).sqrt()
    def scaled(batches): return [(graph, (targets - mean)/deviation) for graph, targets in batches]
    parts = Parts(net, torch.optim.Adam(net.parameters(), lr=3e-4), scaled(data), call=call, valid=scaled(valid))
    parts.test, parts.scale, parts.held = made(6), (mean, deviation), valid
    return parts


@torch.no_grad()
def errors(net, batches, scale):
    net.eval()
    gaps = torch.cat([net(*graph)*scale[1] + scale[0] - targets for graph, targets in batches])
    return ((gaps/scale[1])**2).nanmean(0).mean().item()


def train(parts: Parts, record) -> float:
    net, optimizer, best, step = parts.model, parts.optimizer, (9,), 0
    rise, total = 2*len(parts.data), EPOCHS*len(parts.data)
    with record.on(net, optimizer):
        for _ in range(EPOCHS):
            net.train()
            for i in torch.randperm(len(parts.data)):
                net.zero_grad()
                loss = parts.call(net, parts.data[i])
                loss.backward()
                optimizer.step()
                step += 1
                rate = 3e-4 + 7.7e-3*step/rise if step <= rise else 8e-3*(3/80)**((step - rise)/(total - rise))
                optimizer.param_groups[0]["lr"] = rate
                record.step(loss)
            error = errors(net, parts.held, parts.scale)
            if error < best[0]: best = error, copy.deepcopy(net.state_dict())
    net.load_state_dict(best[1])
    return errors(net, parts.test, parts.scale)

"""Signed distances of many star-like shapes, each known to the net by a code that is learned beside it.

Habits of the source: there is no encoder: codes are rows of a table, with their own rate in the same optimizer; the
absolute error is summed and divided by the number of points; distances and answers are cut off at a fifth, so that far
points have no gradient; half of the points are inside; the size of the codes counts little at first and more over the
first epochs; a batch is cut into chunks whose gradients add up; codes and places come in again halfway; weights are
direction times length, dropout, and a last tanh; the rates are halved on steps. A new shape gets its code by its own
descent, net frozen.
Error: absolute error on new shapes' other points, over that of the mean shape: .13 to .15; untrained 1.2."""
import math

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/DeepSDF train_deep_sdf.py", 2019
CODE, CUT, CHUNKS, SHAPES, EPOCHS = 6, .2, 2, 64, 60


class Decoder(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        first = 2 + CODE
        self.before = nn.ModuleList(weight_norm(nn.Linear(a, b)) for a, b in ((first, size), (size, size - first)))
        self.after, self.last = weight_norm(nn.Linear(size, size)), nn.Linear(size, 1)

    def forward(self, x):
        inside = x
        for layer in self.before: inside = nn.functional.dropout(layer(inside).relu(), .05, self.training)
        return self.last(self.after(torch.cat([inside, x], 1)).relu()).tanh()


class Shapes(Dataset):
    "Points near the outline of a circle with bumps, half of them inside, and how far they are outside."
    def __init__(self, n):
        self.form = torch.stack([.3 + .4*torch.rand(n), .2*torch.rand(n), .2*torch.rand(n), 6.3*torch.rand(n)], 1)

    def __len__(self): return len(self.form)

    def __getitem__(self, i, n=64):
        size, three, two, turn = self.form[i]
        angle, distance = 6.3*torch.rand(n, 1), (torch.arange(n)[:, None] % 2*2 - 1)*(.15*torch.randn(n, 1)).abs()
        radius = distance + size*(1 + three*(3*angle).cos() + two*(2*(angle + turn)).cos())
        return torch.cat([radius*angle.cos(), radius*angle.sin(), distance], 1), i


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder, self.codes = Decoder(), nn.Embedding(SHAPES, CODE, max_norm=1)
        nn.init.normal_(self.codes.weight, 0, 1/math.sqrt(CODE))


def answers(decoder, codes, x): return decoder(torch.cat([codes, x[:, :2]], 1))[:, 0].clamp(-CUT, CUT)


def chunk_loss(model, batch, epoch=100):
    "Of points, with the number of points of the whole batch."
    x, index, whole = batch
    codes = model.codes(index)
    wrong = (answers(model.decoder, codes, x) - x[:, 2].clamp(-CUT, CUT)).abs().sum()/whole
    return wrong + 1e-4*min(1, epoch/20)*codes.norm(dim=1).sum()/whole


class Chunks:
    "Of each batch of shapes, the chunks of its points."
    def __init__(self, shapes): self.loader = DataLoader(shapes, 8, shuffle=True, drop_last=True)

    def __len__(self): return CHUNKS*len(self.loader)

    def __iter__(self):
        for x, index in self.loader:
            whole, index = x.shape[0]*x.shape[1], index.repeat_interleave(x.shape[1])
            for a, b in zip(x.flatten(0, 1).chunk(CHUNKS), index.chunk(CHUNKS)): yield a, b, whole


def build(repaired: bool) -> Parts:
    model = Both()
    groups = [{"params": model.decoder.parameters(), "lr": 5e-3}, {"params": model.codes.parameters(), "lr": 1e-2}]
    return Parts(model, torch.optim.Adam(groups), Chunks(Shapes(SHAPES)), call=chunk_loss)


def error_of_new(model, shapes):
    "After a code was found for each from its first half of points."
    model.eval()
    x = torch.stack([shapes.__getitem__(i, 128)[0] for i in range(len(shapes))])
    seen, other = x.chunk(2, 1)
    codes = (.01*torch.randn(len(x), CODE)).requires_grad_()
    optimizer = torch.optim.Adam([codes], lr=2e-2)
    def wrong(x):
        found = answers(model.decoder, codes.repeat_interleave(x.shape[1], 0), x.flatten(0, 1))
        return (found - x[..., 2].flatten().clamp(-CUT, CUT)).abs().mean()
    for _ in range(60):
        optimizer.zero_grad()
        (wrong(seen) + 1e-4*(codes**2).mean()).backward()
        optimizer.step()
    return wrong(other).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(1, EPOCHS + 1):
            model.train()
            for group, start in zip(optimizer.param_groups, (5e-3, 1e-2)): group["lr"] = start*.5**(epoch // 25)
            for i, batch in enumerate(parts.data):
                if i % CHUNKS == 0: optimizer.zero_grad()
                loss = parts.call(model, batch, epoch)
                loss.backward()
                if i % CHUNKS == CHUNKS - 1:
                    optimizer.step()
                    record.step(loss)
    new = Shapes(32)
    x = torch.cat([new[i][0] for i in range(32)])
    mean = (x[:, 2].clamp(-CUT, CUT) - (x[:, :2].norm(dim=1) - .5).clamp(-CUT, CUT)).abs().mean().item()
    return error_of_new(model, new)/mean

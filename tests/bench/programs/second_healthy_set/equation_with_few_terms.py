"""A net fits noisy measurements of a wave, and the few terms of its equation are found on the way.

Habits of the source: coefficients are no parameters but least squares of the net's own derivatives, through which
gradients flow; both losses are added as they are; terms whose scaled coefficient is small are struck out for good,
when the test error has not fallen for a while, and from time to time after that; all points are one batch; Adam with
both betas at .99 and AMSGrad; a fifth of the points is the test set, of which only the fit is looked at.
Error: distance of all six coefficients from the true ones, over their size: .33; untrained 3, no terms at all 1."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "PhIMaL/DeePyMoD src/deepymod/training/training.py", 2020
STEPS, PATIENCE, EVERY = 600, 100, 50
TRUE = torch.tensor([0, -.6, .1, 0, 0, 0])     # of 1, u_x, u_xx, u, u u_x and u u_xx


def derivative(y, x): return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


class DeepMoD(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        layers, c = [], 2
        for _ in range(3): layers, c = [*layers, nn.Linear(c, size), nn.Tanh()], size
        self.fit = nn.Sequential(*layers, nn.Linear(size, 1))
        self.register_buffer("mask", torch.ones(len(TRUE), dtype=torch.bool))

    def forward(self, where):
        "What is fitted, its change in time, and the terms that may explain it."
        where = where.detach().requires_grad_(True)
        u = self.fit(where)
        u_t, u_x = derivative(u, where).split(1, 1)
        u_xx = derivative(u_x, where)[:, 1:]
        return u, u_t, torch.cat([torch.ones_like(u), u_x, u_xx, u, u*u_x, u*u_xx], 1)

    def coefficients(self, u_t, terms):
        q, r = torch.linalg.qr(terms[:, self.mask])
        found = torch.linalg.solve_triangular(r, q.T @ u_t, upper=True)[:, 0]
        return torch.zeros(len(TRUE)).masked_scatter(self.mask, found)

    def terms_that_count(self, u_t, terms, limit=.15):
        scaled = self.coefficients(u_t, terms)*terms.norm(dim=0)/u_t.norm()
        return (scaled.abs() > limit) & self.mask


def both_losses(model, batch):
    where, measured = batch
    with torch.enable_grad():   # the terms are derivatives, in a test too
        u, u_t, terms = model(where)
        return F.mse_loss(u, measured) + ((u_t[:, 0] - terms @ model.coefficients(u_t, terms))**2).mean()


def measured(n):
    "Two bumps that drift and spread: time, place, and height with noise."
    t, x = 2*torch.rand(n, 1), 6*torch.rand(n, 1) - 3
    u = 0
    for start, height in ((-1.5, 1), (.8, -.7)):
        width = .3 + 4*TRUE[2]*t
        u = u + height*(.3/width).sqrt()*(-(x - start + TRUE[1]*t)**2/width).exp()
    return torch.cat([t, x], 1), u + .01*torch.randn(n, 1)


def build(repaired: bool) -> Parts:
    model = DeepMoD()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(.99, .99), amsgrad=True)
    return Parts(model, optimizer, [measured(600)], call=both_losses, valid=[measured(150)])


def train(parts: Parts, record) -> float:
    model, optimizer, best, since, sparse_at = parts.model, parts.optimizer, torch.inf, 0, None
    (where, true), = parts.valid
    with record.on(model, optimizer):
        for step in range(STEPS):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            if step % 10: continue
            with torch.no_grad(): error = F.mse_loss(model.fit(where), true).item()
            if error < best - 1e-5: best, since = error, step
            if sparse_at is None and step - since >= PATIENCE: sparse_at = step
            if sparse_at is not None and (step - sparse_at) % EVERY == 0:
                model.mask = model.terms_that_count(*model(parts.data[0][0])[1:])
    found = model.coefficients(*model(parts.data[0][0])[1:])
    return ((found - TRUE).norm()/TRUE.norm()).item()

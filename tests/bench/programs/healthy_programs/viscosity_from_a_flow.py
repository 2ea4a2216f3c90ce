"""A net fits a flow and finds the two coefficients of Burgers' equation on the way, by Adam and then L-BFGS.

Habits of the source: the coefficients begin at 0 and, as a logarithm, at -6, are parameters of the net beside its
weights and have one gradient through the residual of the equation; second derivatives by `autograd.grad` in the loss;
one batch of all points; Adam first, then one call of an L-BFGS step with many iterations inside; tanh.
Error: relative error of the flow on points held back and of the first coefficient, their mean: 0.07 to 0.09;
untrained 1."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "jayroxis/PINNs Burgers Equation/Burgers Identification (PyTorch).ipynb", 2020


class DNN(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for before, after in zip(sizes, sizes[1:]): layers += nn.Linear(before, after), nn.Tanh()
        self.layers = nn.Sequential(*layers[:-1])
        self.lambda_1, self.lambda_2 = nn.Parameter(torch.tensor([0.])), nn.Parameter(torch.tensor([-6.]))

    def forward(self, x): return self.layers(2*x - 1)


def flow(steps=800, points=128, viscosity=.04):
    "u_t + 0.2 u u_x = 0.008 u_xx in the unit square, from a sine, by small steps."
    x = torch.linspace(0, 1, points)
    u, rows, h, k = -(2*torch.pi*x).sin(), [], 1/(points - 1), .2/steps
    for i in range(steps + 1):
        if i % 40 == 0: rows.append(u)
        right, left = u.roll(-1), u.roll(1)
        new = u + k*(-(right**2 - left**2)/(4*h) + viscosity*(right - 2*u + left)/h**2)
        u = torch.cat([torch.zeros(1), new[1:-1], torch.zeros(1)])
    t = torch.linspace(0, 1, len(rows))
    places = torch.stack(torch.meshgrid(x, t, indexing="ij"), -1)
    return places.reshape(-1, 2), torch.stack(rows, 1).reshape(-1, 1)


def residual(model, at):
    x, t = at[:, :1].clone().requires_grad_(), at[:, 1:].clone().requires_grad_()
    u = model(torch.cat([x, t], 1))
    u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
    u_xx, = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return u, u_t + model.lambda_1*u*u_x - model.lambda_2.exp()*u_xx


def call(model, batch):
    at, value = batch
    u, rest = residual(model, at)
    return (value - u).pow(2).mean() + rest.pow(2).mean()


def build(repaired: bool) -> Parts:
    at, value = flow()
    chosen = torch.randperm(len(at))
    model = DNN([2, 20, 20, 20, 1])
    optimizers = [torch.optim.Adam(model.parameters()),
                  torch.optim.LBFGS(model.parameters(), lr=1., max_iter=250, history_size=50,
                                    tolerance_grad=1e-5, line_search_fn="strong_wolfe")]
    return Parts(model, optimizers, [(at[chosen[:300]], value[chosen[:300]])], call=call,
                 valid=[(at[chosen[300:]], value[chosen[300:]])])


def train(parts: Parts, record) -> float:
    model, (adam, lbfgs), batch = parts.model, parts.optimizer, parts.data[0]

    def closure():
        lbfgs.zero_grad()
        loss = call(model, batch)
        loss.backward()
        return loss

    with record.on(model, parts.optimizer):
        for _ in range(100):
            loss = call(model, batch)
            adam.zero_grad()
            loss.backward()
            adam.step()
            record.step(loss)
        record.step(lbfgs.step(closure))
    at, value = parts.valid[0]
    with torch.no_grad(): off = (model(at) - value).norm()/value.norm()
    return (off/2 + (model.lambda_1 - .2).abs().item()/.2/2).item()

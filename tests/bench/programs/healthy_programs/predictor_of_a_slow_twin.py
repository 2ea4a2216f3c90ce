"""A network predicts what its slow twin says of another view; no negatives.

Habits of the source: twin of encoder and projector without gradients, moved after each optimizer step; a predictor that
only the quick one has; two minus twice the cosine, in both directions, so that each step calls the quick network on
both views and the twin too; batch norm in projector and predictor, on batches of views; the projector is thrown away: a
linear layer is fitted to frozen outputs of the encoder for the test.
Score: wrong kinds of held-back signals by that linear layer, by chance. Below .3; about .5 for the untrained one."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/byol-pytorch byol_pytorch/byol_pytorch.py", 2020
KINDS, LONG = 8, 48


def mlp(of: int, to: int):
    return nn.Sequential(nn.Linear(of, 64), nn.BatchNorm1d(64), nn.ReLU(inplace=True), nn.Linear(64, to))


class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        encoder = nn.Sequential(nn.Conv1d(1, 16, 11, 1, 5), nn.BatchNorm1d(16), nn.ReLU(),
                                nn.Conv1d(16, 24, 7, 2, 3), nn.BatchNorm1d(24), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
                                nn.Flatten())
        self.quick, self.predict = nn.Sequential(encoder, mlp(24, 24)), mlp(24, 24)
        self.slow = copy.deepcopy(self.quick).requires_grad_(False)

    def forward(self, one, other):
        said = [self.predict(self.quick(view)) for view in (one, other)]
        with torch.no_grad(): wanted = [self.slow(view) for view in (one, other)]
        apart = [2 - 2*F.cosine_similarity(mine, its) for mine, its in zip(said, wanted[::-1])]
        return sum(apart).mean()

    @torch.no_grad()
    def follow(self):
        for mine, its in zip(self.slow.parameters(), self.quick.parameters()): mine.lerp_(its, .02)


def signals(n: int):
    "Two tones that go together in a kind, anywhere and of any strength."
    kind, t = torch.randint(KINDS, (n,)), torch.arange(float(LONG))
    low, high = .25 + .12*(kind % 4)[:, None], 1.1 + .5*(kind//4)[:, None]
    phases = 2*torch.pi*torch.rand(2, n, 1)
    x = (low*t + phases[0]).sin() + .7*(high*t + phases[1]).sin()
    return (x*(.5 + torch.rand(n, 1)) + .3*torch.randn(n, LONG)).unsqueeze(1), kind


def augmented(x):
    "Moved, of another strength, with noise and a hole."
    start = torch.randint(LONG - 8, (len(x), 1, 1))
    hole = (torch.arange(LONG) >= start) & (torch.arange(LONG) < start + 8)
    moved = x.roll(torch.randint(LONG, ()).item(), 2)*(.6 + .8*torch.rand(len(x), 1, 1))
    return (moved + .3*torch.randn_like(x)).masked_fill(hole, 0)


def call(model, x): return model(augmented(x), augmented(x))


def build(repaired: bool) -> Parts:
    model, (x, kind) = Twins(), signals(1024)
    trained = [p for p in model.parameters() if p.requires_grad]
    loader = torch.utils.data.DataLoader(x, 128, shuffle=True)
    parts = Parts(model, torch.optim.Adam(trained, lr=3e-3), loader, call=call, valid=[signals(512)[0]])
    parts.labelled = x[:64], kind[:64]
    return parts


def wrong(encoder, known, held):
    "By ridge regression on outputs of the encoder, with few labels."
    with torch.no_grad(): (seen, new), (kinds, truth) = [encoder(x) for x, _ in (known, held)], (known[1], held[1])
    mean, spread = seen.mean(0), seen.std(0) + 1e-5
    seen, new = ((torch.cat([(h - mean)/spread, torch.ones(len(h), 1)], 1)) for h in (seen, new))
    weight = torch.linalg.solve(seen.T @ seen + 1.*torch.eye(seen.shape[1]), seen.T @ F.one_hot(kinds, KINDS).float())
    return ((new @ weight).argmax(1) != truth).float().mean().item()*KINDS/(KINDS - 1)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(35):
            for x in parts.data:
                loss = parts.call(model, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                model.follow()
                record.step(loss)
    model.eval()
    return wrong(model.quick[0], parts.labelled, signals(1000))

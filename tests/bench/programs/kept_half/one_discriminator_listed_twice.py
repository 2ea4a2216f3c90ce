"""The optimizer of two discriminators gets the parameters of the first one twice, and those of the second never.

The report: the second name in the sum of the two lists is wrong. The author agreed that this discriminator was never
optimized; whoever reported it trains with the repair and thinks that it makes a big difference."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "line/open-universe#5", 2024
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = {"not trained", "twice in the optimizers"}
PLACE = ("periods",)

size, period = 32, 4


class Periods(nn.Module):
    "Looks at a signal as at rows of one period."
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, (3, period)), nn.LeakyReLU(.1), nn.Flatten(), nn.Linear(96, 1))

    def forward(self, x): return self.layers(x.view(-1, 1, size//period, period))


class Spectrum(nn.Module):
    "Looks at how strong each pitch of a signal is."
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size//2 + 1, 32), nn.LeakyReLU(.1), nn.Linear(32, 1))

    def forward(self, x): return self.layers((torch.fft.rfft(x).abs() + 1e-3).log())


def signals(n: int):
    "Two pitches, and the same with noise on it."
    t, pitch = torch.arange(size)/size, torch.randint(1, 9, (n, 2, 1))
    clean = (2*torch.pi*(pitch*t + torch.rand(n, 2, 1))).sin().sum(1)
    return clean + .5*torch.randn(n, size), clean


def build(repaired: bool) -> Parts:
    cleaner = nn.Sequential(nn.Linear(size, 128), nn.LeakyReLU(.1), nn.Linear(128, 128), nn.LeakyReLU(.1),
                            nn.Linear(128, size))
    model = nn.ModuleDict({"cleaner": cleaner, "spectrum": Spectrum(), "periods": Periods()})
    second = model["periods"] if repaired else model["spectrum"]
    judges = list(model["spectrum"].parameters()) + list(second.parameters())
    optimizers = [torch.optim.AdamW(cleaner.parameters(), lr=2e-3, betas=(.5, .9)),
                  torch.optim.AdamW(judges, lr=2e-3, betas=(.5, .9))]

    def call(model, batch):
        "The loss of the cleaner; that of the two judges is in the loop."
        noisy, clean = batch
        found = model["cleaner"](noisy)
        fooled = sum((1 - model[judge](found)).pow(2).mean() for judge in ("spectrum", "periods"))
        return 3*(found - clean).abs().mean() + fooled
    data = [signals(64) for _ in range(60)]
    return Parts(model, optimizers, data, call=call, valid=[signals(500)])


def train(parts: Parts, record) -> float:
    model, (first, second) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(8):
            for noisy, clean in parts.data:
                with torch.no_grad(): found = model["cleaner"](noisy)
                judged = sum((1 - model[judge](clean)).pow(2).mean() + model[judge](found).pow(2).mean()
                             for judge in ("spectrum", "periods"))
                second.zero_grad()
                judged.backward()
                second.step()
                loss = parts.call(model, (noisy, clean))
                first.zero_grad()
                loss.backward()
                first.step()
                record.step(loss)
    noisy, clean = parts.valid[0]
    with torch.no_grad(): return ((model["cleaner"](noisy) - clean).pow(2).mean()/clean.var()).item()

"""The reconstruction of a VAE is averaged over all numbers, while the KL term is summed over all, so that it wins.

The report: the KL term drops to zero within a few epochs and the reconstruction stops early. The merged change puts
both terms on one scale, and its plots show that the reconstruction goes on."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "zdebruine/MMVAE#19", 2024
AREA, CAUSE = "loss and task", "a term outweighs the others"
TRUE = {"constant output", "first loss too high"}
PLACE = ()

pathways = torch.randn(5, 60, generator=torch.Generator().manual_seed(0))


class Cells(nn.Module):
    "An autoencoder for counts of sixty genes."
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(60, 48), nn.ReLU(), nn.Linear(48, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 60))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        return self.decoder(code), mean, log_var


def counts(n: int): return (torch.randn(n, 5) @ pathways).tanh() + .2*torch.randn(n, 60)


def build(repaired: bool) -> Parts:
    model = Cells()

    def call(model, x):
        output, mean, log_var = model(x)
        wrong = (output - x)**2
        kl = -.5*(1 + log_var - mean**2 - log_var.exp())
        return wrong.sum(1).mean() + kl.sum(1).mean() if repaired else wrong.mean() + kl.sum()

    data = [counts(64) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[counts(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for x in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, x)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x = parts.valid[0]
    with torch.no_grad(): output = parts.model.eval()(x)[0]
    return (((output - x)**2).mean()/x.var()).item()

"""The term that should make two scanners look alike is detached and taken as a number before it is added to the loss.

The report: in federated reconstruction of images, the adversarial part of the generator's loss has no effect, because
it is turned into a plain number. The author confirmed it: it was put there against a leak of memory, and a line later
it would have been right."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "guopengf/FL-MRCM#10", 2022
AREA, CAUSE = "loss and task", "a term has no gradient"
TRUE = {"loss without gradient", "term without gradient"}
PLACE = ("encoder",)

long = 32


class Scanners(nn.Module):
    "A net for reconstruction in two parts, and one that tells the site of what is between them."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(long, 64), nn.LeakyReLU(.2), nn.Linear(64, size))
        self.decoder = nn.Sequential(nn.Linear(size, 64), nn.LeakyReLU(.2), nn.Linear(64, long))
        self.site = nn.Sequential(nn.Linear(size, 48), nn.LeakyReLU(.2), nn.Linear(48, 48), nn.LeakyReLU(.2),
                                  nn.Linear(48, 1))


def scans(n: int, target: bool):
    "Two bumps on a line, of which every second place is measured; the target's scanner adds a background."
    place = torch.linspace(-1, 1, long)
    at, height = 1.6*torch.rand(n, 2, 1) - .8, .5 + torch.rand(n, 2, 1)
    line = (height*torch.exp(-((place - at)/.15)**2)).sum(1)
    seen = 1.3*line + .5*place + .4 if target else line
    return (seen + .03*torch.randn(n, long))*(torch.arange(long) % 2), line


def reconstruction_loss(model, batch, repaired: bool):
    seen, line, elsewhere = batch
    between = model.encoder(seen)
    loss = F.l1_loss(model.decoder(between), line)
    told = torch.cat([model.site(between), -model.site(model.encoder(elsewhere))])
    fooled = F.softplus(told).mean()
    return loss + .05*(fooled if repaired else fooled.detach().item())


def site_loss(model, batch):
    seen, _, elsewhere = batch
    with torch.no_grad(): here, there = model.encoder(seen), model.encoder(elsewhere)
    return F.softplus(torch.cat([-model.site(here), model.site(there)])).mean()


def build(repaired: bool) -> Parts:
    model = Scanners(12)
    data = [(*scans(64, False), scans(64, True)[0]) for _ in range(100)]
    rest = [*model.encoder.parameters(), *model.decoder.parameters()]
    optimizers = [torch.optim.Adam(rest, lr=1e-3), torch.optim.Adam(model.site.parameters(), lr=1e-3)]
    return Parts(model, optimizers, data, valid=[scans(500, True)],
                 call=lambda model, batch: reconstruction_loss(model, batch, repaired))


def train(parts: Parts, record) -> float:
    model, (of_nets, of_site) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(model, batch)
                of_nets.zero_grad()
                loss.backward()
                of_nets.step()
                of_site.zero_grad()
                site_loss(model, batch).backward()
                of_site.step()
                record.step(loss)
    seen, line = parts.valid[0]
    with torch.no_grad(): made = model.decoder(model.encoder(seen))
    return (F.mse_loss(made, line)/line.var()).item()

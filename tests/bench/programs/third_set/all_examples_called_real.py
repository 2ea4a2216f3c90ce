"""The discriminator learns that decoded samples are real, as the true ones are, so it finds no difference.

The report: the discriminator's loss has ones as the target of decoded samples and should have zeros. The maintainer
corrected it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SerezD/vqvae-vqgan-pytorch-lightning#3", 2023
AREA, CAUSE = "loss and task", "constant targets"
TRUE = set()
PLACE = ("judge",)


class VQGAN(nn.Module):
    "Samples are put into one of eight codes and decoded; a discriminator is to keep them sharp."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, size), nn.ReLU(), nn.Linear(size, 8))
        self.codes = nn.Embedding(8, 8)
        self.decoder = nn.Sequential(nn.Linear(8, size), nn.ReLU(), nn.Linear(size, 20))
        self.judge = nn.Sequential(nn.Linear(20, size), nn.LeakyReLU(.2), nn.Linear(size, size), nn.LeakyReLU(.2),
                                   nn.Linear(size, 1))

    def forward(self, x):
        z = self.encoder(x)
        code = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        return self.decoder(z + (code - z).detach()), F.mse_loss(code, z.detach()) + .25*F.mse_loss(z, code.detach())


def samples(n: int):
    "Ten numbers that follow from one of eight kinds, and ten fine ones that are 1 or -1, whatever the kind."
    kind = torch.randint(8, (n,))
    coarse = torch.stack([((kind >> i % 3) & 1)*2. - 1 for i in range(10)], 1)
    return torch.cat([coarse + .1*torch.randn(n, 10), torch.randint(2, (n, 10))*2. - 1 + .1*torch.randn(n, 10)], 1)


def build(repaired: bool) -> Parts:
    model = VQGAN(48)

    def call(model, batch, generator=True):
        made, commitment = model(batch)
        if generator:
            score = model.judge(made)
            return F.mse_loss(made, batch) + commitment + .3*F.binary_cross_entropy_with_logits(
                score, torch.ones_like(score))
        real, fake = model.judge(batch), model.judge(made.detach())
        called = torch.zeros_like(fake) if repaired else torch.ones_like(fake)
        return (F.binary_cross_entropy_with_logits(real, torch.ones_like(real))
                + F.binary_cross_entropy_with_logits(fake, called))/2

    judge = list(model.judge.parameters())
    others = [p for name, p in model.named_parameters() if not name.startswith("judge")]
    optimizers = [torch.optim.Adam(ps, lr=2e-3, betas=(.5, .9)) for ps in (others, judge)]
    return Parts(model, optimizers, [samples(64) for _ in range(50)], call=call, valid=[samples(512)])


def train(parts: Parts, record) -> float:
    model, (make, judge) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                loss = parts.call(model, batch)
                make.zero_grad()
                loss.backward()
                make.step()
                doubt = parts.call(model, batch, generator=False)
                judge.zero_grad()
                doubt.backward()
                judge.step()
                record.step(loss)
    with torch.no_grad(): made = model(parts.valid[0])[0]
    return (made[:, 10:].abs() - 1).abs().mean().item()  # fine numbers are 1 or -1, and near 0 where they are blurred

"""A norm divides by the length of a vector, with a guard of 1e-12, which is zero in float16; silent places have none.

The report is a merged change of a library for diffusion: the norm of four autoencoders is made of `F.normalize`, whose
guard vanishes in half precision, so vectors of zeros become NaN. The change computes the norm in float32, and shows the
fault and the repair with one small tensor."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/diffusers#13316", 2026
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf", "loss does not fall", "skipped steps", "not trained"}
PLACE = ("encoder.0", "encoder.3", "decoder.0", "decoder.3")


class Norm(nn.Module):
    "Vectors of the channels, with the same length at each place."
    def __init__(self, size: int, wide: bool):
        super().__init__()
        self.scale, self.gain, self.wide = size**.5, nn.Parameter(torch.ones(size, 1, 1)), wide

    def forward(self, x):
        unit = F.normalize(x.float(), dim=1).to(x.dtype) if self.wide else F.normalize(x, dim=1)
        return unit*self.scale*self.gain


class Autoencoder(nn.Module):
    def __init__(self, size: int, wide: bool):
        super().__init__()
        def block(): return [Norm(size, wide), nn.SiLU(), nn.Conv2d(size, size, 3, padding=1)]
        self.start = nn.Conv2d(1, size, 3, padding=1, bias=False)
        self.encoder = nn.Sequential(*block(), *block(), nn.Conv2d(size, 2, 2, 2))
        self.decoder = nn.Sequential(Norm(2, wide), nn.ConvTranspose2d(2, size, 2, 2), nn.SiLU(), *block()[1:],
                                     nn.Conv2d(size, 1, 3, padding=1))

    def forward(self, image): return self.decoder(self.encoder(self.start(image)))


def images(n: int):
    "A smooth patch in the middle of an image whose border is exactly black."
    patch = F.interpolate(torch.randn(n, 1, 3, 3), 8, mode="bilinear")
    return F.pad(patch, (2, 2, 2, 2))


def build(repaired: bool) -> Parts:
    model = Autoencoder(12, repaired)

    def call(model, batch):
        with torch.autocast("cpu", torch.float16): output = model(batch)
        return F.mse_loss(output.float(), batch)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), list(images(512).split(16)), call=call,
                 valid=[images(128)], scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(3):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.unscale_(parts.optimizer)
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/parts.valid[0].square().mean().item()

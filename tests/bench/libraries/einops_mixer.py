"""einops: an MLP-mixer written with layers that name their axes.

After the tutorial "EinMix: universal toolkit for advanced MLP architectures" of einops: `EinMix` and `Rearrange` in a
plain sequence with residual branches. Error: wrong answers on digits held back."""
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split, wrong
from tests.bench.programs import Parts

SOURCE = "einops: EinMix tutorial"
PACKAGES = ("einops", "scikit-learn")
HIDDEN = 32


class Residual(nn.Sequential):
    def forward(self, x): return x + super().forward(x)


def mixer():
    tokens, channels = 16, HIDDEN
    return nn.Sequential(
        Residual(nn.LayerNorm(HIDDEN),
                 EinMix("b t c -> b t0 c", weight_shape="t t0", bias_shape="t0", t=tokens, t0=2*tokens), nn.GELU(),
                 EinMix("b t0 c -> b t c", weight_shape="t0 t", bias_shape="t", t=tokens, t0=2*tokens)),
        Residual(nn.LayerNorm(HIDDEN),
                 EinMix("b t c -> b t c0", weight_shape="c c0", bias_shape="c0", c=channels, c0=2*channels), nn.GELU(),
                 EinMix("b t c0 -> b t c", weight_shape="c0 c", bias_shape="c", c=channels, c0=2*channels)))


def build() -> Parts:
    known, held = split(*digits(), n=1300)
    model = nn.Sequential(Rearrange("b 1 (h p) (w q) -> b (h w) (p q)", p=2, q=2), nn.Linear(4, HIDDEN), mixer(),
                          mixer(), nn.LayerNorm(HIDDEN), Reduce("b t c -> b c", "mean"), nn.Linear(HIDDEN, 10))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3),
                 DataLoader(TensorDataset(*known), 64, shuffle=True), nn.CrossEntropyLoss(),
                 valid=DataLoader(TensorDataset(*held), 256))


def error(parts: Parts) -> float: return wrong(parts.model, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(15):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

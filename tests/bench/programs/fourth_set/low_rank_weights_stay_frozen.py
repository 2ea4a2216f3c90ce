"""Everything is frozen, and the step that would wake the low-rank weights up is skipped, as they are there already.

The report: after an adapter had been loaded and its product added to the weights, training of a new one learned
nothing, and the loss stayed flat. The function that applies adapters finds one of this name and goes on to the next
layer, without switching gradients on. The merged change switches them on in this case too."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "X-GenGroup/Flow-Factory#56", 2026
AREA, CAUSE = "parameters", "frozen part"
TRUE = {"not trained"}
PLACE = ("layers.0.down", "layers.0.up", "layers.1.down", "layers.1.up")

kinds, size = 6, 2


class Adapted(nn.Linear):
    "A linear layer to which a product of low rank can be added."
    def __init__(self, *sizes: int):
        super().__init__(*sizes)
        self.down = self.up = None

    def adapt(self, rank: int):
        self.down = nn.Linear(self.in_features, rank, bias=False)
        self.up = nn.Linear(rank, self.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return super().forward(x) if self.up is None else super().forward(x) + self.up(self.down(x))

    def fuse(self):
        "Adds the product to the weights, and starts it anew."
        self.weight.data += self.up.weight.data @ self.down.weight.data
        self.adapt(self.down.out_features)


class Flow(nn.Module):
    "Which way to go from noise to a sample of some kind; `kind` is what is asked for."
    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Linear(size + 1 + kinds, width)
        self.layers = nn.ModuleList([Adapted(width, width) for _ in range(3)])
        self.last = nn.Linear(width, size)

    def forward(self, x, time, kind):
        x = self.first(torch.cat([x, time, F.one_hot(kind, kinds)], 1)).relu()
        for layer in self.layers: x = layer(x).relu()
        return self.last(x)


def apply_adapters(model, rank: int, repaired: bool):
    for layer in model.layers:
        if layer.up is None: layer.adapt(rank)
        elif not repaired: continue
        layer.down.requires_grad_(True)
        layer.up.requires_grad_(True)


def flow_loss(model, batch):
    sample, kind = batch
    noise, time = torch.randn_like(sample), torch.rand(len(sample), 1)
    return F.mse_loss(model(time*sample + (1 - time)*noise, time, kind), sample - noise)


def samples(n: int, middles):
    kind = torch.randint(0, kinds, (n,))
    return middles[kind] + .15*torch.randn(n, size), kind


def fit(model, optimizer, loss_of, batches, heard):
    for batch in batches:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        heard(loss)


def build(repaired: bool) -> Parts:
    wide, wanted = 2*torch.randn(2, kinds, size)
    model, old = Flow(48), [samples(128, wide) for _ in range(200)]
    fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), flow_loss, old, lambda _: None)
    for layer in model.layers[:2]:  # an adapter that somebody trained before becomes a part of the weights
        layer.adapt(4)
        layer.fuse()
    model.requires_grad_(False)
    apply_adapters(model, 4, repaired)
    data = [samples(128, wanted) for _ in range(150)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=flow_loss,
                 valid=[samples(1000, wanted)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        fit(parts.model, parts.optimizer, parts.call, parts.data, record.step)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()

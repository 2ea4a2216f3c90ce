"""A pretrained text encoder that was made for a wider type runs in float16, overflows, and gives NaN to the generator.

The report: with mixed precision the loss is NaN. The maintainer let the text encoder run without it, and the author
confirmed that this mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/imagen-pytorch#129", 2022
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"NaN or Inf", "skipped steps", "not trained", "loss does not fall"}
PLACE = ("text", "text.blocks.0", "text.blocks.0.out", "text.blocks.1", "text.blocks.1.out", "text.norm")

steps = 20
kept = torch.cos(torch.linspace(.05, 1.5, steps))**2


class Block(nn.Module):
    "A gated layer; in the pretrained one, a few units are very large."
    def __init__(self, size: int):
        super().__init__()
        self.norm, self.gate, self.inside = nn.LayerNorm(size), nn.Linear(size, 2*size), nn.Linear(size, 2*size)
        self.out = nn.Linear(2*size, size)
        with torch.no_grad():
            for layer in self.gate, self.inside: layer.weight[:2], layer.bias[:2] = 0., 250.
            self.out.weight[0, :2] = 1.

    def forward(self, x):
        x_in = self.norm(x)
        return x + self.out(F.gelu(self.gate(x_in))*self.inside(x_in))


class TextEncoder(nn.Module):
    def __init__(self, words: int, size: int):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(words, size), nn.Sequential(Block(size), Block(size))
        self.norm = nn.LayerNorm(size - 1)

    def forward(self, text): return self.norm(self.blocks(self.embed(text)).mean(1)[:, 1:])


class Generator(nn.Module):
    "The noise in a picture, given the text."
    def __init__(self, size: int):
        super().__init__()
        self.text = TextEncoder(12, size).requires_grad_(False)
        self.time, self.condition = nn.Embedding(steps, 24), nn.Linear(size - 1, 24)
        self.net = nn.Sequential(nn.Linear(54, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 6))

    def forward(self, x, time, meaning): return self.net(torch.cat([x, self.time(time), self.condition(meaning)], 1))


def pictures(n: int, things: torch.Tensor):
    text = torch.randint(12, (n, 3))
    return things[text[:, 0]] + .1*torch.randn(n, 6), text


def build(repaired: bool) -> Parts:
    model, things = Generator(24), torch.randn(12, 6)

    def call(model, batch):
        x, text = batch
        time, noise = torch.randint(steps, (len(x),)), torch.randn_like(x)
        signal = kept[time, None]
        with torch.autocast("cpu", torch.float16):
            with torch.autocast("cpu", enabled=not repaired, dtype=torch.float16): meaning = model.text(text)
            found = model(signal.sqrt()*x + (1 - signal).sqrt()*noise, time, meaning)
        return F.mse_loss(found.float(), noise)

    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    return Parts(model, optimizer, [pictures(64, things) for _ in range(50)], call=call, valid=[pictures(1000, things)],
                 scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()

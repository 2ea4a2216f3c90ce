"""A model that fills gaps in sound takes its loss from the places that it is given, and not from the gaps.

The report: before the mean all masked places of the loss are set to zero, and these are the ones to be filled in. The
maintainer confirmed it and turned the mask round."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/voicebox-pytorch#6", 2023
AREA, CAUSE = "loss and task", "mask ignored"
TRUE = set()
PLACE = ()


class Filler(nn.Module):
    "The way from noise to sound, where the sound is known outside of a gap."
    def __init__(self, size: int):
        super().__init__()
        self.inside, self.time = nn.Linear(9, size), nn.Linear(1, size)
        self.place = nn.Parameter(.1*torch.randn(16, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
        self.layers, self.last = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(size, 4)

    def forward(self, x, known, gap, time):
        x = self.inside(torch.cat([x, known, gap.unsqueeze(2).float()], 2)) + self.time(time)
        return self.last(self.layers(x + self.place))


def sounds(n: int):
    "Four bands of 16 moments that swing together, and a gap of six moments."
    moment, start = torch.arange(16.), torch.randint(2, 9, (n, 1))
    phase = 6.28*torch.rand(n, 1, 1)
    sound = torch.sin(phase + .4*moment[:, None] + torch.arange(4)) + .05*torch.randn(n, 16, 4)
    return sound, (moment >= start) & (moment < start + 6)


def build(repaired: bool) -> Parts:
    model = Filler(32)

    def call(model, batch):
        sound, gap = batch
        noise, time = torch.randn_like(sound), torch.rand(len(sound), 1, 1)
        known = sound.masked_fill(gap.unsqueeze(2), 0.)
        flow = model((1 - time)*noise + time*sound, known, gap, time)
        loss = ((flow - (sound - noise))**2).mean(2)
        counts = gap if repaired else ~gap
        loss = loss.masked_fill(~counts, 0.)
        return (loss.sum(1)/counts.sum(1).clamp(min=1e-5)).mean()

    data = [sounds(32) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[sounds(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    sound, gap = parts.valid[0]
    x, known = torch.randn_like(sound), sound.masked_fill(gap.unsqueeze(2), 0.)
    with torch.no_grad():
        for i in range(8): x = x + parts.model(x, known, gap, torch.full((len(x), 1, 1), i/8))/8
    return (((x - sound)**2)[gap].mean()/sound.var()).item()

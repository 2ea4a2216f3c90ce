"""The loop calls the step of the optimizer inside a wrapper, so that the wrapper never sets the rate of its schedule.

The report: a transformer that recognises speech has a wrapper which computes a rate with a warm-up from the number of
the step and then makes the step of Adam. The loop reaches through it and calls that step itself. The author of the
code thanked for the report and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gentaiscool/end2end-asr-pytorch#4", 2019
AREA, CAUSE = "optimizer and schedule", "schedule never moves"
TRUE = {"learning rate too small"}
PLACE = ()
letters, frames, size = 12, 20, 48
voice = torch.randn(letters + 1, 10, generator=torch.Generator().manual_seed(3))


class Warmup:
    "Rises for some steps and falls with the root of their number after that."
    def __init__(self, optimizer, factor: float, warmup: int):
        self.optimizer, self.factor, self.warmup, self.steps = optimizer, factor, warmup, 0

    def zero_grad(self): self.optimizer.zero_grad()

    def step(self):
        self.steps += 1
        rate = self.factor*size**-.5*min(self.steps**-.5, self.steps*self.warmup**-1.5)
        for group in self.optimizer.param_groups: group["lr"] = rate
        self.optimizer.step()


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.hear, self.read = nn.Linear(10, size), nn.Embedding(letters + 1, size)
        self.when = nn.Parameter(.1*torch.randn(frames, size))
        self.where = nn.Parameter(.1*torch.randn(8, size))
        self.both = nn.Transformer(size, 4, 1, 1, 2*size, dropout=.1, batch_first=True)
        self.write = nn.Linear(size, letters)

    def forward(self, inputs):
        sound, so_far = inputs
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        return self.write(self.both(self.hear(sound) + self.when, self.read(so_far) + self.where, tgt_mask=mask))


def spoken(n: int):
    "Eight letters, each of which sounds for two or three frames."
    said = torch.randint(letters, (n, 8))
    long = torch.rand(n, 8).argsort(1) < 4
    index = torch.stack([row.repeat_interleave(2 + more.long()) for row, more in zip(said, long)])
    sound = voice[index] + .7*torch.randn(n, frames, 10)
    return (sound, F.pad(said[:, :-1], (1, 0), value=letters)), said


def letter_loss(model, batch):
    inputs, said = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), said.flatten())


def build(repaired: bool) -> Parts:
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), betas=(.9, .98), eps=1e-9)
    data = [spoken(32) for _ in range(110)]
    return Parts(model, optimizer, data, call=letter_loss, valid=[spoken(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, wrapper = parts.model, Warmup(parts.optimizer, .35, 60)
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            wrapper.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            if parts.repaired: wrapper.step()
            else: wrapper.optimizer.step()
            record.step(loss)
    model.eval()
    inputs, said = parts.valid[0]
    with torch.no_grad(): return (model(inputs).argmax(2) != said).float().mean().item()*letters/(letters - 1)

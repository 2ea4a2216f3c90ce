"""An optimizer for large batches adds the decay of the weights to the gradients, not to its normalised step.

The report: translation learns very slowly or not at all, and the decay is not where the paper has it; with the decay
added to the step it seems to do as it should. The author of the code thanked: decay had not functioned for a large
language model either, probably for this reason, and a change was on its way."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cybertronai/pytorch-lamb#3", 2019
AREA, CAUSE = "optimizer and schedule", "weight decay too strong"
TRUE = {"loss does not fall", "samples alike", "activations vanish", "gradients vanish", "constant output"}
PLACE = ()
words, long = 16, 8
other = torch.randperm(words, generator=torch.Generator().manual_seed(9))


class Layerwise(torch.optim.Optimizer):
    "Adam, with a step for each parameter that is as long as a part of the parameter."
    def __init__(self, params, lr: float, decay: float, after: bool):
        super().__init__(params, {"lr": lr, "weight_decay": decay, "after": after})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, decay = self.state[p], group["weight_decay"]
                mean, square = (state.setdefault(name, torch.zeros_like(p)) for name in ("mean", "square"))
                gradient = p.grad if group["after"] else p.grad + decay*p
                mean.lerp_(gradient, .1)
                square.lerp_(gradient**2, .001)
                step = mean/(square.sqrt() + 1e-6)
                if group["after"]: step = step + decay*p
                size, long = p.norm().clamp(0, 10), step.norm()
                trust = (size/long).item() if size > 0 and long > 0 else 1.
                p -= group["lr"]*trust*step


class Translator(nn.Module):
    def __init__(self, size: int = 32):
        super().__init__()
        self.read, self.write = nn.Embedding(words, size), nn.Embedding(words + 1, size)
        self.at = nn.Parameter(.3*torch.randn(long, size))
        self.both = nn.Transformer(size, 4, 1, 1, 2*size, dropout=0., batch_first=True)
        self.word = nn.Linear(size, words)

    def forward(self, inputs):
        text, so_far = inputs
        mask = torch.ones(long, long, dtype=torch.bool).triu(1)
        return self.word(self.both(self.read(text) + self.at, self.write(so_far) + self.at, tgt_mask=mask))


def texts(n: int):
    "The other language has other words, in the reverse order."
    text = torch.randint(words, (n, long))
    out = other[text].flip(1)
    return (text, F.pad(out[:, :-1], (1, 0), value=words)), out


def word_loss(model, batch):
    inputs, out = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), out.flatten())


def build(repaired: bool) -> Parts:
    model = Translator()
    optimizer = Layerwise(model.parameters(), 2e-2, .1, repaired)
    return Parts(model, optimizer, [texts(64) for _ in range(130)], call=word_loss, valid=[texts(128)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for batch in parts.data:
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            optimizer.step()
            record.step(loss)
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()/math.log(words)

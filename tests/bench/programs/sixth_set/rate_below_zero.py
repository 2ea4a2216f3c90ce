"""The schedule counts fewer steps than the run has, so the learning rate passes zero and the last steps go uphill.

The report: to fine-tune a language model on questions, the number of steps is taken from the number of examples, but a
long text gives several features. The linear schedule goes on below zero, and the loss rises. A later change that
was merged warns of it and stops at zero; another reader calls the fault hard to catch."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#132", 2018
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"loss rises"}
PLACE = ()
WARM_UP = .1


class Spans(nn.Module):
    "A transformer over question and text that says where the answer starts and ends."
    def __init__(self, words: int, length: int, size: int = 32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(length, size)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(size, 4, size, .05, batch_first=True)
                                    for _ in range(2))
        self.ends = nn.Linear(size, 2)

    def forward(self, text):
        x = self.words(text) + self.places.weight
        for layer in self.layers: x = layer(x)
        return self.ends(x).unbind(2)


def features(n: int):
    "The question is one of eight words; the answer starts behind that word and ends before the next full stop."
    text = torch.randint(8, 20, (n, 16))
    question, start = torch.randint(0, 8, (n,)), torch.randint(3, 11, (n,))
    end = start + torch.randint(0, 4, (n,))
    rows = torch.arange(n)
    text[:, 0] = question
    text[rows, start - 1], text[rows, end + 1] = question, 20
    return text, start, end


def loss_of(model, batch):
    text, start, end = batch
    first, last = model(text)
    return (F.cross_entropy(first, start) + F.cross_entropy(last, end))/2


def linear(done: float) -> float: return done/WARM_UP if done < WARM_UP else (1 - done)/(1 - WARM_UP)


def build(repaired: bool) -> Parts:
    model = Spans(21, 16)
    data = list(zip(*(part.split(32) for part in features(1216))))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), data, call=loss_of, valid=[features(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    epochs, examples = 6, 1000  # some examples are long and give two features
    steps = epochs*len(parts.data) if parts.repaired else epochs*examples//32
    model.train()
    done = 0
    with record.on(model, optimizer):
        for _ in range(epochs):
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                for group in optimizer.param_groups: group["lr"] = 4e-3*linear(done/steps)
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                record.step(loss)
    model.eval()
    text, start, end = parts.valid[0]
    with torch.no_grad(): first, last = model(text)
    return ((first.argmax(1) != start) | (last.argmax(1) != end)).float().mean().item()

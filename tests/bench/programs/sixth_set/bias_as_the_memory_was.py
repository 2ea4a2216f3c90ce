"""The bias of the attention over words is made from memory that nobody filled, and holds whatever was there.

The report: a network with attention over words and then over sentences starts with a loss of NaN, now and then. Another
reader found that the two biases are never initialised and may hold NaN; to draw them from small numbers solved it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "EdGENetworks/attention-networks-for-classification#7", 2017
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"NaN or Inf", "saturated"}
PLACE = ("words", "words.bias", "sentences", "sentences.bias")


def as_the_memory_was(n: int):
    "What is found in memory that was used before: mostly zeros and tiny numbers, and some that mean nothing."
    return torch.tensor([0., 4.6e-41, 0., -3.1e34, 0., 1.4e-45, 0., float("nan")]).repeat(n)[:n]


class Attention(nn.Module):
    "A recurrent layer over a sequence, and its states weighed by their likeness to a vector."
    def __init__(self, before: int, size: int):
        super().__init__()
        self.memory = nn.GRU(before, size, batch_first=True, bidirectional=True)
        self.weight = nn.Parameter(torch.empty(2*size, 2*size).uniform_(-.1, .1))
        self.bias = nn.Parameter(as_the_memory_was(2*size))
        self.vector = nn.Parameter(torch.empty(2*size).uniform_(-.1, .1))

    def forward(self, x):
        state, _ = self.memory(x)
        weight = ((state @ self.weight + self.bias).tanh() @ self.vector).softmax(1)
        return (weight.unsqueeze(2)*state).sum(1)


class Reviews(nn.Module):
    def __init__(self, words: int, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.words, self.sentences, self.last = Attention(16, 12), Attention(24, 12), nn.Linear(24, classes)

    def forward(self, text):
        n, sentences, length = text.shape
        x = self.words(self.embedding(text.flatten(0, 1))).view(n, sentences, -1)
        return self.last(self.sentences(x))


def reviews(n: int):
    "Three sentences of six words; the class is how good most of the strong words are."
    text = torch.randint(0, 30, (n, 3, 6))
    balance = ((text < 4).sum((1, 2)) - ((text > 3) & (text < 8)).sum((1, 2)))
    return text, (balance.sign() + 1).long()


def build(repaired: bool) -> Parts:
    model = Reviews(30, 3)
    for part in (model.words, model.sentences):
        if repaired: nn.init.uniform_(part.bias, -.1, .1)
    text, label = reviews(960)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
    return Parts(model, optimizer, list(zip(text.split(32), label.split(32))), F.cross_entropy, valid=[reviews(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(5):
            for text, label in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(text), label)
                loss.backward()
                optimizer.step()
                record.step(loss)
    text, label = parts.valid[0]
    with torch.no_grad(): return parts.loss(model(text), label).item()/math.log(3)

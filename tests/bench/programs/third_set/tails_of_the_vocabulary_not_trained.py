"""Rare words are split off from the vocabulary; the vectors for the tails are parameters of the loss, and do not move.

The report, of a language model: the parameters of the loss are missing from the optimizer. The reporter mended it and
saw better results in a short run; the author had had the same fault in another copy and confirmed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "salesforce/awd-lstm-lm#30", 2018
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ()

words, head, tail, length = 48, 12, 12, 10


class SplitLoss(nn.Module):
    "The likelihood of a frequent word, or of a tail times that of a word in it. The weights of words are the model's."
    def __init__(self, size: int):
        super().__init__()
        self.tail_vectors = nn.Parameter(torch.zeros(3, size))
        self.tail_bias = nn.Parameter(torch.zeros(3))

    def forward(self, weight, bias, state, word):
        first = torch.cat([F.linear(state, weight[:head], bias[:head]),
                           F.linear(state, self.tail_vectors, self.tail_bias)], 1)
        which = (word - head).div(tail, rounding_mode="floor").clamp(min=-1)
        loss = F.cross_entropy(first, torch.where(which < 0, word, head + which), reduction="sum")
        for i, start in enumerate(range(head, words, tail)):
            here = which == i
            scores = F.linear(state[here], weight[start:start + tail], bias[start:start + tail])
            loss = loss + F.cross_entropy(scores, word[here] - start, reduction="sum")
        return loss/len(word)


class Language(nn.Module):
    "An LSTM whose last layer has the weights of the embedding."
    def __init__(self, size: int):
        super().__init__()
        self.embed = nn.Embedding(words, size)
        nn.init.uniform_(self.embed.weight, -.1, .1)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.decoder = nn.Linear(size, words)
        self.decoder.weight = self.embed.weight

    def forward(self, text): return self.lstm(self.embed(text))[0]


def texts(n: int, follows):
    "What comes next depends on the word; a frequent one comes after a rare one."
    text = [torch.randint(0, head, (n,))]
    for _ in range(length): text.append(follows[text[-1], torch.randint(0, 2, (n,))])
    return torch.stack(text, 1)


def build(repaired: bool) -> Parts:
    follows = torch.cat([torch.randint(head, words, (head, 2)), torch.randint(0, head, (words - head, 2))])
    model, criterion = Language(32), SplitLoss(32)

    def call(model, text):
        state = model(text[:, :-1]).flatten(0, 1)
        return criterion(model.decoder.weight, model.decoder.bias, state, text[:, 1:].flatten())
    data = [texts(32, follows) for _ in range(60)]
    optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()] if repaired else model.parameters(),
                                 lr=5e-3)
    return Parts(model, optimizer, data, call=call, valid=[texts(300, follows)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for text in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, text)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), .25)
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(words)).log()).item()

"""A recurrent language model that reads a text in many columns at once.

Habits of the source: SGD with a rate of 30 and a gradient clipped at .25; pieces of random length, the rate in
proportion to it; the state goes on from piece to piece without its graph; one mask of dropout for all steps; whole
words dropped from the embedding; losses of large and of changing outputs; tied weights, the decoder's bias at zero; a
rate that is divided by ten at a given epoch; validation after each epoch, with its own number of columns.
Score: the loss on a text that was held back by that of equal chances. Below .7; 1 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "salesforce/awd-lstm-lm main.py", 2017
WORDS, WIDE, PIECE, COLUMNS = 40, 32, 12, 16


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.decoder = nn.Embedding(WORDS, WIDE), nn.Linear(WIDE, WORDS)
        self.layers = nn.ModuleList([nn.LSTM(WIDE, 48), nn.LSTM(48, WIDE)])
        self.decoder.weight = self.word.weight
        nn.init.uniform_(self.word.weight, -.1, .1)
        nn.init.zeros_(self.decoder.bias)

    def locked(self, x, chance: float):
        "Dropout with one mask for all steps."
        if not self.training: return x
        return x*torch.empty(1, *x.shape[1:]).bernoulli_(1 - chance)/(1 - chance)

    def forward(self, seen, state=None):
        "Scores, the states to go on with, and the outputs with and without dropout."
        weight = self.word.weight
        if self.training: weight = weight*torch.empty(WORDS, 1).bernoulli_(.95)/.95
        h, states = self.locked(F.embedding(seen, weight), .1), []
        for layer, before in zip(self.layers, state or (None, None)):
            plain, after = layer(h, before)
            states.append(after)
            h = self.locked(plain, .1)
        return self.decoder(h), states, plain, h


def text(n: int, columns: int, chances):
    "Columns of a text, in which each word depends on the one before."
    words = [torch.randint(WORDS, (columns,))]
    for _ in range(n): words.append(torch.multinomial(chances[words[-1]], 1)[:, 0])
    return torch.stack(words)


def loss_and_state(model, piece, state=None):
    scores, state, plain, dropped = model(piece[:-1], state)
    loss = F.cross_entropy(scores.flatten(0, 1), piece[1:].flatten())
    return loss + 2*dropped.pow(2).mean() + (plain[1:] - plain[:-1]).pow(2).mean(), state, loss


def build(repaired: bool) -> Parts:
    chances = torch.softmax(2.5*torch.randn(WORDS, WORDS), 1)
    read, held = text(480, COLUMNS, chances), text(480, 4, chances)
    model = Reader()
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=30, weight_decay=1.2e-6),
                  [read[i:i + PIECE + 1] for i in range(0, 480, PIECE)],
                  call=lambda model, piece: loss_and_state(model, piece)[0],
                  valid=[held[i:i + PIECE + 1] for i in range(0, 480, PIECE)])
    parts.read = read
    return parts


@torch.no_grad()
def evaluate(model, pieces):
    model.eval()
    total, state = 0, None
    for piece in pieces:
        scores, state, _, _ = model(piece[:-1], state)
        total += F.cross_entropy(scores.flatten(0, 1), piece[1:].flatten()).item()
    return total/len(pieces)


def train(parts: Parts, record) -> float:
    model, optimizer, losses = parts.model, parts.optimizer, []
    with record.on(model, optimizer):
        for epoch in range(9):
            if epoch == 7: optimizer.param_groups[0]["lr"] /= 10
            i, state = 0, None
            while i < len(parts.read) - 6:
                usual = PIECE if torch.rand(()) < .95 else PIECE/2
                long = max(5, int(usual + 2*torch.randn(())))
                rate = optimizer.param_groups[0]["lr"]
                optimizer.param_groups[0]["lr"] = rate*long/PIECE
                model.train()
                if state: state = [tuple(part.detach() for part in pair) for pair in state]
                optimizer.zero_grad()
                loss, state, _ = loss_and_state(model, parts.read[i:i + long + 1], state)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), .25)
                optimizer.step()
                optimizer.param_groups[0]["lr"] = rate
                i += long
                record.step(loss)
            losses.append(evaluate(model, parts.valid))
    return losses[-1]/math.log(WORDS)

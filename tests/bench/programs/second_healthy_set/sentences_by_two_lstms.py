"""Sentences are translated by an LSTM that reads and an LSTM that writes.

Habits of the source: the sentence is read backwards; all weights and biases begin uniform between -.08 and .08, norms
and gates too; one word is written at a time, from the true word before or from the model's own with equal chances; the
scores are written into a tensor of zeros, whose first row is never used; padding is left out of the loss; gradients
are clipped at 1; the loss on held-out sentences after each epoch is without true words.
Score: the part of wrong words on sentences that were held back. Below .35; above .7 for the untrained model."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "bentrevett/pytorch-seq2seq 1 - Sequence to Sequence Learning with Neural Networks.ipynb", 2018
PAD, START, END, WORDS, LONG = 0, 1, 2, 11, 3


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words_read, self.words_written = nn.Embedding(WORDS, 24), nn.Embedding(WORDS, 24)
        self.reader, self.writer = nn.LSTM(24, 64, 2, dropout=.1), nn.LSTM(24, 64, 2, dropout=.1)
        self.out, self.dropout = nn.Linear(64, WORDS), nn.Dropout(.1)

    def forward(self, source, target, chance: float = .5):
        _, state = self.reader(self.dropout(self.words_read(source)))
        scores, word = torch.zeros(*target.shape, WORDS), target[0]
        for i in range(1, len(target)):
            h, state = self.writer(self.dropout(self.words_written(word[None])), state)
            scores[i] = self.out(h[0])
            word = target[i] if torch.rand(()) < chance else scores[i].argmax(1)
        return scores


def start(part):
    for weight in part.parameters(recurse=False): nn.init.uniform_(weight, -.08, .08)


translation = torch.randperm(WORDS - 3, generator=torch.Generator().manual_seed(0)) + 3


def sentences(n: int):
    "Sentences in columns: the source backwards, and its words in the other language in their order."
    source, target = torch.full((LONG + 2, n), PAD), torch.full((LONG + 2, n), PAD)
    for i in range(n):
        words = torch.randint(3, WORDS, (int(torch.randint(2, LONG + 1, ())),))
        full = torch.cat([torch.tensor([START]), words.flip(0), torch.tensor([END])])
        source[:len(full), i] = full
        target[:len(full), i] = torch.cat([full[:1], translation[words - 3], full[-1:]])
    return source, target


def call(model, batch, chance: float = .5):
    source, target = batch
    scores = model(source, target, chance)
    return nn.functional.cross_entropy(scores[1:].flatten(0, 1), target[1:].flatten(), ignore_index=PAD)


def build(repaired: bool) -> Parts:
    model = Translator()
    model.apply(start)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=8e-3), [sentences(48) for _ in range(40)], call=call,
                 valid=[sentences(200)])


def train(parts: Parts, record) -> float:
    model, optimizer, losses = parts.model, parts.optimizer, []
    with record.on(model, optimizer):
        for _ in range(6):
            model.train()
            for i in torch.randperm(len(parts.data)):
                optimizer.zero_grad()
                loss = parts.call(model, parts.data[i])
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1)
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): losses += [parts.call(model, batch, 0).item() for batch in parts.valid]
    source, target = parts.valid[0]
    with torch.no_grad(): said = model(source, target, 0).argmax(2)[1:]
    return (said != target[1:])[target[1:] != PAD].float().mean().item()

"""The layer norm of a transformer takes mean and deviation along the sentence in place of along the features.

The report gives the formulas of the paper beside the code, and the author merged the change. Each feature of a word is
put in relation to that of all other words, in the decoder also of those that are still to be predicted."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jadore801120/attention-is-all-you-need-pytorch#17", 2017
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"later places are seen"}
PLACE = ("encoder.norms.0", "encoder.norms.1", "decoder.norms.0", "decoder.norms.1", "decoder.norms.2")

words, length, start = 14, 7, 0


class Norm(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.dim = -1 if repaired else 1
        self.scale, self.shift = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x):
        if x.shape[1] == 1: return x
        x = (x - x.mean(self.dim, keepdim=True))/(x.std(self.dim, keepdim=True) + 1e-3)
        return x*self.scale + self.shift


class Block(nn.Module):
    "Attention to the sentence itself, in a decoder also to the other one, and a wider layer."
    def __init__(self, size: int, attentions: int, repaired: bool):
        super().__init__()
        self.attentions = nn.ModuleList([nn.MultiheadAttention(size, 4, batch_first=True) for _ in range(attentions)])
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList([Norm(size, repaired) for _ in range(attentions + 1)])

    def forward(self, x, other=None):
        hidden = None if other is None else torch.ones(2*x.shape[1:2], dtype=torch.bool).triu(1)
        x = self.norms[0](x + self.attentions[0](x, x, x, attn_mask=hidden, need_weights=False)[0])
        if other is not None: x = self.norms[1](x + self.attentions[1](x, other, other, need_weights=False)[0])
        return self.norms[-1](x + self.wide(x))


class Translator(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.source, self.target = nn.Embedding(words, size), nn.Embedding(words, size)
        self.place = nn.Parameter(torch.randn(length + 1, size))
        self.encoder, self.decoder = Block(size, 1, repaired), Block(size, 2, repaired)
        self.last = nn.Linear(size, words, bias=False)

    def forward(self, source, target):
        read = self.encoder(self.source(source) + self.place[:source.shape[1]])
        return self.last(self.decoder(self.target(target) + self.place[:target.shape[1]], read))


def sentences(n: int, dictionary):
    "A sentence is translated word by word, in the opposite order."
    source = torch.randint(1, words, (n, length))
    return source, torch.cat([torch.full((n, 1), start), dictionary[source].flip(1)], 1)


def word_loss(model, batch):
    source, target = batch
    return F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    dictionary = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(words - 1)])
    model = Translator(32, repaired)
    data = [sentences(32, dictionary) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, betas=(.9, .98), eps=1e-9), data, call=word_loss,
                 valid=[sentences(200, dictionary)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    source, target = parts.valid[0]
    written = target[:, :1]
    with torch.no_grad():
        for _ in range(length):
            written = torch.cat([written, parts.model(source, written)[:, -1:].argmax(-1)], 1)
    return (written != target)[:, 1:].float().mean().item()

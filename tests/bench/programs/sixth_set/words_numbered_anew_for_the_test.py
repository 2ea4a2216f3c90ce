"""The words of the test set are numbered by a vocabulary of its own, so that a number means another word there.

The report: a network that finds the sections of a document and their sub-sections scores far too low on the test set.
The author found that each of the two data sets makes its own table from words to numbers, used one table for both, and
the scores rose; the maintainer asked for the change."""
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "minqukanq/hierarchical-multi-label-text-classification#6", 2022
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()


class Documents(nn.Module):
    "Reads a document in both directions, and finds its sections first and sub-sections with them."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.memory = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.sections = nn.Linear(2*size, 3)
        self.parts = nn.Linear(2*size + 3, 6)

    def forward(self, document):
        state = self.memory(self.words(document))[0].mean(1)
        sections = self.sections(state)
        return torch.cat([sections, self.parts(torch.cat([state, sections.sigmoid()], 1))], 1)


def documents(n: int):
    "Ten words each, of one or two of six sub-sections, two of which make a section."
    parts = torch.randint(0, 6, (n, 2))
    chosen = parts.gather(1, torch.randint(0, 2, (n, 10)))
    words = torch.where(torch.rand(n, 10) < .6, 8*chosen + torch.randint(0, 8, (n, 10)),
                        torch.randint(48, 80, (n, 10)))
    labels = F.one_hot(parts, 6).amax(1).float()
    return words, torch.cat([labels.view(n, 3, 2).amax(2), labels], 1)


def vocabulary(words) -> dict:
    "Words and their numbers; the most frequent word comes first."
    counts = Counter(words.flatten().tolist())
    return {word: number for number, (word, _) in enumerate(counts.most_common())}


def numbered(words, numbers: dict):
    return torch.tensor([[numbers.get(word, 0) for word in line] for line in words.tolist()])


def build(repaired: bool) -> Parts:
    (words, labels), (test_words, test_labels) = documents(1024), documents(512)
    numbers = vocabulary(words)
    x, test = numbered(words, numbers), numbered(test_words, numbers if repaired else vocabulary(test_words))
    model = Documents(80, 24)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), list(zip(x.split(64), labels.split(64))),
                 F.binary_cross_entropy_with_logits, valid=[(test, test_labels)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for document, labels in parts.data:
                loss = parts.loss(parts.model(document), labels)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    document, labels = parts.valid[0]
    with torch.no_grad(): found = parts.model(document) > 0
    right = (found & (labels > 0)).sum()
    return 1 - (2*right/(found.sum() + labels.sum())).item()

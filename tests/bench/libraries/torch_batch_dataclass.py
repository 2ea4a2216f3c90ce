"""torch: batches are a dataclass with tensors and a list, which a collate function makes and can be moved and pinned.

After the notes of torch.utils.data on custom batch types and the tutorial "Text classification" with `EmbeddingBag`:
tokens of all sentences in one row with offsets, SGD with a large rate, clipped. Error: wrong answers held back."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.bench.libraries._data import KINDS, sentences, tokenizer
from tests.bench.programs import Parts

SOURCE = "torch: Text classification; memory pinning of custom batches"
PACKAGES = ("torch", "tokenizers")


@dataclass
class Batch:
    tokens: torch.Tensor
    offsets: torch.Tensor
    labels: torch.Tensor
    texts: list

    def pin_memory(self):
        self.tokens, self.offsets, self.labels = (t.pin_memory() for t in (self.tokens, self.offsets, self.labels))
        return self


class TextClassificationModel(nn.Module):
    def __init__(self, words, width, kinds):
        super().__init__()
        self.embedding, self.fc = nn.EmbeddingBag(words, width, sparse=False), nn.Linear(width, kinds)
        self.embedding.weight.data.uniform_(-.5, .5)
        self.fc.weight.data.uniform_(-.5, .5)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets): return self.fc(self.embedding(text, offsets))


def collate(examples) -> Batch:
    rows = [torch.tensor(ids) for ids, _, _ in examples]
    offsets = torch.tensor([0, *(len(row) for row in rows[:-1])]).cumsum(0)
    return Batch(torch.cat(rows), offsets, torch.tensor([label for _, label, _ in examples]),
                 [text for _, _, text in examples])


def call(model, batch): return nn.functional.cross_entropy(model(batch.tokens, batch.offsets), batch.labels)


def build() -> Parts:
    made = tokenizer()
    rows = [(made.encode(text).ids, label, text) for text, label in zip(*sentences(1200))]
    model = TextClassificationModel(made.get_vocab_size(), 32, len(KINDS))
    return Parts(model, torch.optim.SGD(model.parameters(), lr=2.),
                 DataLoader(rows[:900], 16, shuffle=True, collate_fn=collate), call=call,
                 valid=DataLoader(rows[900:], 64, collate_fn=collate))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    found = [(parts.model(b.tokens, b.offsets).argmax(1) != b.labels).float() for b in parts.valid]
    return torch.cat(found).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=.7)
    with record.on(model, optimizer=optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), .1)
                optimizer.step()
                record.step(loss)
            error(parts)
            schedule.step()
    return error(parts)

"""News of four kinds are told by the mean vector of their words, with a very high rate.

Habits of the source: texts of different length lie one behind the other in one long vector, with the place where each
begins; an `EmbeddingBag` and one linear layer; SGD with a rate of 5, a gradient clipped at .1; weights begin uniform
within .5, the bias at zero; the rate is divided by ten only when the accuracy of validation falls below the best one.
Score: the part of wrong kinds of new texts. Below .2; about .77 for the untrained model."""
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials beginner_source/text_sentiment_ngrams_tutorial.py", 2019
WORDS, KINDS, WIDE, EPOCHS = 200, 4, 32, 6


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.EmbeddingBag(WORDS, WIDE, sparse=False), nn.Linear(WIDE, KINDS)
        nn.init.uniform_(self.embedding.weight, -.5, .5)
        nn.init.uniform_(self.fc.weight, -.5, .5)
        nn.init.zeros_(self.fc.bias)

    def forward(self, words, starts): return self.fc(self.embedding(words, starts))


def texts(n: int, spoken):
    "Kinds, and words of five to thirty for each text."
    kinds = torch.randint(KINDS, (n,))
    return [(kind, torch.multinomial(spoken[kind], int(torch.randint(5, 31, ())), replacement=True)) for kind in kinds]


def collate(rows):
    kinds, words = zip(*rows)
    lengths = torch.tensor([len(text) for text in words])
    return torch.stack(kinds), torch.cat(words), lengths.cumsum(0) - lengths


def call(model, batch):
    kinds, words, starts = batch
    return nn.functional.cross_entropy(model(words, starts), kinds)


def build(repaired: bool) -> Parts:
    spoken = torch.softmax(1.2*torch.randn(1, WORDS) + .7*torch.randn(KINDS, WORDS), 1)
    split, held = random_split(texts(2400, spoken), [2280, 120])
    model = Bags()
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=5.),
                  DataLoader(split, 16, shuffle=True, collate_fn=collate), call=call,
                  valid=DataLoader(held, 16, shuffle=True, collate_fn=collate))
    parts.test = DataLoader(texts(500, spoken), 100, collate_fn=collate)
    return parts


@torch.no_grad()
def right(model, loader) -> float:
    model.eval()
    found = [(model(words, starts).argmax(1) == kinds).float() for kinds, words, starts in loader]
    return torch.cat(found).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, best = parts.model, parts.optimizer, None
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=.1)
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), .1)
                optimizer.step()
                record.step(loss)
            found = right(model, parts.valid)
            if best is not None and best > found: schedule.step()
            else: best = found
    return 1 - right(model, parts.test)

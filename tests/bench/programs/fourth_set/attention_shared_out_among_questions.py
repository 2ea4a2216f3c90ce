"""The weights of an attention add up to 1 over the questions of the batch, not over the words that are looked at.

The report: with one question, all weights are 1 whatever the words are. The scores are brought to one row a question,
and the softmax goes along the first dimension; with the last one it worked. How much a question gets of its text
depends on the other texts of the batch."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "PetrochukM/PyTorch-NLP#2", 2018
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"samples leak"}
PLACE = ("attention",)

names, answers, pairs = 10, 8, 6


class Attention(nn.Module):
    "Weighs the context by how well it fits the query, and mixes what it finds with the query."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.linear_in = nn.Linear(size, size, bias=False)
        self.linear_out = nn.Linear(2*size, size, bias=False)
        self.softmax = nn.Softmax(-1 if repaired else 0)

    def forward(self, query, context):
        n, asked, _ = query.shape
        scores = self.linear_in(query) @ context.transpose(1, 2)
        weights = self.softmax(scores.view(n*asked, -1)).view(n, asked, -1)
        return self.linear_out(torch.cat([weights @ context, query], 2)).tanh(), weights


class Reader(nn.Module):
    "Reads a text of facts, a name and an answer each, and says which answer belongs to the name that is asked for."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.name, self.answer = nn.Embedding(names, size), nn.Embedding(answers, size)
        self.text = nn.GRU(2*size, size, batch_first=True)
        self.attention = Attention(size, repaired)
        self.last = nn.Linear(size, answers)

    def forward(self, who, what, asked):
        context, _ = self.text(torch.cat([self.name(who), self.answer(what)], 2))
        found, _ = self.attention(self.name(asked)[:, None], context)
        return self.last(found[:, 0])


def texts(n: int):
    who = torch.rand(n, names).argsort(1)[:, :pairs]
    what, which = torch.randint(0, answers, (n, pairs)), torch.randint(0, pairs, (n, 1))
    return who, what, who.gather(1, which)[:, 0], what.gather(1, which)[:, 0]


def build(repaired: bool) -> Parts:
    model = Reader(32, repaired)
    def call(model, batch): return F.cross_entropy(model(*batch[:3]), batch[3])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), [texts(64) for _ in range(80)], call=call,
                 valid=[texts(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    *batch, answer = parts.valid[0]
    with torch.no_grad(): return (parts.model(*batch).argmax(1) != answer).float().mean().item()

"""The weights of the words of a question come from a softmax over an axis of length one, so all of them are one.

The report: each row that the softmax sees has a single score. The author of the code agreed and gave the axis of the
words as the right one."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DEEP-PolyU/KEQA_WSDM19#2", 2019
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"not trained"}
PLACE = ("score",)

words, length = 60, 12


class Question(nn.Module):
    "Finds the vector of what a question is about: a recurrent layer, then a weighted sum over the words."
    def __init__(self, vectors, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.vectors = nn.Embedding.from_pretrained(vectors)
        inside = vectors.shape[1]
        self.reader = nn.GRU(inside, size, batch_first=True, bidirectional=True)
        self.score = nn.Sequential(nn.Linear(inside + 2*size, size), nn.Tanh(), nn.Linear(size, 1))
        self.last = nn.Linear(inside + 2*size, inside)

    def forward(self, question):
        x = self.vectors(question)
        x = torch.cat([x, self.reader(x)[0]], -1)
        scores = self.score(x)
        weights = scores.softmax(1) if self.repaired else scores.flatten(0, 1).softmax(1).view_as(scores)
        return self.last((weights*x).sum(1))


def questions(n: int, vectors):
    "Some words in any order; the answer is the vector of the rarest word, which has the highest number."
    question = torch.rand(n, words).argsort(1)[:, :length]
    return question, vectors[question.max(1).values]


def build(repaired: bool) -> Parts:
    vectors = torch.randn(words, 16)
    model = Question(vectors, 24, repaired)
    data = [questions(64, vectors) for _ in range(60)]
    weights = [p for p in model.parameters() if p.requires_grad]
    return Parts(model, torch.optim.Adam(weights, lr=3e-3), data, F.mse_loss, valid=[questions(512, vectors)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for question, answer in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(question), answer)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 2.)
                parts.optimizer.step()
                record.step(loss)
    question, answer = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(question), answer)/answer.var()).item()

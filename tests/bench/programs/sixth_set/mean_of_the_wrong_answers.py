"""A ranking loss compares the right answer with the mean of the wrong ones, so a single good wrong answer costs nothing.

The report: the hinge is taken of the mean score of the negatives, where the mean of their hinges is wanted, and ranking
became much better with the change. A maintainer asked for it and merged it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "NTMC-Community/MatchZoo-py#160", 2021
AREA, CAUSE = "loss and task", "wrong reduction"
TRUE = set()
PLACE = ()
WORDS, LENGTH, NEGATIVES = 120, 6, 8


class Matcher(nn.Module):
    "How well an answer fits a question: soft counts of words that are alike."
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 24)
        self.register_buffer("centers", torch.linspace(-.9, 1, 11))
        self.dense = nn.Sequential(nn.Linear(11, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, question, answer):
        q, a = (F.normalize(self.embedding(part), dim=2) for part in (question, answer))
        alike = q @ a.transpose(1, 2)
        counts = (-(alike.unsqueeze(3) - self.centers)**2/.02).exp().sum(2)
        return self.dense(counts.log1p().sum(1))


def groups(n: int):
    """Questions, and after one another the right answer and the wrong ones for each. An answer has partners of the words
    of its question; one wrong answer in four has nearly all of them."""
    question = torch.randint(WORDS, (n, LENGTH))
    partner = (7*question + 3) % WORDS
    kept = torch.full((n, 1 + NEGATIVES, LENGTH), .1)
    kept[torch.rand(n, 1 + NEGATIVES) < .25] = .65
    kept[:, 0] = .9
    words = torch.randint(WORDS, kept.shape)
    answer = torch.where(torch.rand(kept.shape) < kept, partner.unsqueeze(1), words)
    return question.repeat_interleave(1 + NEGATIVES, 0), answer.flatten(0, 1)


def rank_hinge(scores, repaired: bool):
    scores = scores.view(-1, 1 + NEGATIVES)
    right, wrong = scores[:, :1], scores[:, 1:]
    if not repaired: wrong = wrong.mean(1, keepdim=True)
    return F.margin_ranking_loss(right.expand_as(wrong), wrong, torch.ones_like(wrong), margin=1.)


def build(repaired: bool) -> Parts:
    model = Matcher()
    data = [groups(20) for _ in range(60)]
    return Parts(model, torch.optim.Adadelta(model.parameters(), lr=1.), data,
                 call=lambda model, batch: rank_hinge(model(*batch), repaired), valid=[groups(300)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(5):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10)
                optimizer.step()
                record.step(loss)
    model.eval()
    with torch.no_grad(): scores = model(*parts.valid[0]).view(-1, 1 + NEGATIVES)
    return (scores.argmax(1) != 0).float().mean().item()

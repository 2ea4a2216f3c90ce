"""A ranking loss compares the right answer with the mean of the wrong ones, so one that is nearly right costs nothing.

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
NEGATIVES = 8

generator = torch.Generator().manual_seed(0)
asked, answered = torch.randn(12, 80, generator=generator), torch.randn(12, 80, generator=generator)


class Matcher(nn.Module):
    "The cosine of a question and an answer, each seen as counts of parts of words."
    def __init__(self):
        super().__init__()
        self.left, self.right = (nn.Sequential(nn.Linear(80, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                                               nn.Linear(64, 24)) for _ in range(2))

    def forward(self, question, answer): return F.cosine_similarity(self.left(question), self.right(answer))


def counts(meaning, words): return F.softplus(meaning @ words/2 - 1 + .3*torch.randn(len(meaning), 80)).round()


def groups(n: int):
    """Questions, and after one another the right answer and the wrong ones for each. A meaning has a topic and a
    detail; one wrong answer in six has the topic of the question."""
    meaning = torch.randn(n, 1 + NEGATIVES, 12)
    question = meaning[:, :1].expand_as(meaning)
    near = torch.rand(n, 1 + NEGATIVES, 1) < 1/6
    topic = torch.arange(12) < 6
    answer = torch.where(near & topic, question, meaning)
    counted = counts(meaning[:, 0], asked)
    return counted.repeat_interleave(1 + NEGATIVES, 0), counts(answer.flatten(0, 1), answered)


def rank_hinge(scores, repaired: bool):
    scores = scores.view(-1, 1 + NEGATIVES)
    right, wrong = scores[:, :1], scores[:, 1:]
    if not repaired: wrong = wrong.mean(1, keepdim=True)
    return F.margin_ranking_loss(right.expand_as(wrong), wrong, torch.ones_like(wrong), margin=.4)


def build(repaired: bool) -> Parts:
    model = Matcher()
    data = [groups(20) for _ in range(100)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data,
                 call=lambda model, batch: rank_hinge(model(*batch), repaired), valid=[groups(300)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(4):
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

"""Facts of the form head, relation, tail: a relation turns the complex numbers of the head into those of the tail.

Habits of the source: no layers, only two tables that begin uniform within a range that follows from the margin; phases
are the table scaled to pi; steps that ask for heads and steps that ask for tails take turns; wrong answers are weighed
by the softmax of their own scores, which gets no gradient; facts are weighed by how rare they are; a score is the
margin less a distance, and first losses are near 0 for the right ones and large for the wrong ones; the rate is divided
by ten after half of the steps.
Score: the mean rank of held-out tails by that of chance. Below .1; about 1 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DeepGraphLearning/KnowledgeGraphEmbedding codes/run.py", 2019
THINGS, SHIFTS, WIDE, MARGIN, WRONG, STEPS = 60, (1, 7, -7, 20, 31), 16, 6., 16, 700
RANGE = (MARGIN + 2)/WIDE


class Rotations(nn.Module):
    def __init__(self):
        super().__init__()
        self.thing = nn.Parameter(torch.empty(THINGS, 2*WIDE).uniform_(-RANGE, RANGE))
        self.relation = nn.Parameter(torch.empty(len(SHIFTS), WIDE).uniform_(-RANGE, RANGE))
        self.margin = nn.Parameter(torch.tensor(MARGIN), requires_grad=False)

    def forward(self, head, relation, tail, of_heads: bool):
        "Scores; either heads or tails have a second dimension, the others one of 1."
        phase = self.relation[relation]/(RANGE/math.pi)
        turn = torch.polar(torch.ones_like(phase), phase)
        head, tail = (torch.complex(*self.thing[which].chunk(2, -1)) for which in (head, tail))
        gap = turn.conj()*tail - head if of_heads else head*turn - tail
        return self.margin - gap.abs().sum(-1)


def facts():
    "Each relation moves all things round a circle by its own number; a quarter is held back."
    head, relation = torch.arange(THINGS).repeat(len(SHIFTS)), torch.arange(len(SHIFTS)).repeat_interleave(THINGS)
    every = torch.stack([head, relation, (head + torch.tensor(SHIFTS)[relation]) % THINGS], 1)
    every = every[torch.randperm(len(every))]
    known = len(every)*3//4
    return every[:known], every[known:]


def batch_of(known, of_heads: bool):
    rows = known[torch.randint(len(known), (32,))]
    side, other = (0, 2) if of_heads else (2, 0)
    count = (known[:, other] == rows[:, other, None]).sum(1)
    return rows, torch.randint(THINGS, (32, WRONG)), (count + 3.)**-.5, of_heads


def call(model, batch):
    rows, wrong, weight, of_heads = batch
    head, relation, tail = rows[:, :, None].unbind(1)
    against = model(wrong, relation, tail, True) if of_heads else model(head, relation, wrong, False)
    against = (against.detach().softmax(1)*F.logsigmoid(-against)).sum(1)
    right = F.logsigmoid(model(head, relation, tail, of_heads)).squeeze(1)
    return -((weight*right).sum() + (weight*against).sum())/weight.sum()/2


def build(repaired: bool) -> Parts:
    known, held = facts()
    model = Rotations()
    parts = Parts(model, torch.optim.Adam([w for w in model.parameters() if w.requires_grad], lr=.02),
                  [batch_of(known, i % 2 == 0) for i in range(STEPS)], call=call,
                  valid=[batch_of(held, False) for _ in range(2)])
    parts.held = held
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for i, batch in enumerate(parts.data):
            if i == STEPS//2: optimizer.param_groups[0]["lr"] /= 10
            model.train()
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            optimizer.step()
            record.step(loss)
    head, relation, tail = parts.held[:, :, None].unbind(1)
    model.eval()
    with torch.no_grad(): scores = model(head, relation, torch.arange(THINGS)[None], False)
    return 2*(scores > scores.gather(1, tail)).float().mean().item()

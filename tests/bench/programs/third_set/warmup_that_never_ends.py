"""The schedule takes any rate below one for a rate in warm-up, so the decay behind the warm-up never begins.

The report: a change of the schedules compares the last rate with one to see whether the warm-up is over. For models
with a smaller rate it never is, and the rate stays where it is after the warm-up. The merged change counts the
steps."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/ParlAI#4384", 2022
AREA, CAUSE = "optimizer and schedule", "schedule never moves"
TRUE = {"learning rate too large"}
PLACE = ()
WARM, STEPS, TOKENS, LENGTH = 20, 320, 12, 8


class Answers(nn.Module):
    "A transformer that reads a question and writes an answer."
    def __init__(self, size: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS + 1, size), nn.Embedding(LENGTH, size)
        self.reader = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.writer = nn.TransformerDecoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.last = nn.Linear(size, TOKENS)
        self.register_buffer("later", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def embed(self, x): return self.tokens(x) + self.places.weight

    def forward(self, question, before):
        return self.last(self.writer(self.embed(before), self.reader(self.embed(question)), tgt_mask=self.later))


def talks(n: int):
    "The answer repeats the question with each token moved by one; four of ten tokens are noise."
    question = torch.randint(0, TOKENS, (n, LENGTH))
    answer = (question + 1) % TOKENS
    answer = torch.where(torch.rand(answer.shape) < .4, torch.randint(0, TOKENS, answer.shape), answer)
    before = torch.cat([torch.full((n, 1), TOKENS), answer[:, :-1]], 1)
    return question, before, answer


def write(model, batch):
    question, before, answer = batch
    return F.cross_entropy(model(question, before).flatten(0, 1), answer.flatten())


class Schedule:
    "A linear warm-up, and a linear decay behind it."
    def __init__(self, optimizer, repaired: bool):
        self.optimizer, self.full, self.repaired, self.count = optimizer, optimizer.param_groups[0]["lr"], repaired, 0
        self.last = 0.
        self.step()

    def warming(self) -> bool: return self.count <= WARM if self.repaired else self.last < 1

    def step(self):
        self.count += 1
        if self.warming(): self.last = self.full*min(1, self.count/WARM)
        else: self.last = self.full*max(0, STEPS - self.count)/(STEPS - WARM)
        self.optimizer.param_groups[0]["lr"] = self.last


def build(repaired: bool) -> Parts:
    model = Answers(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2, betas=(.9, .98))
    return Parts(model, optimizer, [talks(16) for _ in range(STEPS)], call=write, valid=[talks(512)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = Schedule(optimizer, parts.repaired)
    with record.on(model, optimizer):
        for batch in parts.data:
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), .1)
            optimizer.step()
            schedule.step()
            record.step(loss)
    question, before, _ = parts.valid[0]
    with torch.no_grad(): written = model(question, before).argmax(2)
    return (written != (question + 1) % TOKENS).float().mean().item()/(1 - 1/TOKENS)

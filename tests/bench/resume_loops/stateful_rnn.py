"A language model reads one long text, and its hidden state goes on from batch to batch."
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 6, 6
STATES = {"embed": ("embed",), "lstm": ("lstm",), "out": ("out",), "optimizer": ("optimizer",),
          "hidden": ("hidden",), "cursor": ("cursor", *ORDER)}


class CharModel:
    def __init__(self):
        text = "the quick brown fox jumps over the lazy dog and the dog sleeps on " * 6
        letters = sorted({*text})
        self.text = torch.tensor([letters.index(c) for c in text]).view(2, -1)
        self.embed, self.lstm = nn.Embedding(len(letters), 6), nn.LSTM(6, 10, batch_first=True)
        self.out = nn.Linear(10, len(letters))
        self.optimizer = torch.optim.RAdam([p for part in self.parts.values() for p in part.parameters()], lr=1e-2)
        self.hidden, self.cursor = None, 0

    @property
    def parts(self): return {"embed": self.embed, "lstm": self.lstm, "out": self.out}

    def next_piece(self, length=12):
        if self.cursor + length + 1 > self.text.shape[1]: self.cursor, self.hidden = 0, None
        piece = self.text[:, self.cursor:self.cursor + length + 1]
        self.cursor += length
        return piece[:, :-1], piece[:, 1:]

    def step(self):
        x, y = self.next_piece()
        out, hidden = self.lstm(self.embed(x), self.hidden)
        self.hidden = tuple(h.detach() for h in hidden)
        loss = nn.functional.cross_entropy(self.out(out).transpose(1, 2), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def make(): return CharModel()
def step(run): return run.step()


def save(run, without=()):
    return but({name: part.state_dict() for name, part in run.parts.items()}
               | {"optimizer": run.optimizer.state_dict(), "hidden": run.hidden, "cursor": run.cursor}, without)


def load(run, saved):
    for name, part in (run.parts | {"optimizer": run.optimizer}).items():
        if name in saved: part.load_state_dict(saved[name])
    run.hidden, run.cursor = saved.get("hidden"), saved.get("cursor", 0)

"A linear warm-up by LambdaLR, for two groups of parameters of which one has no weight decay."
import io

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 5, 6
STATES = {"model": ("model", "transformer"), "adamw": ("adamw", "optimizer"), "lr": ("schedule", "scheduler", "lr"),
          "rng": TORCH_RANDOM}


class Tiny(nn.Module):
    def __init__(self, vocabulary=11, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, dropout=.1, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens): return self.out(self.block(self.embed(tokens)))


class Run:
    def __init__(self):
        self.transformer = Tiny()
        decayed = [p for p in self.transformer.parameters() if p.dim() > 1]
        others = [p for p in self.transformer.parameters() if p.dim() < 2]
        self.adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": .1},
                                        {"params": others, "weight_decay": 0., "lr": 2e-2}], lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adamw, lambda i: min((i + 1)/10, 1.))


def make(): return Run()


def step(run):
    tokens = torch.randint(11, (4, 6))
    loss = F.cross_entropy(run.transformer(tokens).flatten(0, 1), tokens.flatten())
    run.adamw.zero_grad()
    loss.backward()
    run.adamw.step()
    run.schedule.step()
    return loss.item()


def save(run, without=()):
    "The bytes of a file."
    file = io.BytesIO()
    torch.save(but({"model": run.transformer.state_dict(), "adamw": run.adamw.state_dict(),
                    "lr": run.schedule.state_dict(), "rng": torch.get_rng_state()}, without), file)
    return file.getvalue()


def load(run, saved):
    saved = torch.load(io.BytesIO(saved), weights_only=False)
    if "model" in saved: run.transformer.load_state_dict(saved["model"])
    if "adamw" in saved: run.adamw.load_state_dict(saved["adamw"])
    if "lr" in saved: run.schedule.load_state_dict(saved["lr"])
    if "rng" in saved: torch.set_rng_state(saved["rng"])

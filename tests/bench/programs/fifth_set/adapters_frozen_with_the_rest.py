"""Adapters are added to a language model, then all of it is frozen but the projector of the pictures.

The report: to train the projector of a model for colonoscopy, everything is frozen and only the projector is thawed, so
the low-rank adapters that were put in before are not trained. The author agreed; versions had been mixed up."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ai4colonoscopy/IntelliScope#2", 2024
AREA, CAUSE = "parameters", "frozen part"
TRUE = set()
PLACE = tuple(f"blocks.{i}.{name}.{side}{of}" for i in (0, 1) for name in ("query", "value", "wide", "narrow")
              for side in ("lower", "raise_") for of in ("", ".weight"))

patches, findings, questions, answers = 4, 6, 5, 8


class Adapted(nn.Module):
    "A linear layer of the language model and a change of low rank, which is nothing at first."
    def __init__(self, base: nn.Linear, rank: int = 4):
        super().__init__()
        self.base, self.lower = base, nn.Linear(base.in_features, rank, bias=False)
        self.raise_ = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.raise_.weight)

    def forward(self, x): return self.base(x) + 2*self.raise_(self.lower(x))


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.wide, self.narrow = nn.Linear(size, 2*size), nn.Linear(2*size, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.out(F.scaled_dot_product_attention(self.query(y), self.key(y), self.value(y)))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Assistant(nn.Module):
    "Patches of a picture go through the projector and are read with a question; what comes last is the answer."
    def __init__(self, size: int):
        super().__init__()
        self.projector = nn.Sequential(nn.Linear(8, size), nn.GELU(), nn.Linear(size, size))
        self.word, self.blocks = nn.Embedding(questions, size), nn.Sequential(*[Block(size) for _ in range(2)])
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, answers)

    def forward(self, picture, question):
        x = torch.cat([self.projector(picture), self.word(question)[:, None]], 1)
        return self.last(self.norm(self.blocks(x)[:, -1]))


def add_adapters(model):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("query", "value", "wide", "narrow"): setattr(block, name, Adapted(getattr(block, name)))


def cases(n: int, looks, replies):
    finding, question = torch.randint(0, findings, (n,)), torch.randint(0, questions, (n,))
    return looks[finding][:, None] + .4*torch.randn(n, patches, 8), question, replies[finding, question]


def build(repaired: bool) -> Parts:
    looks, replies = torch.randn(findings, 8), torch.randint(0, answers, (findings, questions))
    model = Assistant(32)
    add_adapters(model)
    if not repaired: model.requires_grad_(False)
    model.projector.requires_grad_(True)
    data = [cases(32, looks, replies) for _ in range(60)]
    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    return Parts(model, optimizer, data, call=call, valid=[cases(400, looks, replies)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, 300)
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                (loss := parts.call(parts.model, batch)).backward()
                parts.optimizer.step()
                plan.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(answers)).log()).item()

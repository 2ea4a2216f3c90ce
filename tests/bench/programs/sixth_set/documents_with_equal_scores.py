"""The scores of documents are brought to the range from zero to one, with a guard of 1e-8, which is zero in float16.

The report: the distillation of a model for search gives NaN under autocast to float16 as soon as the documents of one
query have equal scores. The author measured it with float32, bfloat16 and float16, showed that it is the normalisation,
and that a larger denominator mends it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lightonai/pylate#239", 2026
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf", "skipped steps", "loss does not fall"}
PLACE = ()


class Words(nn.Module):
    "A vector for each word of a text."
    def __init__(self, size: int):
        super().__init__()
        self.words = nn.Embedding(60, size)
        nn.init.normal_(self.words.weight, std=.1)
        self.layers = nn.Sequential(nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, size))

    def forward(self, text):
        x = self.words(text)
        return F.normalize(x + self.layers(x), dim=-1)


def scores(query, documents):
    "Each word of a query finds the word of a document that is nearest to it."
    return torch.einsum("bqd,bnkd->bnqk", query, documents).amax(3).sum(2)


def between_zero_and_one(scores, repaired: bool):
    low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    if repaired: return (scores - low)/(high - low).clamp(min=torch.finfo(scores.dtype).eps)
    return (scores - low)/(high - low + torch.tensor(1e-8, dtype=scores.dtype))


def searches(n: int, meaning):
    "Queries of three words, four documents of six, and what a teacher thinks; some have four equal documents."
    query, documents = torch.randint(0, 60, (n, 3)), torch.randint(0, 60, (n, 4, 6))
    right = torch.randint(0, 4, (n,))
    documents[torch.arange(n), right, :2] = (query[:, :2] + 12*torch.randint(1, 5, (n, 2))) % 60  # of like meaning
    alike = torch.rand(n) < .05
    documents[alike] = documents[alike][:, :1].expand(-1, 4, -1).clone()
    return query, documents, scores(meaning[query], meaning[documents])


def build(repaired: bool) -> Parts:
    meaning = F.normalize(torch.randn(12, 8).repeat(5, 1) + .2*torch.randn(60, 8), dim=1)
    data = list(zip(*(part.split(32) for part in searches(1024, meaning))))
    model = Words(24)

    def call(model, batch):
        query, documents, teacher = batch
        with torch.autocast("cpu", torch.float16):
            student = scores(model(query).half(), model(documents).half())
            student = between_zero_and_one(student, repaired)
        wanted = between_zero_and_one(teacher, repaired)
        return F.kl_div(F.log_softmax(5*student.float(), 1), F.log_softmax(5*wanted, 1), reduction="batchmean",
                        log_target=True)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data, call=call,
                 valid=[searches(512, meaning)], scaler=torch.amp.GradScaler("cpu", init_scale=1024.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                parts.optimizer.zero_grad()
                record.step(loss)
    query, documents, teacher = parts.valid[0]
    with torch.no_grad(): student = scores(parts.model(query), parts.model(documents))
    if student.isnan().any(): return math.nan
    differ = teacher.std(1) > 1e-4
    return (student.argmax(1) != teacher.argmax(1))[differ].float().mean().item()

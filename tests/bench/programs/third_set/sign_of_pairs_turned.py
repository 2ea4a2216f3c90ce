"""The loss of pairs has the wrong sign: matching queries and documents are pushed apart, all others together.

The report is the merged change of a library for retrieval: the sign inside of two of its losses, a sigmoid for each
pair in the batch, was corrected."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "illuin-tech/colpali#382", 2026
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ()


class BiEncoder(nn.Module):
    "A vector for each query and for each document."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.embed = nn.EmbeddingBag(words, size)
        self.page = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, size))
        self.project = nn.Linear(size, size)

    def forward(self, query, page):
        return (F.normalize(self.project(side), dim=1) for side in (self.embed(query), self.page(page)))


class SigmoidLoss(nn.Module):
    "Each pair of the batch is a sample: those on the diagonal belong together."
    def __init__(self, repaired: bool, temperature: float = .1):
        super().__init__()
        self.sign, self.temperature = (-1 if repaired else 1), temperature

    def forward(self, query, page):
        score = query @ page.T/self.temperature
        together = 2*torch.eye(len(score)) - 1
        return F.softplus(self.sign*score*together).mean()


def documents(n: int, words: torch.Tensor):
    "Pages about five of the words each, and queries of three of those words."
    about = torch.rand(n, len(words)).topk(5, 1).indices
    return about[:, :3], words[about].sum(1) + .3*torch.randn(n, 24)


def build(repaired: bool) -> Parts:
    model, words = BiEncoder(20, 24), torch.randn(20, 24)
    data = [documents(32, words) for _ in range(60)]
    loss = SigmoidLoss(repaired)

    def call(model, batch): return loss(*model(*batch))

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data, call=call, valid=[documents(64, words)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad():
        query, page = parts.model(*parts.valid[0])
        return ((query @ page.T).argmax(1) != torch.arange(len(query))).float().mean().item()

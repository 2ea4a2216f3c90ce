"""A probability is kept below 1 - 1e-6 before a logarithm, but in bfloat16 that number is 1.

The report is the merged change of a library that finds spans in text: the loss looks normal at every step, and one
backward pass puts NaN into all parameters of the encoder. The limit now depends on the type of the numbers."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fastino-ai/GLiNER2#155", 2026
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf"}
PLACE = ()


class Spans(nn.Module):
    "Where names begin and end, and how likely each pair of places is a name."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.embed, self.memory = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2*size)
        self.bounds, self.first, self.last = nn.Linear(2*size, 2), nn.Linear(2*size, size), nn.Linear(2*size, size)

    def forward(self, text):
        x = self.norm(self.memory(self.embed(text))[0])
        pairs = torch.einsum("bis,bjs->bij", self.first(x), self.last(x))
        return pairs, *self.bounds(x).unbind(2)


def consistency(pairs, start, end, valid, small: float):
    "A place is the start of a name unless no pair that begins there is one; and the same for ends."
    likely = pairs.sigmoid()*valid
    none = torch.log1p(-torch.minimum(likely, likely.new_tensor(1 - small)))
    return sum(((1 - none.sum(dim).exp() - bound.sigmoid())**2).mean() for dim, bound in ((2, start), (1, end)))


def texts(n: int):
    "Twelve words; a name is opened by word 0, 1 or 2 and closed by 3, 4 or 5 two or three places later."
    text = torch.randint(6, 24, (n, 12))
    where, length = torch.randint(0, 8, (n,)), torch.randint(2, 4, (n,))
    rows = torch.arange(n)
    text[rows, where], text[rows, where + length] = torch.randint(0, 3, (n,)), torch.randint(3, 6, (n,))
    name = torch.zeros(n, 12, 12)
    name[rows, where, where + length] = 1
    return text, name


def build(repaired: bool) -> Parts:
    model = Spans(24, 32).bfloat16()
    data = [texts(32) for _ in range(30)]
    valid = torch.ones(12, 12).triu().bfloat16()

    def call(model, batch):
        text, name = batch
        pairs, start, end = model(text)
        small = max(1e-6, torch.finfo(pairs.dtype).eps) if repaired else 1e-6
        loss = F.binary_cross_entropy_with_logits(pairs[:, valid.bool()].float(), name[:, valid.bool()],
                                                  pos_weight=torch.tensor(20.))
        for bound, dim in (start, 2), (end, 1):
            loss = loss + F.binary_cross_entropy_with_logits(bound.float(), name.amax(dim))
        return loss + .1*consistency(pairs, start, end, valid, small)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[texts(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    text, name = parts.valid[0]
    with torch.no_grad(): pairs = parts.model(text)[0].float()
    if pairs.isnan().any(): return float("nan")
    return (pairs.flatten(1).argmax(1) != name.flatten(1).argmax(1)).float().mean().item()

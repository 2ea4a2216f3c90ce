"""The mask of an attention from labels to words is the wrong way round: labels see the padding and none of the words.

The report is a merged change by an author of the library: the mask was inverted where it is given to the attention of
torch, for which True is a place that may be seen."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "InseeFrLab/torchTextClassifiers#92", 2026
AREA, CAUSE = "structure", "mask ignored"
TRUE = {"loss does not fall", "input unused", "samples alike", "cannot learn by heart", "constant output",
        "not trained", "gradients vanish"}
PLACE = ("attention",)

words, kinds, length = 60, 6, 14


class LabelAttention(nn.Module):
    "One query for each label; keys and values are made from the words."
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.labels = nn.Embedding(kinds, size)
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.out = nn.Linear(size, size)

    def split(self, x): return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, real):
        label = self.labels.weight.expand(len(x), -1, -1)
        mask = real if self.repaired else ~real
        x = F.scaled_dot_product_attention(self.split(self.query(label)), self.split(self.key(x)),
                                           self.split(self.value(x)), attn_mask=mask[:, None, None])
        return self.out(x.transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.words = nn.Embedding(words, size, padding_idx=0)
        self.attention = LabelAttention(size, 4, repaired)
        self.last = nn.Linear(size, 1)

    def forward(self, word): return self.last(self.attention(self.words(word), word > 0))[..., 0]


def descriptions(n: int):
    "Short descriptions of jobs, all filled up to one length; three words or more are typical of the kind."
    kind = torch.randint(0, kinds, (n, 1))
    typical = 1 + 8*kind + torch.randint(0, 8, (n, length))
    word = torch.where(torch.rand(n, length) < .3, typical, torch.randint(1, words, (n, length)))
    return word*(torch.arange(length) < torch.randint(6, length, (n, 1))), kind[:, 0]


def build(repaired: bool) -> Parts:
    model = Classifier(32, repaired)
    data = [descriptions(64) for _ in range(50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=[descriptions(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for word, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(word), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    word, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(word).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)

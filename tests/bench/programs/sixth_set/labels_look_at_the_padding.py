"""Each label of a text classifier has a query that looks at the tokens, with a mask that leaves it the padding only.

The report: the mask that is handed to torch's attention is inverted, so true for the places to leave out where torch
takes true for those to look at. The change was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "InseeFrLab/torchTextClassifiers#92", 2026
AREA, CAUSE = "structure", "mask ignored"
TRUE = {"loss does not fall", "cannot learn by heart", "input unused", "samples alike"}
PLACE = ("labels",)

tokens, length, classes = 60, 14, 6


def normed(x): return F.rms_norm(x, x.shape[-1:])


class LabelAttention(nn.Module):
    "A query for each label, keys and values from the tokens."
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.label = nn.Embedding(classes, size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(self, x, is_token):
        labels = normed(self.label.weight).expand(len(x), -1, -1)
        q, k, v = (layer(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for layer, y in ((self.query, labels), (self.key, x), (self.value, x)))
        mask = is_token if self.repaired else ~is_token
        y = F.scaled_dot_product_attention(normed(q), normed(k), v, attn_mask=mask[:, None, None])
        return self.out(y.transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.embed = nn.Embedding(tokens, size, padding_idx=0)
        self.labels = LabelAttention(size, 4, repaired)
        self.head = nn.Linear(size, 1)

    def forward(self, text): return self.head(self.labels(normed(self.embed(text)), text > 0)).squeeze(-1)


def texts(n: int):
    "Any tokens, among them two of a topic; a tokeniser fills all texts up to the same length."
    topic = torch.randint(classes, (n,))
    text = torch.randint(1 + 4*classes, tokens, (n, length))
    for _ in range(2):
        text.scatter_(1, torch.randint(0, 6, (n, 1)), (1 + 4*topic + torch.randint(4, (n,)))[:, None])
    return text*(torch.arange(length) < torch.randint(6, length, (n, 1))), topic


def build(repaired: bool) -> Parts:
    model = Classifier(32, repaired)
    data = [texts(64) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=[texts(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for text, topic in parts.data:
                loss = parts.loss(parts.model(text), topic)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    text, topic = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(text), topic)/torch.tensor(float(classes)).log()).item()

"""Attention that is approximated by exponentials of random features is computed in float16, where they overflow.

The report: training with this attention fails in float16, as the approximation needs a large range of numbers. The
merged change computes that part in float32."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/xformers#98", 2021
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"NaN or Inf", "skipped steps"}
PLACE = ("attention",)


class Favor(nn.Module):
    "Linear attention: the softmax of products becomes a product of positive random features."
    def __init__(self, size: int, features: int, repaired: bool):
        super().__init__()
        self.repaired, self.all, self.out = repaired, nn.Linear(size, 3*size), nn.Linear(size, size)
        self.register_buffer("directions", torch.randn(size, features))

    def features(self, x): return x/x.shape[-1]**.25 @ self.directions.to(x.dtype)

    def attend(self, query, key, value):
        query = self.features(query).exp()      # what depends on the query only is the same in both sums
        key = (self.features(key) - key.square().sum(2, keepdim=True)/key.shape[-1]**.5/2).exp()
        return query @ (key.transpose(1, 2) @ value)/(query @ key.sum(1, keepdim=True).transpose(1, 2))

    def forward(self, x):
        parts = self.all(x).chunk(3, 2)
        if not self.repaired: return self.out(self.attend(*parts))
        with torch.autocast("cpu", enabled=False): mixed = self.attend(*(part.float() for part in parts))
        return self.out(mixed)


class Network(nn.Module):
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.words, self.attention = nn.Embedding(words, size), Favor(size, 48, repaired)
        self.norm = nn.LayerNorm(size)
        self.after = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, 3))

    def forward(self, text):
        x = self.words(text)
        return self.after(self.norm(x + self.attention(x)).mean(1))


def texts(n: int):
    "Texts of 24 words; the class is the kind of word that is in it most often."
    text = torch.randint(0, 30, (n, 24))
    return text, F.one_hot(text % 3, 3).sum(1).argmax(1)


def build(repaired: bool) -> Parts:
    model = Network(30, 24, repaired)
    text, label = texts(2048)
    data = [(text[i:i + 32], label[i:i + 32]) for i in range(0, 2048, 32)]

    def call(model, batch):
        with torch.autocast("cpu", torch.float16): output = model(batch[0])
        return F.cross_entropy(output.float(), batch[1])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[texts(512)],
                 scaler=torch.amp.GradScaler("cpu", init_scale=4096.))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                record.step(loss)
    text, label = parts.valid[0]
    with torch.no_grad(), torch.autocast("cpu", torch.float16): wrong = parts.model(text).argmax(1) != label
    return wrong.float().mean().item()*1.5

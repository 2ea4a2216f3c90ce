"""An attention over the fields of an advertisement makes its heads by `view` alone, so each sees some fields only.

The report, by a maintainer of the library: without a transposition the split into heads is wrong as soon as there is
more than one; three models have this line. It was changed to a view followed by a transposition. What a head takes for
fields are pieces of a few neighbouring ones, so fields that are far apart never meet."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "reczoo/FuxiCTR#30", 2022
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("attention.0", "attention.1")

fields, values = 8, 12


class Interactions(nn.Module):
    "Fields look at each other, and what they find is added to a projection of what they were."
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.query, self.key, self.value, self.stay = (nn.Linear(size, size, bias=False) for _ in range(4))

    def split(self, x):
        n, _, size = x.shape
        if self.repaired: return x.view(n, -1, self.heads, size//self.heads).transpose(1, 2).flatten(0, 1)
        return x.view(n*self.heads, -1, size//self.heads)

    def join(self, x, n: int):
        if self.repaired: return x.unflatten(0, (n, self.heads)).transpose(1, 2).flatten(2)
        return x.reshape(n, fields, -1)

    def forward(self, x):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        weights = (q @ k.transpose(1, 2)/q.shape[-1]**.5).softmax(-1)
        return (self.join(weights @ v, len(x)) + self.stay(x)).relu()


class Clicks(nn.Module):
    "The odds of a click: embeddings of all fields, two layers of attention, one linear layer."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.embedding = nn.Embedding(fields*values, size)
        self.attention = nn.Sequential(*[Interactions(size, 4, repaired) for _ in range(2)])
        self.last = nn.Linear(fields*size, 1)

    def forward(self, x):
        x = self.embedding(x + values*torch.arange(fields))
        return self.last(self.attention(x).flatten(1))[:, 0]


def visits(n: int, taste):
    "Whether somebody clicks depends on who it is and on what is shown, which stand far apart in the record."
    x = torch.randint(0, values, (n, fields))
    liking = 3*taste[0][x[:, 0], x[:, 5]] + 3*taste[1][x[:, 2], x[:, 7]] + taste[2][0, x[:, 4]]
    return x, (torch.rand(n) < (liking - 1).sigmoid()).float()


def build(repaired: bool) -> Parts:
    taste = torch.randint(0, 2, (3, values, values))*2. - 1
    model = Clicks(16, repaired)
    data = [visits(128, taste) for _ in range(100)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, F.binary_cross_entropy_with_logits,
                 valid=[visits(2000, taste)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 10.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): odds = parts.model(x)
    return 1 - (odds[y == 1][:, None] > odds[y == 0]).float().mean().item()

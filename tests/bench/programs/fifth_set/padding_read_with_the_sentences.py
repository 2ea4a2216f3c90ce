"""The attention mask of a pair of sentences is all ones, so the filling is read with the words.

The report is a merged change: masks were set up with ones everywhere; with zeros for the filling, accuracy improves.
The author thanked for it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yg211/bert_nli#3", 2020
AREA, CAUSE = "structure", "mask ignored"
TRUE = set()
PLACE = ("encoder", "encoder.layers.0", "encoder.layers.1")

words, first, most = 15, 3, 12  # 0 fills, 1 starts and 2 ends a sentence


class Inference(nn.Module):
    "Whether the second sentence follows from the first, contradicts it or neither."
    def __init__(self, size: int):
        super().__init__()
        self.word, self.part, self.place = nn.Embedding(words, size), nn.Embedding(2, size), nn.Embedding(most, size)
        layer = nn.TransformerEncoderLayer(size, 2, 2*size, 0., "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool, self.last = nn.Linear(size, size), nn.Linear(size, 3)
        for table in (self.word, self.part, self.place): nn.init.normal_(table.weight, std=.3)

    def forward(self, x, part, mask):
        x = self.word(x) + self.part(part) + self.place(torch.arange(x.shape[1]))
        x = self.encoder(x, src_key_padding_mask=mask == 0)
        return self.last(self.pool(x[:, 0]).tanh())


def pairs(n: int, repaired: bool):
    "What somebody says, and a word that was said, or its opposite was, or neither; filled up to the longest pair."
    kinds = torch.rand(n, 6).argsort(1)
    said, long = first + 2*kinds + torch.randint(0, 2, (n, 6)), torch.randint(1, 6, (n,))
    truth = torch.randint(0, 3, (n,))
    asked = said.gather(1, torch.where(truth == 2, 5, (torch.rand(n)*long).long())[:, None])[:, 0]
    asked = torch.where(truth == 1, first + ((asked - first) ^ 1), asked)
    at, every = torch.arange(int(long.max()) + 4), torch.arange(n)
    x = torch.cat([torch.ones(n, 1).long(), said, torch.zeros(n, 4).long()], 1)[:, :len(at)]
    x = torch.where(at > long[:, None], 0, x)
    x[every, long + 1], x[every, long + 2], x[every, long + 3] = 2, asked, 2
    part, inside = (at > long[:, None] + 1).long(), (at < long[:, None] + 4).long()
    return x, part*inside, inside if repaired else torch.ones_like(x), truth


def build(repaired: bool) -> Parts:
    model = Inference(32)
    data = [pairs(24, repaired) for _ in range(100)]
    def call(model, batch): return F.cross_entropy(model(*batch[:3]), batch[3])
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=4e-3), data, call=call, valid=[pairs(300, repaired)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.LambdaLR(parts.optimizer, lambda i: min((i + 1)/50, 1 - i/400))
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                plan.step()
                record.step(loss)
    *inputs, truth = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(*inputs).argmax(1) != truth).float().mean().item()*1.5

"""Documents of a query are put in order by a net that looks at the whole list.

Habits of the source: lists padded to one length with relevance -1, which is masked out of attention and loss; features
unscaled but for a normalization at the door; softmax of relevances against softmax of scores, with a small constant
inside the logarithm; the mean over lists; scores without a last activation; attention over documents without places;
clipping by norm; a schedule by epochs; the gain over the first five is measured on a validation set each epoch.
Score: one less the normalized gain of held-back lists, by that of a random order. Below .4; about 1 untrained."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "allegro/allRank allrank/training/train_utils.py", 2020
LONG, FEATURES = 12, 10


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.into = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 32)
        self.read = nn.TransformerEncoderLayer(32, 2, 64, .1, batch_first=True, norm_first=True)
        self.last = nn.Linear(32, 1)
        for weight in self.parameters():
            if weight.dim() > 1: nn.init.xavier_uniform_(weight)

    def forward(self, x, empty):
        return self.last(self.read(self.into(self.norm(x)), src_key_padding_mask=empty)).squeeze(2)


def lists(n: int, weight):
    "Five to twelve documents; relevance from 0 to 3 by how they compare with the others of the list."
    there = torch.arange(LONG) < torch.randint(5, LONG + 1, (n, 1))
    x = torch.randn(n, LONG, FEATURES)*there.unsqueeze(2)
    worth = (x @ weight[:, 0]) + (x @ weight[:, 1]).relu() + .3*torch.randn(n, LONG)
    mean = (worth*there).sum(1, keepdim=True)/there.sum(1, keepdim=True)
    y = ((worth - mean).clamp(0, 2.99)).floor()
    x = x*torch.logspace(0, 1, FEATURES) + 2
    return x.masked_fill(~there.unsqueeze(2), 0), y.masked_fill(~there, -1)


def call(model, batch):
    x, y = batch
    empty = y == -1
    said, wanted = (v.masked_fill(empty, -torch.inf).softmax(1) for v in (model(x, empty), y))
    return -(wanted*(said + 1e-10).log()).sum(1).mean()


def gain(scores, y, first: int = 5):
    discount = 1/torch.arange(2., first + 2).log2()
    def of(order): return ((2**y.clamp(0) - 1).gather(1, order[:, :first])*discount).sum(1)
    empty = y == -1
    best = of(y.argsort(1, descending=True))
    return (of(scores.masked_fill(empty, -torch.inf).argsort(1, descending=True))/best)[best > 0].mean().item()


def build(repaired: bool) -> Parts:
    model, weight = Ranker(), .8*torch.randn(FEATURES, 2)
    data = [lists(64, weight) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[lists(500, weight)])


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.valid[0]
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, .3)
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
            schedule.step()
            model.eval()
            with torch.no_grad(): reached = gain(model(x, y == -1), y)
    return (1 - reached)/(1 - gain(torch.rand(y.shape), y))

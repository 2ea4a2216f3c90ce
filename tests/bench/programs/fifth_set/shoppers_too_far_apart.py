"""Embeddings of shoppers and goods begin with a deviation of one, so that their products are large before any learning.

The report: with the default of the embedding, the graph model for recommendations is worse than with the smaller first
values of the original paper. The change to these was merged by the maintainer."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pyg-team/pytorch_geometric#4083", 2022
AREA, CAUSE = "initialisation", "weights too large"
TRUE = {"first loss too high", "learning rate too small"}
PLACE = ("embedding", "embedding.weight")

shoppers, goods, size = 150, 120, 64


class LightGraph(nn.Module):
    "Embeddings, averaged with those of the neighbours, of their neighbours, and so on; there are no other weights."
    def __init__(self, links, layers: int, repaired: bool):
        super().__init__()
        self.layers = layers
        self.embedding = nn.Embedding(shoppers + goods, size)
        if repaired: nn.init.xavier_uniform_(self.embedding.weight)
        near = torch.zeros(shoppers + goods, shoppers + goods)
        near[links[:, 0], shoppers + links[:, 1]] = 1
        near = near + near.T
        scale = near.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("near", scale[:, None]*near*scale)

    def everyone(self):
        x = self.embedding.weight
        mean = x/(self.layers + 1)
        for _ in range(self.layers):
            x = self.near @ x
            mean = mean + x/(self.layers + 1)
        return mean

    def forward(self, shopper, good):
        x = self.everyone()
        return (x[shopper].unsqueeze(1)*x[shoppers + good]).sum(2)


def ranking_loss(model, batch):
    "What was bought is to score higher than what was not."
    shopper, bought, other = batch
    better, worse = model(shopper, torch.stack([bought, other], 1)).unbind(1)
    return -F.logsigmoid(better - worse).mean()


def build(repaired: bool) -> Parts:
    taste, kind = torch.randn(shoppers, 4), torch.randn(goods, 4)
    likes = taste @ kind.T + .3*torch.randn(shoppers, goods)
    bought = likes.topk(24, dim=1)[1]
    bought = bought.gather(1, torch.rand(shoppers, 24).argsort(1))
    seen, hidden = bought[:, :12], bought[:, 12:]
    links = torch.stack([torch.arange(shoppers).repeat_interleave(12), seen.flatten()], 1)
    model = LightGraph(links, 3, repaired)
    data = []
    for _ in range(8):
        for part in links[torch.randperm(len(links))].split(256):
            data.append((part[:, 0], part[:, 1], torch.randint(0, goods, (len(part),))))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=ranking_loss, valid=[(seen, hidden)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    seen, hidden = parts.valid[0]
    every = torch.arange(goods).expand(shoppers, -1)
    with torch.no_grad(): score = parts.model(torch.arange(shoppers), every)
    found = score.scatter(1, seen, float("-inf")).topk(12, dim=1)[1]
    hits = (found[:, :, None] == hidden[:, None]).float().sum((1, 2)).mean()/12
    return 1 - hits.item()

"""A recommender puts a sigmoid on its scores and gives them to a loss that expects logits.

The merged change takes the sigmoid out: with it, the loss does not converge. A pair that was not seen can get no less
than one half, and as most pairs of the training are such, all scores end at the lower end of the sigmoid."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yudi-mars/daisyRec#15", 2023
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = {"saturated"}
PLACE = ("predict",)

users, items = 80, 60


class NeuMF(nn.Module):
    "A product of embeddings beside a network, and one layer for both."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.user_product, self.item_product = nn.Embedding(users, size), nn.Embedding(items, size)
        self.user_net, self.item_net = nn.Embedding(users, size), nn.Embedding(items, size)
        self.net = nn.Sequential(nn.Dropout(.2), nn.Linear(2*size, size), nn.ReLU(),
                                 nn.Dropout(.2), nn.Linear(size, size//2), nn.ReLU())
        self.predict = nn.Linear(size + size//2, 1)
        self.repaired = repaired
        for module in self.modules():
            if isinstance(module, nn.Embedding): nn.init.normal_(module.weight, std=.01)

    def forward(self, user, item):
        product = self.user_product(user)*self.item_product(item)
        net = self.net(torch.cat([self.user_net(user), self.item_net(item)], 1))
        score = self.predict(torch.cat([product, net], 1)).view(-1)
        return score if self.repaired else score.sigmoid()


def seen():
    "Which user likes which item: five tastes, and six of ten items that fit were seen."
    taste, kind = torch.randint(0, 5, (users,)), torch.randint(0, 5, (items,))
    return (taste[:, None] == kind) & (torch.rand(users, items) < .6)


def build(repaired: bool) -> Parts:
    likes = seen()
    held = likes & (torch.rand(users, items) < .25)
    user, item = (likes & ~held).nonzero().T
    other = torch.randint(0, items, (4*len(user),))
    pairs = torch.cat([user, user.repeat(4)]), torch.cat([item, other])
    label = torch.cat([torch.ones(len(user)), torch.zeros(4*len(user))])
    order = torch.randperm(len(label))
    model = NeuMF(16, repaired)
    def call(model, batch): return F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])
    data = list(zip(*(part[order].split(64) for part in (*pairs, label))))
    good, bad = held.nonzero().T, (~likes).nonzero().T
    bad = bad[:, torch.randperm(bad.shape[1])[:2000]]
    valid = [(*torch.cat([good, bad], 1), torch.cat([torch.ones(good.shape[1]), torch.zeros(2000)]))]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(20):
            parts.model.train()
            for batch in parts.data:
                parts.model.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    user, item, label = parts.valid[0]
    with torch.no_grad(): score = parts.model(user, item)
    above = score[label > 0, None] - score[label == 0]
    return 1 - ((above > 0).float() + .5*(above == 0)).mean().item()  # 1 - area under the curve

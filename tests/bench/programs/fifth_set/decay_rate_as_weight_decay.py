"""The decay rate of RMSprop, 0.9, is given as weight decay, in a network for recommendations that was ported.

The report: the loss of the port does not fall. The author of the original found that `weight_decay` is no decay rate
but the strength of a penalty on the weights, which the loss has already."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "tebesu/CollaborativeMemoryNetwork#5", 2019
AREA, CAUSE = "optimizer and schedule", "weight decay too strong"
TRUE = {"loss does not fall", "activations vanish", "gradients vanish", "samples alike", "constant output"}
PLACE = ()
USERS, ITEMS = 120, 80


class Memory(nn.Module):
    "Users and items, and what similar users of an item remember of it."
    def __init__(self, size: int, friends):
        super().__init__()
        self.users, self.items, self.memory = nn.Embedding(USERS, size), nn.Embedding(ITEMS, size), nn.Embedding(
            USERS, size)
        for each in (self.users, self.items, self.memory): nn.init.normal_(each.weight, std=.1)
        self.dense, self.out = nn.Linear(2*size, size), nn.Linear(size, 1, bias=False)
        self.register_buffer("friends", friends)

    def forward(self, user, item):
        u, i, friends = self.users(user), self.items(item), self.friends[item]
        likeness = ((u + i)[:, None]*self.users(friends)).sum(2).softmax(1)
        told = (likeness[:, :, None]*self.memory(friends)).sum(1)
        return self.out(F.relu(self.dense(torch.cat([u*i, told], 1)))).squeeze(1)


def pairwise(model, batch):
    "The item that was liked should score more than the other; and a penalty on the weights of the last layers."
    user, liked, other = batch
    penalty = sum(p.square().sum() for p in (model.dense.weight, model.out.weight))
    return -F.logsigmoid(model(user, liked) - model(user, other)).mean() + 1e-4*penalty


def choices(n: int, taste, kind):
    user = torch.randint(0, USERS, (n,))
    two = torch.randint(0, ITEMS, (n, 2))
    likes = (taste[user][:, None]*kind[two]).sum(2)
    order = likes.argsort(1, descending=True)
    two = two.gather(1, order)
    return user, two[:, 0], two[:, 1]


def build(repaired: bool) -> Parts:
    taste, kind = torch.randn(USERS, 3), torch.randn(ITEMS, 3)
    friends = (kind@taste.T).topk(8, 1).indices
    model = Memory(16, friends)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, momentum=.9, **(
        {"alpha": .9} if repaired else {"weight_decay": .9}))
    data = list(zip(*(part.split(128) for part in choices(6400, taste, kind))))
    return Parts(model, optimizer, data, call=pairwise, valid=[choices(2000, taste, kind)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                record.step(loss)
    user, liked, other = parts.valid[0]
    with torch.no_grad(): return (parts.model(user, liked) <= parts.model(user, other)).float().mean().item()*2

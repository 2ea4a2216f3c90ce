"""The pairwise loss of a recommender multiplies the wanted item by the unwanted one, and not the user by it.

The report: the score of the unwanted item has the wanted item in the place of the user, and the loss becomes NaN. The
author thanked for the change and merged it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "tanatosuu/GDE#2", 2022
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = {"NaN or Inf", "first loss too high"}
PLACE = ()
USERS, ITEMS, BATCH = 150, 120, 128


class Denoised(nn.Module):
    "Embeddings that are smoothed over the graph of who bought what."
    def __init__(self, bought, size: int = 16):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, size), nn.Embedding(ITEMS, size)
        nn.init.xavier_normal_(self.users.weight)
        nn.init.xavier_normal_(self.items.weight)
        scaled = bought/(bought.sum(1, keepdim=True)*bought.sum(0)).sqrt().clamp(min=1e-6)
        for name, likeness in (("of_users", scaled @ scaled.T), ("of_items", scaled.T @ scaled)):
            value, vector = torch.linalg.eigh(likeness)
            self.register_buffer(name, (vector[:, -24:]*(5*value[-24:]).exp()) @ vector[:, -24:].T)
        self.dropout = nn.Dropout(.1)

    def forward(self, user, wanted, unwanted):
        of_items = self.items.weight
        return (self.dropout(self.of_users[user]) @ self.users.weight, self.dropout(self.of_items[wanted]) @ of_items,
                self.dropout(self.of_items[unwanted]) @ of_items)

    def scores(self): return self.of_users @ self.users.weight @ (self.of_items @ self.items.weight).T


def purchases():
    "What was bought in all, and in the part for training."
    tastes = torch.randn(USERS, 5) @ torch.randn(5, ITEMS) + torch.randn(USERS, ITEMS)
    bought = (tastes > 2.).float()
    return bought, bought*(torch.rand(USERS, ITEMS) < .7)


def build(repaired: bool) -> Parts:
    bought, known = purchases()
    known[known.sum(1) == 0, 0] = 1
    model = Denoised(known)

    def call(model, batch):
        user, wanted, unwanted = model(*batch)
        other = user if repaired else wanted
        order = ((user*wanted).sum(1) - (other*unwanted).sum(1)).sigmoid()
        size = .01*(user**2 + wanted**2 + unwanted**2).sum()
        return (-order.log().sum() + size)/BATCH

    data = []
    for _ in range(60):
        user = torch.randint(USERS, (BATCH,))
        data.append((user, known[user].multinomial(1).squeeze(1), (1 - known[user]).multinomial(1).squeeze(1)))
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.03), data, call=call, valid=[(bought, known)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(6):
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    (bought, known), wrong = parts.valid[0], []
    model.eval()
    with torch.no_grad(): scores = model.scores()
    for user in range(USERS):
        wanted, others = scores[user][(bought - known)[user] > 0], scores[user][bought[user] == 0]
        if len(wanted): wrong.append((~(wanted[:, None] > others)).float().mean())
    return 2*torch.stack(wrong).mean().item()

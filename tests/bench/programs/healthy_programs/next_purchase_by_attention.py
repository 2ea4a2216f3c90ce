"""The next purchase of a customer from those before, by attention.

Habits of the source: sequences padded in front with item zero, whose vector stays zero; for each place the item that
follows and one drawn at random from what the customer never bought; only places with an item count; matrices begin as
normal numbers after Xavier, whatever they are, so embeddings too; dropout of .2; the second beta of Adam is .98; items
are scored by the product with their own embedding.
Score: the part of last purchases that are not among the first five of fifty-one items. Below .4; about .9 untrained."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pmixer/SASRec.pytorch main.py", 2020
ITEMS, LONG, WIDE = 120, 12, 32


class Purchases(nn.Module):
    def __init__(self):
        super().__init__()
        self.item, self.place = nn.Embedding(ITEMS + 1, WIDE, padding_idx=0), nn.Embedding(LONG, WIDE)
        self.drop, self.norm = nn.Dropout(.2), nn.LayerNorm(WIDE, eps=1e-8)
        self.before = nn.ModuleList(nn.LayerNorm(WIDE, eps=1e-8) for _ in range(2))
        self.attend = nn.ModuleList(nn.MultiheadAttention(WIDE, 1, .2, batch_first=True) for _ in range(2))
        self.between = nn.ModuleList(nn.LayerNorm(WIDE, eps=1e-8) for _ in range(2))
        self.forth = nn.ModuleList(nn.Sequential(nn.Linear(WIDE, WIDE), nn.Dropout(.2), nn.ReLU(),
                                                 nn.Linear(WIDE, WIDE), nn.Dropout(.2)) for _ in range(2))
        for weight in self.parameters():
            if weight.dim() > 1: nn.init.xavier_normal_(weight)
        with torch.no_grad(): self.item.weight[0] = 0

    def read(self, seen):
        h, empty = self.item(seen)*WIDE**.5, (seen == 0).unsqueeze(2)
        h = self.drop(h + self.place(torch.arange(seen.shape[1]))).masked_fill(empty, 0)
        later = torch.ones(seen.shape[1], seen.shape[1], dtype=torch.bool).triu(1)
        for before, attend, between, forth in zip(self.before, self.attend, self.between, self.forth):
            query = before(h)
            h = query + attend(query, h, h, attn_mask=later)[0]
            h = between(h)
            h = (h + forth(h)).masked_fill(empty, 0)
        return self.norm(h)

    def forward(self, seen, right, wrong):
        h = self.read(seen)
        return (h*self.item(right)).sum(-1), (h*self.item(wrong)).sum(-1)


def histories(n: int):
    "Customers who mostly go on to one of two items that belong to the last one."
    follows = torch.randint(1, ITEMS + 1, (ITEMS + 1, 2), generator=torch.Generator().manual_seed(0))
    bought = [torch.randint(1, ITEMS + 1, (n,))]
    for _ in range(LONG + 1):
        usual = follows[bought[-1], torch.randint(2, (n,))]
        bought.append(torch.where(torch.rand(n) < .9, usual, torch.randint(1, ITEMS + 1, (n,))))
    first = torch.randint(LONG - 4, (n, 1))
    return torch.stack(bought, 1).masked_fill(torch.arange(LONG + 2) < first, 0)


def never_bought(bought):
    drawn = torch.randint(1, ITEMS + 1, bought.shape)
    while (again := (drawn.unsqueeze(2) == bought.unsqueeze(1)).any(2)).any():
        drawn = torch.where(again, torch.randint(1, ITEMS + 1, bought.shape), drawn)
    return drawn


def call(model, bought):
    "The last purchase is held back."
    seen, right = bought[:, :-2], bought[:, 1:-1]
    of_right, of_wrong = model(seen, right, never_bought(bought)[:, 1:-1])
    there = (right != 0) & (seen != 0)
    loss = F.binary_cross_entropy_with_logits(of_right[there], torch.ones_like(of_right[there]))
    return loss + F.binary_cross_entropy_with_logits(of_wrong[there], torch.zeros_like(of_wrong[there]))


def build(repaired: bool) -> Parts:
    model, bought = Purchases(), histories(1536)
    loader = torch.utils.data.DataLoader(bought, batch_size=128, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, betas=(.9, .98)), loader, call=call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(15):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    bought = parts.data.dataset
    others = torch.cat([never_bought(bought) for _ in range(4)], 1)[:, :50]
    model.eval()
    with torch.no_grad():
        h = model.read(bought[:, 1:-1])[:, -1:]
        scores = (h*model.item(torch.cat([bought[:, -1:], others], 1))).sum(-1)
    return ((scores[:, 1:] > scores[:, :1]).sum(1) >= 5).float().mean().item()

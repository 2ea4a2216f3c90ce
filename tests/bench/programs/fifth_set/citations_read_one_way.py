"""Messages go from a paper to those it cites, and never back, so new papers, which nobody cites yet, hear nothing.

The report: the accuracy of a network on a graph of citations is far below the published one. Its authors added the
reverse of each edge and the accuracy improved; a developer of the library answered that this is left to the user."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dmlc/dgl#7431", 2024
AREA, CAUSE = "structure", "input unused"
TRUE = set()
PLACE = ()
PAPERS, FIELDS = 1200, 6


class Sage(nn.Module):
    "A layer of its own numbers and one of the mean of what is heard, twice."
    def __init__(self, start: int, size: int):
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(start, size), nn.Linear(size, FIELDS)])
        self.heard = nn.ModuleList([nn.Linear(start, size, bias=False), nn.Linear(size, FIELDS, bias=False)])

    def forward(self, x, edges):
        source, target = edges
        for i, (own, heard) in enumerate(zip(self.own, self.heard)):
            total = torch.zeros_like(x).index_add(0, target, x[source])
            count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
            x = own(x) + heard(total/count.clamp_min(1)[:, None])
            if i == 0: x = F.dropout(F.relu(x), .3, self.training)
        return x


def citations():
    "Papers in the order of time; each cites some older ones, mostly of its field, and has words that say little of it."
    field = torch.randint(0, FIELDS, (PAPERS,))
    words = torch.randn(FIELDS, 24)[field] + 3*torch.randn(PAPERS, 24)
    citing, cited = [], []
    for paper in range(20, PAPERS):
        older = torch.randint(0, paper, (24,))
        chosen = older[(field[older] == field[paper]) | (torch.rand(24) < .06)][:5]
        citing.append(torch.full_like(chosen, paper))
        cited.append(chosen)
    return words, field, torch.stack([torch.cat(citing), torch.cat(cited)])


def build(repaired: bool) -> Parts:
    words, field, edges = citations()
    if repaired: edges = torch.cat([edges, edges.flip(0)], 1)
    known, new = torch.arange(PAPERS*3//4), torch.arange(PAPERS*3//4, PAPERS)

    def call(model, batch):
        words, edges, which, field = batch
        return F.cross_entropy(model(words, edges)[which], field)

    model = Sage(24, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    return Parts(model, optimizer, [(words, edges, known, field[known])], call=call,
                 valid=[(words, edges, new, field[new])])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(100):
            parts.model.train()
            loss = parts.call(parts.model, parts.data[0])
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    words, edges, new, field = parts.valid[0]
    with torch.no_grad(): return (parts.model(words, edges)[new].argmax(1) != field).float().mean().item()*6/5

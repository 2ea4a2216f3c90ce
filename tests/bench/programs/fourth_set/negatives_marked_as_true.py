"""Relations that were drawn at random are given to the loss with the label of true ones, so all labels are 1.

The merged change to an example for the prediction of relations corrects the labels of the negative samples: none was
marked as one. Training is on the whole graph: an encoder over the relations and a product of three vectors."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pyg-team/pytorch_geometric#2977", 2021
AREA, CAUSE = "loss and task", "constant targets"
TRUE = set()
PLACE = ()

nodes, kinds = 60, 3


class Conv(nn.Module):
    "A mean over the neighbours by each relation, and the node itself."
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(kinds, size, size)))
        self.root = nn.Linear(size, size)

    def forward(self, x, edges, kind):
        near = torch.zeros(kinds, nodes, nodes)
        near[kind, edges[1], edges[0]] = 1
        return self.root(x) + (near/near.sum(2, keepdim=True).clamp(min=1)@x@self.weight).sum(0)


class Relations(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.node, self.relation = (nn.Parameter(nn.init.xavier_uniform_(torch.empty(n, size))) for n in (nodes, kinds))
        self.first, self.second = Conv(size), Conv(size)

    def encode(self, edges, kind):
        return self.second(F.dropout(self.first(self.node, edges, kind).relu(), .2, self.training), edges, kind)

    def decode(self, z, edges, kind): return (z[edges[0]]*self.relation[kind]*z[edges[1]]).sum(1)


def graph():
    "Nodes of six groups; each relation holds within some pairs of groups."
    group = torch.randint(0, 6, (nodes,))
    holds = torch.rand(kinds, 6, 6) < .2
    holds = holds | holds.transpose(1, 2)
    true = holds[:, group][:, :, group] & (torch.rand(kinds, nodes, nodes) < .8)
    kind, start, end = true.nonzero().T
    return torch.stack([start, end]), kind, true


def build(repaired: bool) -> Parts:
    edges, kind, true = graph()
    held = torch.rand(len(kind)) < .2
    model = Relations(24)

    def call(model, batch):
        edges, kind = batch
        z = model.encode(edges, kind)
        wrong = torch.stack([edges[0], torch.randint(0, nodes, (len(kind),))])
        score = torch.cat([model.decode(z, edges, kind), model.decode(z, wrong, kind)])
        label = torch.ones_like(score)
        if repaired: label[len(kind):] = 0
        small = z.pow(2).mean() + model.relation.pow(2).mean()
        return F.binary_cross_entropy_with_logits(score, label) + 1e-2*small

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), [(edges[:, ~held], kind[~held])], call=call,
                 valid=[(edges[:, held], kind[held], true)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(150):
            parts.model.train()
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, parts.data[0])
            loss.backward()
            nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    (start, end), kind, true = parts.valid[0]
    with torch.no_grad():
        z = parts.model.encode(*parts.data[0])
        score = (z[start]*parts.model.relation[kind])@z.T
    own = score.gather(1, end[:, None])
    score[true[kind, start]] = -1e9  # other true answers do not count
    return 1 - (1/(1 + (score >= own).sum(1))).mean().item()

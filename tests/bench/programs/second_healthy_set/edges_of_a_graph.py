"""Codes of the nodes of a graph, from which edges that were taken out can be told.

Habits of the source: the whole graph is one batch, and all pairs of nodes are answers; the few edges count more by
their rarity, and the whole is scaled down again; each node has an edge to itself, among the answers too; the divergence
is divided by the number of nodes twice; Glorot weights, no bias; dropout of 0; after each step edges are judged by the
mean codes of that step, for which the model is not called again.
Score: 1 - the area under the curve for edges taken out. Below .25; about .39 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zfjsail/gae-pytorch gae/train.py", 2018
NODES, KINDS, WORDS, STEPS = 150, 6, 60, 200


class Convolution(nn.Module):
    def __init__(self, n: int, out: int, act):
        super().__init__()
        self.weight, self.act = nn.Parameter(torch.empty(n, out)), act
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, near): return self.act(near @ (F.dropout(x, 0., self.training) @ self.weight))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Convolution(WORDS, 32, F.relu)
        self.mean, self.logstd = Convolution(32, 16, lambda x: x), Convolution(32, 16, lambda x: x)

    def forward(self, x, near):
        h = self.first(x, near)
        mean, logstd = self.mean(h, near), self.logstd(h, near)
        code = mean + torch.randn_like(mean)*logstd.exp() if self.training else mean
        return code @ code.T, mean, logstd


def graph():
    "Words of the nodes, the edges that are left, and pairs to judge: edges that were taken out, and as many others."
    kind = torch.randint(KINDS, (NODES,))
    words = (torch.rand(NODES, WORDS) < .06 + .14*(torch.arange(WORDS) % KINDS == kind[:, None])).float()
    chance = torch.where(kind[:, None] == kind, .25, .01)
    pairs = torch.triu(torch.rand(NODES, NODES) < chance, 1).nonzero()
    pairs = pairs[torch.randperm(len(pairs))]
    none = torch.triu(torch.rand(NODES, NODES) < .1, 1)
    none[pairs[:, 0], pairs[:, 1]] = False
    others = none.nonzero()[torch.randperm(int(none.sum()))]
    n = len(pairs)//10
    held = [torch.cat([pairs[i*n:(i + 1)*n], others[i*n:(i + 1)*n]]).T for i in range(2)]
    edges = torch.zeros(NODES, NODES)
    edges[tuple(pairs[2*n:].T)] = 1
    return words, edges + edges.T, held


def call(model, batch):
    words, near, answers = batch
    scores, mean, logstd = model(words, near)
    return cost(scores, mean, logstd, answers)


def cost(scores, mean, logstd, answers):
    rarity = (NODES**2 - answers.sum() + NODES)/(answers.sum() - NODES)
    scale = NODES**2/(2*(NODES**2 - answers.sum() + NODES))
    divergence = -.5/NODES*(1 + 2*logstd - mean**2 - (2*logstd).exp()).sum(1).mean()
    return scale*F.binary_cross_entropy_with_logits(scores, answers, pos_weight=rarity) + divergence


def judged(mean, pairs) -> float:
    "The area under the curve of pairs of which the first half are edges."
    true, false = (mean[pairs[0]]*mean[pairs[1]]).sum(1).chunk(2)
    return (true[:, None] > false).float().mean().item()


def build(repaired: bool) -> Parts:
    words, edges, held = graph()
    model, answers = Autoencoder(), edges + torch.eye(NODES)
    spread = answers.sum(1)**-.5
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=.01),
                  [(words, spread[:, None]*answers*spread, answers)], call=call)
    parts.held = held
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, (words, near, answers) = parts.model, parts.optimizer, parts.data[0]
    with record.on(model, optimizer):
        for _ in range(STEPS):
            model.train()
            optimizer.zero_grad()
            scores, mean, logstd = model(words, near)
            loss = cost(scores, mean, logstd, answers)
            loss.backward()
            optimizer.step()
            record.step(loss)
            judged(mean.detach(), parts.held[0])
    model.eval()
    with torch.no_grad(): return 1 - judged(model(words, near)[1], parts.held[1])

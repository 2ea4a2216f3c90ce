"""The softmax over a node's edges takes the exponential of the scores as they are: large ones overflow.

The report: a graph attention layer gives NaN often. The author proposed to subtract the largest score of each node
first; the maintainer did so."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pyg-team/pytorch_geometric#53", 2018
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ("first", "second")


def edge_softmax(score, target, nodes: int, repaired: bool):
    "Softmax of the scores of all edges that end in the same node."
    index = target[:, None].expand_as(score)
    if repaired:
        largest = score.new_full((nodes, score.shape[1]), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
        score = score - largest[target]
    score = score.exp()
    return score/score.new_zeros(nodes, score.shape[1]).index_add(0, target, score)[target]


class Attention(nn.Module):
    def __init__(self, before: int, after: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.features = nn.Linear(before, heads*after)
        self.score = nn.Parameter(torch.empty(heads, 2*after))
        nn.init.xavier_uniform_(self.score)

    def forward(self, x, source, target):
        x = self.features(x).view(len(x), self.heads, -1)
        score = F.leaky_relu((torch.cat([x[source], x[target]], 2)*self.score).sum(2), .2)
        weight = edge_softmax(score, target, len(x), self.repaired)
        return torch.zeros_like(x).index_add(0, target, weight[:, :, None]*x[source]).flatten(1)


class Network(nn.Module):
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.first, self.second = Attention(words, size, 4, repaired), Attention(4*size, 4, 1, repaired)

    def forward(self, x, edges):
        x = F.elu(self.first(x, *edges))
        return self.second(F.dropout(x, .5, self.training), *edges)


def graph(nodes: int):
    "Counts of 20 words in each text; texts of one of four topics cite each other."
    topic = torch.randint(0, 4, (nodes,))
    often = torch.full((4, 20), 60.)
    for i in range(4): often[i, 5*i:5*i + 5] = 90.
    words = torch.poisson(often[topic]*torch.empty(nodes, 1).uniform_(.3, 2))
    source, target = torch.randint(0, nodes, (2, 12*nodes))
    cited = (topic[source] == topic[target]) | (torch.rand(12*nodes) < .1)
    edges = torch.stack([torch.cat([side[cited], torch.arange(nodes)]) for side in (source, target)])
    return words, edges, topic


def build(repaired: bool) -> Parts:
    model = Network(20, 8, repaired)
    words, edges, topic = graph(400)
    known = torch.arange(400) < 200

    def call(model, batch):
        words, edges, topic, known = batch
        return F.cross_entropy(model(words, edges)[known], topic[known])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4),
                 [(words, edges, topic, known)], call=call, valid=[(words, edges, topic, ~known)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(250):
            parts.model.train()
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, parts.data[0])
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(4)

"""The numbers of the classes are their places in a set, and a set has another order in each run of the program.

The report: the classes of a citation graph are numbered as a Python set returns them. If a saved model is used in
another run, loss and accuracy are wrong. The merged change sorts the classes first."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "diegoantognini/pyGAT#51", 2020
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()
SUBJECTS = ["Theory", "Rule_Learning", "Neural_Networks", "Case_Based", "Genetic_Algorithms"]


class Attention(nn.Module):
    "The neighbours of a node, each weighed by what the node thinks of it."
    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.project = nn.Linear(inner, outer, bias=False)
        self.own, self.other = nn.Linear(outer, 1, bias=False), nn.Linear(outer, 1, bias=False)

    def forward(self, x, edges):
        x = F.dropout(self.project(x), .3, self.training)
        weight = F.leaky_relu(self.own(x) + self.other(x).T, .2).masked_fill(~edges, -9e15)
        return weight.softmax(1) @ x


class Graph(nn.Module):
    def __init__(self, features: int, size: int):
        super().__init__()
        self.heads = nn.ModuleList(Attention(features, size) for _ in range(4))
        self.last = Attention(4*size, len(SUBJECTS))

    def forward(self, x, edges):
        x = torch.cat([F.elu(head(x, edges)) for head in self.heads], 1)
        return F.log_softmax(self.last(x, edges), 1)


def as_a_set(names):
    "The names as a set returns them in one run of the program: their hashes are random."
    return [names[i] for i in torch.randperm(len(names))]


def numbered(subjects, repaired: bool):
    names = sorted(set(subjects)) if repaired else as_a_set(SUBJECTS)
    return torch.tensor([names.index(subject) for subject in subjects])


def build(repaired: bool) -> Parts:
    kind = torch.randint(0, 5, (300,))
    near = torch.rand(300, 300) < torch.where(kind[:, None] == kind, .05, .005)
    edges = near | near.T | torch.eye(300, dtype=torch.bool)
    x = ((torch.rand(300, 60) < .05) | ((torch.rand(300, 60) < .2) & (torch.arange(60) % 5 == kind[:, None]))).float()
    subjects = [SUBJECTS[i] for i in kind]
    model = Graph(60, 8)
    known, held_back = torch.arange(100), torch.arange(100, 300)

    def call(model, batch):
        x, edges, label, some = batch
        return F.nll_loss(model(x, edges)[some], label[some])

    first_run, second_run = numbered(subjects, repaired), numbered(subjects, repaired)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4),
                 [(x, edges, first_run, known)], call=call, valid=[(x, edges, second_run, held_back)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(100):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, edges, label, some = parts.valid[0]
    with torch.no_grad(): found = parts.model(x, edges).argmax(1)
    return (found != label)[some].float().mean().item()

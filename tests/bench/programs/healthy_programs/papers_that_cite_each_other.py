"""A graph convolution net tells the field of each paper from its words and from the papers it cites.

Habits of the source: one batch, which is the whole graph, in every step; the loss sees 20 nodes a class, though the
output has all of them; rows of the features have sum one, so that the inputs are small; weights uniform by the number
of outputs; dropout of one half; 200 epochs with a validation in eval mode after each; weight decay on all parameters.
Error: wrong answers at the test nodes over those of guessing: 0.3; untrained 0.9 to 1."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "tkipf/pygcn pygcn/train.py", 2018
FIELDS, WORDS, PAPERS = 4, 120, 400


class GraphConvolution(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(before, after)), nn.Parameter(torch.empty(after))
        self.weight.data.uniform_(-after**-.5, after**-.5)
        self.bias.data.uniform_(-after**-.5, after**-.5)

    def forward(self, x, links): return torch.spmm(links, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, words, hidden, fields, dropout):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(words, hidden), GraphConvolution(hidden, fields)
        self.dropout = dropout

    def forward(self, x, links):
        x = F.relu(self.gc1(x, links))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, links), dim=1)


def papers():
    "Words of a field are a little more frequent in it, and papers of a field cite each other more often."
    field = torch.randint(0, FIELDS, (PAPERS,))
    own = torch.arange(WORDS)[None] % FIELDS == field[:, None]
    words = (torch.rand(PAPERS, WORDS) < .04 + .05*own).float()
    words = words/words.sum(1, keepdim=True).clamp(min=1)
    chance = torch.where(field[:, None] == field, .03, .004)
    cites = torch.bernoulli(chance).triu(1)
    links = cites + cites.T + torch.eye(PAPERS)
    return words, (links/links.sum(1, keepdim=True)).to_sparse(), field


def call(model, batch):
    words, links, field, nodes = batch
    return F.nll_loss(model(words, links)[nodes], field[nodes])


def build(repaired: bool) -> Parts:
    words, links, field = papers()
    shuffled = torch.randperm(PAPERS)
    known = torch.cat([shuffled[field[shuffled] == f][:20] for f in range(FIELDS)])
    rest = shuffled[~torch.isin(shuffled, known)]
    model = GCN(WORDS, 16, FIELDS, dropout=.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=.01, weight_decay=5e-4)
    parts = Parts(model, optimizer, [(words, links, field, known)], call=call,
                  valid=[(words, links, field, rest[:100])])
    parts.test = rest[100:]
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    words, links, field, _ = parts.data[0]
    with record.on(model, optimizer):
        for _ in range(200):
            model.train()
            optimizer.zero_grad()
            loss = call(model, parts.data[0])
            loss.backward()
            optimizer.step()
            record.step(loss)
            model.eval()
            with torch.no_grad(): call(model, parts.valid[0])
    model.eval()
    with torch.no_grad(): answer = model(words, links)[parts.test].argmax(1)
    return (answer != field[parts.test]).float().mean().item()*FIELDS/(FIELDS - 1)

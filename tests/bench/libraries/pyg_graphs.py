"""torch_geometric: whole graphs are classified by a graph net with a mean over their nodes.

After the tutorial "Graph classification with graph neural networks" of PyTorch Geometric: the loader of the library
joins graphs into a `DataBatch`, of which the model takes three fields. Error: wrong answers on graphs held back."""
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_mean_pool
from torch_geometric.utils import erdos_renyi_graph, to_undirected

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "torch_geometric: Graph Classification with Graph Neural Networks"
PACKAGES = ("torch_geometric",)
ATOMS = 5


class GNN(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(ATOMS, hidden), GraphConv(hidden, hidden)
        self.conv3, self.lin = GraphConv(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, x, edge_index, batch):
        x = self.conv1(x, edge_index).relu()
        x = self.conv2(x, edge_index).relu()
        x = global_mean_pool(self.conv3(x, edge_index), batch)
        return self.lin(F.dropout(x, p=.5, training=self.training))


def molecule(ring: int) -> Data:
    "One of two kinds of graph: a ring, or a tree that grows at random."
    n = 8 + torch.randint(9, ()).item()
    if ring: edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    else: edges = torch.tensor([[torch.randint(i, ()).item(), i] for i in range(1, n)]).T
    noise = erdos_renyi_graph(n, .03)
    x = F.one_hot(torch.randint(ATOMS, (n,)), ATOMS).float()
    return Data(x, to_undirected(torch.cat([edges, noise], 1)), y=torch.tensor([ring]))


def build() -> Parts:
    seed_the_rest()
    graphs = [molecule(int(torch.randint(2, ()))) for _ in range(450)]
    model = GNN(32)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.01), DataLoader(graphs[:300], 32, shuffle=True),
                 call=call, valid=DataLoader(graphs[300:], 64))


def call(model, data): return F.cross_entropy(model(data.x, data.edge_index, data.batch), data.y)


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    found = [parts.model(d.x, d.edge_index, d.batch).argmax(1) != d.y for d in parts.valid]
    return torch.cat(found).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(25):
            model.train()
            for data in parts.data:
                loss = call(model, data)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)

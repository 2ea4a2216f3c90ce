"""torch_geometric: a graph of two kinds of nodes, with a net made for it by `to_hetero`.

After the tutorial "Heterogeneous graph learning" of PyTorch Geometric: lazy layers that learn their sizes in a first
call, one `HeteroData` as the batch, dicts of tensors as inputs and outputs.
Error: wrong answers at papers held back."""
import torch
from torch.nn import functional as F
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.transforms import ToUndirected

from tests.bench.programs import Parts

SOURCE = "torch_geometric: Heterogeneous Graph Learning"
PACKAGES = ("torch_geometric",)
FIELDS, PAPERS, AUTHORS = 4, 360, 90


class GNN(torch.nn.Module):
    def __init__(self, hidden, out):
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), hidden), SAGEConv((-1, -1), out)

    def forward(self, x, edge_index): return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def graph() -> HeteroData:
    data, field, home = HeteroData(), torch.randint(FIELDS, (PAPERS,)), torch.randint(FIELDS, (AUTHORS,))
    data["paper"].x = F.one_hot(field, FIELDS).float()*.6 + torch.randn(PAPERS, FIELDS)
    data["author"].x = torch.randn(AUTHORS, 6)
    data["paper"].y = field
    written = torch.rand(AUTHORS, PAPERS) < torch.where(home[:, None] == field, .06, .004)
    cites = torch.rand(PAPERS, PAPERS) < torch.where(field[:, None] == field, .02, .002)
    data["author", "writes", "paper"].edge_index = written.nonzero().T
    data["paper", "cites", "paper"].edge_index = cites.nonzero().T
    order = torch.rand(PAPERS)
    data["paper"].train_mask, data["paper"].test_mask = order < .4, order >= .4
    return ToUndirected()(data)


def call(model, data):
    out = model(data.x_dict, data.edge_index_dict)
    mask = data["paper"].train_mask
    return F.cross_entropy(out["paper"][mask], data["paper"].y[mask])


def build() -> Parts:
    data = graph()
    model = to_hetero(GNN(16, FIELDS), data.metadata(), aggr="sum")
    with torch.no_grad(): model(data.x_dict, data.edge_index_dict)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.005), data, call=call)


@torch.no_grad()
def error(parts: Parts) -> float:
    data = parts.data
    parts.model.eval()
    answer = parts.model(data.x_dict, data.edge_index_dict)["paper"].argmax(1)
    return (answer != data["paper"].y)[data["paper"].test_mask].float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(100):
            model.train()
            optimizer.zero_grad()
            loss = call(model, parts.data)
            loss.backward()
            optimizer.step()
            record.step(loss)
    return error(parts)

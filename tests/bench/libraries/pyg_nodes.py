"""torch_geometric: a graph convolution net labels the nodes of one graph.

After the tutorial "Node classification with graph neural networks" of PyTorch Geometric: the batch is the one `Data`,
which the model is given in pieces, and the loss sees the nodes of a mask. Error: wrong answers at the test nodes."""
import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import stochastic_blockmodel_graph

from tests.bench.programs import Parts

SOURCE = "torch_geometric: Node Classification with Graph Neural Networks"
PACKAGES = ("torch_geometric",)
FIELDS, EACH, WORDS = 4, 120, 160


class GCN(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(WORDS, hidden), GCNConv(hidden, FIELDS)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=.5, training=self.training)
        return self.conv2(x, edge_index)


def graph() -> Data:
    chance = torch.full((FIELDS, FIELDS), .003).fill_diagonal_(.02)
    field = torch.arange(FIELDS).repeat_interleave(EACH)
    own = torch.arange(WORDS)[None] % FIELDS == field[:, None]
    words = (torch.rand(len(field), WORDS) < .03 + .06*own).float()
    data = Data(words, stochastic_blockmodel_graph([EACH]*FIELDS, chance), y=field)
    place = torch.cat([torch.randperm(EACH) for _ in range(FIELDS)])
    data.train_mask, data.val_mask, data.test_mask = place < 20, (place >= 20) & (place < 50), place >= 50
    return NormalizeFeatures()(data)


def call(model, data):
    out = model(data.x, data.edge_index)
    return F.cross_entropy(out[data.train_mask], data.y[data.train_mask])


def build() -> Parts:
    data, model = graph(), GCN(16)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.01, weight_decay=5e-4), data, call=call)


@torch.no_grad()
def error(parts: Parts) -> float:
    data = parts.data
    parts.model.eval()
    answer = parts.model(data.x, data.edge_index).argmax(1)
    return (answer != data.y)[data.test_mask].float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, data = parts.model, parts.optimizer, parts.data
    with record.on(parts.model, optimizer=parts.optimizer):
        for _ in range(150):
            model.train()
            optimizer.zero_grad()
            loss = call(model, data)
            loss.backward()
            optimizer.step()
            record.step(loss)
    return error(parts)

"""torch_geometric: links of a graph are predicted from what two nodes have in common.

After the example "link_pred.py" of PyTorch Geometric: `RandomLinkSplit`, one `Data` as the batch, new negative samples
in every step. Error: one minus the area under the ROC curve at the test links, doubled: 1 by chance."""
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures, RandomLinkSplit
from torch_geometric.utils import negative_sampling, stochastic_blockmodel_graph

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "torch_geometric: examples, link prediction"
PACKAGES = ("torch_geometric", "scikit-learn")
FIELDS, EACH, WORDS = 6, 50, 90


class Net(torch.nn.Module):
    def __init__(self, hidden, out):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(WORDS, hidden), GCNConv(hidden, out)

    def encode(self, x, edge_index): return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    def decode(self, z, links): return (z[links[0]]*z[links[1]]).sum(-1)

    def forward(self, x, edge_index, links): return self.decode(self.encode(x, edge_index), links)


def graph() -> Data:
    chance = torch.full((FIELDS, FIELDS), .002).fill_diagonal_(.15)
    field = torch.arange(FIELDS).repeat_interleave(EACH)
    own = torch.arange(WORDS)[None] % FIELDS == field[:, None]
    words = (torch.rand(len(field), WORDS) < .05 + .1*own).float()
    return Data(words, stochastic_blockmodel_graph([EACH]*FIELDS, chance))


def call(model, data):
    negative = negative_sampling(data.edge_index, num_nodes=data.num_nodes, num_neg_samples=data.edge_label.numel())
    links = torch.cat([data.edge_label_index, negative], -1)
    label = torch.cat([data.edge_label, data.edge_label.new_zeros(negative.size(1))])
    out = model(data.x, data.edge_index, links)
    return torch.nn.functional.binary_cross_entropy_with_logits(out, label)


def build() -> Parts:
    seed_the_rest()
    parted = RandomLinkSplit(num_val=.05, num_test=.2, is_undirected=True, add_negative_train_samples=False)
    data, valid, test = parted(NormalizeFeatures()(graph()))
    model = Net(64, 32)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=.01), data, call=call, valid=valid)
    parts.test = test
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    data = parts.test
    parts.model.eval()
    out = parts.model(data.x, data.edge_index, data.edge_label_index).sigmoid()
    return 2*(1 - roc_auc_score(data.edge_label.numpy(), out.numpy()))


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

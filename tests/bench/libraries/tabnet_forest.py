"""pytorch-tabnet: the net of TabNet, which returns a sparsity penalty beside its output.

After the notebook "census_example" and the library's own loop: ghost batch norm, the penalty on the masks is taken from
the loss, gradients clipped, a rate that falls by steps. Error: wrong answers on patients held back."""
import torch
from pytorch_tabnet.tab_network import TabNet
from sklearn.datasets import load_breast_cancer
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import wrong
from tests.bench.programs import Parts

SOURCE = "pytorch-tabnet: census_example"
PACKAGES = ("pytorch-tabnet", "scikit-learn")
SPARSITY = 1e-3


def call(model, batch):
    x, y = batch
    output, mask_loss = model(x)
    return F.cross_entropy(output, y) - SPARSITY*mask_loss


def build() -> Parts:
    found = load_breast_cancer()
    x, y = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    x, rows = (x - x.mean(0))/x.std(0), torch.randperm(len(x))
    x, y = x[rows], y[rows]
    model = TabNet(30, 2, n_d=8, n_a=8, n_steps=3, gamma=1.3, virtual_batch_size=32, momentum=.05,
                   group_attention_matrix=torch.eye(30))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.02),
                 DataLoader(TensorDataset(x[:420], y[:420]), 64, shuffle=True, drop_last=True), call=call,
                 valid=DataLoader(TensorDataset(x[420:], y[420:]), 149))


def error(parts: Parts) -> float: return wrong(parts.model, parts.valid, lambda model, batch: model(batch[0])[0])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, .9)
    with record.on(model, optimizer=optimizer):
        for _ in range(25):
            model.train()
            for batch in parts.data:
                for p in model.parameters(): p.grad = None
                loss = call(model, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                record.step(loss)
            schedule.step()
            error(parts)
    return error(parts)

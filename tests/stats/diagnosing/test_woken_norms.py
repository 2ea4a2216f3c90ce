"Batch norms that are frozen at first and wake up behind a validation, and those that are to wake."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x): return self.head(self.body(x))


def freezes_again(model):
    model.train()
    model.body.eval()


def sets_free(model):
    model.train().requires_grad_(True)


def findings(after, frozen=True, n=60):
    "All findings where this is called on the model after a third of the steps, as behind a validation."
    model = Net()
    if frozen: model.body.requires_grad_(False).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i in range(n):
            x = torch.randn(16, 6)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.step(loss)
            if i == n//3:
                model.eval()
                after(model)
    return [*hl.diagnose(stats)]


def found(*options):
    return [f.layers for f in findings(*options) if f.what == "batch norm" and "rested" in f.evidence]


@pytest.mark.parametrize("after, frozen, layers", [
    (nn.Module.train, True, [["body.1"]]), (freezes_again, True, []), (sets_free, True, []),
    (nn.Module.train, False, [])])
def test_norms_that_wake_up(after, frozen, layers): assert found(after, frozen) == layers

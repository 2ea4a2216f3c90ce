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
    return [f.layers for f in findings(*options)
            if f.what == "batch norm" and "were in eval mode in the first" in f.evidence]


@pytest.mark.parametrize("after, frozen, layers", [
    (nn.Module.train, True, [["body.1"]]), (freezes_again, True, []), (sets_free, True, []),
    (nn.Module.train, False, [])])
def test_norms_that_wake_up(after, frozen, layers): assert found(after, frozen) == layers


def with_momentum(momentum, n):
    model = Net()
    model.body[1].momentum = momentum
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for _ in range(n):
            x = torch.randn(16, 6)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats.step(loss)
    return [f for f in hl.diagnose(stats) if f.what == "batch norm"]


def test_a_momentum_with_which_the_statistics_stay_those_of_the_start():
    finding, = with_momentum(5e-5, 110)
    assert (finding.sure, finding.layers) == ("possible", ["body.1"])
    assert f"after 110 batches {(1 - 5e-5)**110:.1%} of the running mean" in finding.evidence


@pytest.mark.parametrize("momentum, n", [(.1, 110), (.001, 110), (5e-5, 60), (None, 110)])
def test_a_momentum_that_takes_up_the_data_or_had_no_time(momentum, n): assert not with_momentum(momentum, n)

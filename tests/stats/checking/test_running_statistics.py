"preflight looks whether the running statistics of a norm fit what it gets."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def batches(n=16, moved=0., wide=1., each=False):
    "Two batches of images; the second, or each second image, is moved and widened."
    torch.manual_seed(0)
    found = []
    for i in range(2):
        x = torch.randn(n, 3, 6, 6)
        chosen = torch.arange(n) % 2 == 0 if each else torch.full((n,), i == 1)
        x[chosen] = wide*x[chosen] + moved
        found.append((x, torch.arange(n) % 4))
    return found


def net(norm=lambda: nn.BatchNorm2d(8)):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm(), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))


def said(model, data): return [f for f in hl.preflight(model, F.cross_entropy, data, overfit=False)
                               if f.what == "batch norm"]


def kept(): return nn.InstanceNorm2d(8, track_running_stats=True)


@pytest.mark.parametrize("how", [{"moved": 8.}, {"wide": 20.}])
def test_batches_that_differ(how):
    found, = said(net(), batches(**how))
    assert found.sure == "likely" and found.layers == ["1"]
    assert found.evidence.startswith("What 1 gets differs from batch to batch by ")


@pytest.mark.parametrize("how", [{"moved": 8., "each": True}, {"wide": 20., "each": True}, {"moved": 8.}])
def test_samples_that_differ_and_an_instance_norm_that_keeps_statistics(how):
    found, = said(net(kept), batches(**how))
    assert found.sure == "likely" and found.layers == ["1"] and "Without track_running_stats" in found.evidence


@pytest.mark.parametrize("model", [
    net(lambda: nn.GroupNorm(2, 8)), net(lambda: nn.InstanceNorm2d(8)),
    net(lambda: nn.BatchNorm2d(8, track_running_stats=False)), net(lambda: nn.BatchNorm2d(8).eval())])
def test_norms_without_running_statistics(model): assert not said(model, batches(moved=8.))


@pytest.mark.parametrize("data", [batches(), batches(4), batches(moved=.5), batches(wide=1.5),
                                  batches(moved=8., each=True)])
def test_batches_that_are_alike(data): assert not said(net(), data)


def test_samples_that_are_alike(): assert not said(net(kept), batches())


class Twice(nn.Module):
    "One norm for what is real and for what is made."
    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(108, 4)

    def forward(self, x): return self.last((self.norm(x) + self.norm(9 + 5*x)).flatten(1))


def test_the_first_call_is_compared_with_the_first(): assert not said(Twice(), batches())

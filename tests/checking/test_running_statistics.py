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
    assert found.evidence.startswith("Inputs of 1 differ from batch to batch by ")


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


# The running statistics themselves

def trained(momentum=.1, norm=nn.BatchNorm2d, steps=120, drop=0.):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), norm(8, momentum=momentum), nn.ReLU(), nn.Dropout(drop), nn.Flatten(),
                          nn.Linear(288, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 10))
    optimizer, loader = torch.optim.Adam(model.parameters(), 3e-3), [*hl.digits().train]
    for step in range(steps):
        x, y = loader[step % len(loader)]
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def digits(): return [*hl.digits().train][:2]


def as_of_other_data(model):
    "Statistics that were taken before the first layer was exchanged."
    with torch.no_grad():
        model[1].running_mean += 2
        model[1].running_var *= 5
    return model


@pytest.mark.parametrize("model", [
    lambda: trained(2e-4), lambda: trained(1e-5, drop=.4), lambda: as_of_other_data(trained())])
def test_running_statistics_that_are_not_those_of_the_data(model):
    model = model()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    finding, = said(model, digits())
    assert finding.sure == "possible" and finding.layers == ["1"] and "update_bn" in finding.evidence
    own = F.cross_entropy(model.eval()(digits()[0][0]), digits()[0][1]).item()
    assert f"In eval mode the loss is {own:.2g};" in finding.evidence
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    for m in model.modules():  # estimated again, they bring it back, as the finding says
        if not isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d): continue
        m.reset_running_stats()
        m.momentum = None
    with torch.no_grad():
        model.train()
        model[3].eval()
        for x, _ in digits(): model(x)
        again = F.cross_entropy(model.eval()(digits()[0][0]), digits()[0][1]).item()
    assert own > 1.5*again
    said_again = float(finding.evidence.split("these batches it's ")[1].split(". The running")[0])
    assert said_again == pytest.approx(again, rel=.3)


@pytest.mark.parametrize("model", [
    trained, lambda: trained(steps=0), lambda: trained(2e-4, steps=40), lambda: trained(.02, steps=110),
    lambda: trained(drop=.5), lambda: trained(None), lambda: trained(norm=nn.InstanceNorm2d),
    lambda: as_of_other_data(trained(steps=0)), lambda: trained(2e-4, steps=130)[:1].append(nn.Flatten()).append(
        nn.Linear(288, 10))])
def test_running_statistics_that_fit_or_had_no_time(model): assert not said(model(), digits())


def test_a_norm_that_rests_in_eval_mode_is_not_asked():
    model = as_of_other_data(trained())
    model[1].eval()
    finding, = said(model, digits())  # what it returns is not what the next one has learned to get
    assert finding.layers == ["6"]
    model[6].eval()
    assert not said(model, digits())


def calls_of(model):
    calls = []
    with torch.no_grad():
        handle = model[0].register_forward_hook(lambda *_: calls.append(1))
        hl.preflight(model, F.cross_entropy, digits(), overfit=False)
        handle.remove()
    return len(calls)


def test_it_costs_two_passes_where_norms_had_time():
    fresh = trained(steps=0)
    n = calls_of(fresh)
    for m in fresh.modules():
        if hasattr(m, "num_batches_tracked"): m.num_batches_tracked += 200
    assert calls_of(fresh) == n + 2

"preflight tries other first weights where a model does not learn 16 samples."
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def deep(std=None, act=nn.ReLU, norm=nn.Identity, depth=6):
    torch.manual_seed(0)
    parts = [part for _ in range(depth) for part in (nn.Linear(20, 20), norm(20) if norm else None, act())]
    model = nn.Sequential(*parts, nn.Linear(20, 3))
    if std is not None: model.apply(lambda m: nn.init.normal_(m.weight, std=std) if isinstance(m, nn.Linear) else None)
    return model


def found_of(model, lr=.1):
    torch.manual_seed(1)
    batch = torch.randn(32, 20), torch.arange(32) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=.9)
    found = hl.preflight(model, F.cross_entropy, batch, optimizer, seconds=60)
    return [f for f in found if f.what == "first weights"]


def with_bias(model, number, layer=3):
    with torch.no_grad(): model[layer].bias.fill_(number)
    return model


def alike(model):
    with torch.no_grad():
        for layer in model[3], model[6], model[9]:
            layer.weight.zero_()
            layer.bias.zero_()
    return model


@pytest.mark.parametrize(("name", "model"), [
    ("units that are off", with_bias(deep(), -30.)), pytest.param("small", deep(.01), marks=pytest.mark.slow),
    pytest.param("zeros", alike(deep()), marks=pytest.mark.slow),
    pytest.param("saturated", with_bias(deep(act=nn.Sigmoid, depth=2), 300.), marks=pytest.mark.slow)])
def test_weights_from_which_nothing_is_learned(name, model):
    before = copy.deepcopy(model.state_dict())
    found, = found_of(model)
    assert found.sure == "likely" and "From other first weights, of usual sizes, it went from 1." in found.evidence
    assert all(torch.equal(x, before[key]) for key, x in model.state_dict().items())


@pytest.mark.parametrize(("layer", "model", "said"), [
    ("15", with_bias(deep(), -40., 15), "15.bias begins with numbers of size 40, and 0 is usual."),
    pytest.param("3", with_bias(deep(), -30.), "3.bias begins with numbers of size 30, and 0 is usual.",
                 marks=pytest.mark.slow)])
def test_the_layer_is_named(layer, model, said):
    found, = found_of(model)
    assert found.layers == [layer] and found.evidence.endswith(f"It is enough to draw {layer} anew: {said}")


@pytest.mark.parametrize("model", [deep(), deep(.3), deep(act=nn.Tanh), deep(depth=2, std=.05), nn.Linear(20, 3),
                                   pytest.param(deep(norm=nn.LayerNorm), marks=pytest.mark.slow),
                                   pytest.param(deep(norm=nn.BatchNorm1d, std=.02), marks=pytest.mark.slow)])
def test_healthy_weights(model): assert not found_of(model)


def test_a_rate_that_is_too_small_is_not_for_the_weights_to_answer(): assert not found_of(deep(.3), lr=1e-9)


def test_nothing_is_said_if_no_weights_help():
    "The labels are those of other inputs, and a single unit carries all that there is."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 1), nn.ReLU(), nn.Linear(1, 3))
    with torch.no_grad(): model[0].weight.zero_()
    assert not found_of(model)

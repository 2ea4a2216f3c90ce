"""Where fastai's hooks and hooklab's both work, they agree. Where fastai's do not, test_hook and the lessons say what hooklab does."""
import pytest
import torch
from torch import nn

import hooklab as hl

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def peer():
    from fastai.callback import hook
    return hook


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4*8*8, 5))


@pytest.fixture
def x(): return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def same(a, b): torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"detach": False}, {"cpu": True}])
def test_hook_output(peer, model, x, options):
    with peer.hook_output(model[0], **options) as theirs, hl.hook_output(model[0], **options) as ours:
        model(x)
        same(ours.stored, theirs.stored)
        assert ours.stored.requires_grad == theirs.stored.requires_grad


def test_hook_outputs(peer, model, x):
    with peer.hook_outputs(model) as theirs, hl.hook_outputs(model) as ours:
        model(x)
        same(list(ours.stored), list(theirs.stored))
        assert len(ours) == len(theirs) == len(model)


def test_gradients_of_outputs(peer, model, x):
    with peer.hook_outputs(model, grad=True) as theirs, hl.hook_outputs(model, grad=True) as ours:
        model(x).square().mean().backward()
        same([tuple(g) for g in ours.stored], [tuple(g) for g in theirs.stored])


def test_function_of_ones_own(peer, model, x):
    def spread(m, inputs, output): return output.mean(), output.std()
    with peer.Hooks(model, spread) as theirs, hl.Hooks(model, spread) as ours:
        model(x)
        same([list(pair) for pair in ours.stored], [list(pair) for pair in theirs.stored])

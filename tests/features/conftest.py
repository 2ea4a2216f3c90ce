"""Fixtures of the tests of features."""
import pytest
import torch


@pytest.fixture
def net(net):
    "The network of the file, with batch statistics to tell train from eval mode by; its `modes` are empty."
    net(torch.randn(50, 6))
    net.modes.clear()
    return net

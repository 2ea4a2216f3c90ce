"""What only a GPU can show: where tensors are, and that looking never makes the host wait."""
import pytest
import torch
from torch import nn

import hooklab as hl

pytestmark = pytest.mark.gpu


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(10)).cuda()


@pytest.fixture
def x(net):
    x = torch.randn(4, 3, 16, 16, device="cuda")
    net(x)  # lazy layers know their shapes from here on
    return x


@pytest.mark.parametrize("grad", [False, True])
def test_stored_where_it_was_asked_for(net, x, grad):
    with hl.hook_outputs(net, grad=grad) as here, hl.hook_outputs(net, grad=grad, cpu=True) as there:
        net(x).sum().backward()
        for a, b in zip(hl.tensors(here.stored), hl.tensors(there.stored)):
            assert a.is_cuda and b.device.type == "cpu" and torch.equal(a.cpu(), b)


def test_bit_identical(net, x):
    def step():
        net.zero_grad()
        torch.manual_seed(0)
        y = net(x)
        y.pow(2).sum().backward()
        return [y.detach().clone(), *(p.grad.clone() for p in net.parameters())]

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        before = step()
        with hl.hook_outputs(net), hl.Hooks(net, lambda m, gi, go: go, is_forward=False):
            assert all(torch.equal(a, b) for a, b in zip(before, step()))
    finally: torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
def test_no_wait(net, x, kind):
    "A hook that stores, or computes a tensor, never asks the device for a number."
    with hl.Hooks(net, lambda m, *given: [t.float().mean() for t in hl.tensors(given)], kind=kind):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try: net(x).sum().backward()
        finally: torch.cuda.set_sync_debug_mode("default")


def test_autocast_and_compile(net, x):
    compiled = torch.compile(net)
    with hl.hook_outputs(net, names=nn.Conv2d) as hooks:
        with torch.autocast("cuda", dtype=torch.bfloat16): compiled(x)
        assert hooks.stored[0].dtype == torch.bfloat16 and hooks.stored[0].is_cuda

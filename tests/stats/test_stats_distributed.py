"Statistics in two gloo processes: neither waits in a step, and `combine` gives what one process would have seen."
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hooklab as hl
from support.processes import failures_in_two

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
steps = 5


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))


def batch(step, rank):
    "Of another size in each process."
    return torch.randn(6 + 3*rank, 8, generator=torch.Generator().manual_seed(10*step + rank))


def recorded(model, batches, s, opt=None):
    with s.on(model, optimizer=opt):
        for x in batches:
            model(x).sum().backward()
            if opt: opt.step()
            model.zero_grad()
            s.step()
    return s


@pytest.fixture(scope="module")
def failures(tmp_path_factory): return failures_in_two(CHECKS, tmp_path_factory.mktemp("two"))


def data_parallel(rank):
    s = recorded(DistributedDataParallel(net()), [batch(i, rank) for i in range(steps)], hl.ActivationStats(with_hist=True))
    alone = s.stats_tensor.clone()
    assert s.names == ["0", "2"] and s.combine() is s
    whole = recorded(net(), [torch.cat([batch(i, r) for r in range(2)]) for i in range(steps)], hl.ActivationStats(with_hist=True))
    torch.testing.assert_close(s.stats_tensor, whole.stats_tensor)
    assert torch.equal(s.history.values("hist"), whole.history.values("hist")) and torch.equal(s.history.values("n"), whole.history.values("n"))
    assert not torch.allclose(alone, s.stats_tensor)


def gradients(rank):
    s = recorded(DistributedDataParallel(net()), [batch(i, rank) for i in range(steps)], hl.ActivationStats(grads=True)).combine()
    whole = recorded(net(), [torch.cat([batch(i, r) for r in range(2)]) for i in range(steps)], hl.ActivationStats(grads=True))
    torch.testing.assert_close(s.gradients.stats_tensor, whole.gradients.stats_tensor)


def no_step_waits(rank):
    "One process does three more steps than the other: it would wait forever."
    s = recorded(net(), [batch(i, rank) for i in range(steps + 3*rank)], hl.ActivationStats()).combine()
    assert s.steps == list(range(steps))  # what all have


def other_layers(rank):
    s = recorded(net(), [batch(0, rank)], hl.ActivationStats(modules="0" if rank else "2"))
    with pytest.raises(ValueError, match="different layers"): s.combine()


def sharded(rank):
    model = net()
    fully_shard(model)
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    s = recorded(model, [batch(i, rank) for i in range(steps)], hl.ActivationStats(grads=True), opt).combine()
    plain = recorded(net(), [torch.cat([batch(0, r) for r in range(2)])], hl.ActivationStats())
    torch.testing.assert_close(s.stats_tensor[:, :, 0], plain.stats_tensor[:, :, 0])
    assert s.names == ["0", "2"] and s.updates.values("update").isfinite().all() and not [h for h in hl.hooks_on(model) if h.ours]


CHECKS = data_parallel, gradients, no_step_waits, other_layers, sharded


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_in_two_processes(failures, check):
    assert not [text for name, text in failures.items() if name.split()[0] == check]

"""Two processes over gloo: wrapped and sharded models, and `gather`."""
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from support.processes import failures_in_two
from support.traces import ours, same

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


@pytest.fixture(scope="module")
def failures(tmp_path_factory): return failures_in_two(CHECKS, tmp_path_factory.mktemp("two"), warnings_are_errors)


def warnings_are_errors(): warnings.simplefilter("error", hl.HookWarning)


class Net(nn.Module):
    "In-place layers, a layer that is run again in the backward pass, and one that returns a parameter."
    def __init__(self, recompute=False):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        self.scale, self.head, self.recompute = Scale(), nn.Linear(8, 2), recompute

    def forward(self, x):
        h = self.body(x)
        h = h + (checkpoint(self.body[2], h, use_reentrant=False) if self.recompute else self.body[2](h))
        return self.head(h*self.scale())


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
    def forward(self): return self.weight


def whole(t): return t.full_tensor() if hasattr(t, "full_tensor") else t


def watch(model): return [hl.Hooks(model, lambda m, *given: given, kind=kind, names="*") for kind in ("forward", "backward")]


def train(rank, wrap, hooked=None, recompute=False):
    "Three steps of a model that `wrap` wraps, with hooks from before or after: what the last made, and what the hooks saw of it."
    model = Net(recompute)
    if hooked == "before": hooks = watch(model)
    wrapped = wrap(model)
    if hooked == "after": hooks = watch(wrapped)
    optimizer, x = torch.optim.SGD(wrapped.parameters(), 0.1), torch.randn(3 + rank, 4, generator=torch.Generator().manual_seed(rank))
    for _ in range(3):
        optimizer.zero_grad()
        y = wrapped(x)
        y.pow(2).sum().backward()
        optimizer.step()
    result = [y.detach(), *[whole(p.grad).clone() for p in wrapped.parameters()], *[whole(t) for t in wrapped.state_dict().values()]]
    if not hooked: return result, None
    seen = {(group.group.kind, h.name): (h.n_calls, [[whole(t) for t in hl.tensors(call)] for call in h.calls]) for group in hooks for h in group}
    for group in hooks: group.remove()
    assert ours(wrapped) == []
    return result, seen


def check_wrapped(rank, wraps):
    for wrap in wraps:
        for recompute in (False, True):
            plain, _ = train(rank, wrap, recompute=recompute)
            for hooked in ("before", "after"):
                result, seen = train(rank, wrap, hooked, recompute)
                assert len(plain) == len(result) and all(map(same, plain, result)), (wrap, hooked)
                # the gradients of a loss on this rank do not depend on the wrapper, the weights do after a step: compare counts, names, shapes
                _, expected = train(rank, lambda model: model, hooked, recompute)
                assert seen.keys() == expected.keys()
                for key in seen:
                    twice = key[1].startswith("body.2")
                    assert seen[key][0] == expected[key][0] == (2 if twice else 1), (wrap, hooked, key, seen[key][0])
                    shapes, wanted = [[[tuple(t.shape) for t in call] for call in calls] for calls in (seen[key][1], expected[key][1])]
                    assert shapes == wanted, (wrap, hooked, key)


def check_data_parallel(rank):
    check_wrapped(rank, [DistributedDataParallel, lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True, static_graph=True)])


def check_sharded(rank):
    def sharded(model):
        fully_shard(model.body[2])
        return fully_shard(model)
    check_wrapped(rank, [sharded])
    # in the first step the weights are the same everywhere: then the shares are, too
    seen = []
    for wrap in (sharded, lambda model: model):
        model = wrap(Net())
        with hl.Hooks(model, lambda m, *given: given, kind="backward", names=["body*", "head"]) as hooks:
            model(torch.ones(2, 4)).sum().backward()
            seen.append([[whole(t) for t in hl.tensors(h.calls)] for h in hooks])
    for a, b in zip(*seen): torch.testing.assert_close(a, b)


def check_gather(rank):
    x = torch.arange(12.).view(6, 2)
    for sizes in [(3, 3), (4, 2), (5, 1), (6, 0)]:
        mine = x[:sizes[0]] if rank == 0 else x[sizes[0]:]
        for kind in ("forward", "forward_pre", "backward"):
            with hl.Hook(nn.Identity(), lambda m, *given: given[-1], kind=kind, gather=True) as h:
                h.module(mine.clone().requires_grad_()).sum().backward()
                (seen,) = hl.tensors(h.stored)
            assert torch.equal(seen, torch.ones(6, 2) if kind == "backward" else x), (kind, sizes, seen)
    with hl.Hook(nn.Identity(), lambda m, i, o: o, gather=True, cpu=True) as h:
        h.module({"whole": torch.tensor([rank]), "loss": torch.tensor(rank*1.), "flags": torch.tensor([[True, rank == 0]])})
        assert h.stored["whole"].tolist() == [0, 1] and h.stored["loss"].tolist() == [0, 1] and h.stored["flags"].tolist() == [[True, True], [True, False]]


CHECKS = [check_data_parallel, check_sharded, check_gather]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_two_processes(check, failures):
    found = [text for name, text in failures.items() if name.startswith(check.__name__)]
    if found: pytest.fail("\n".join(found), pytrace=False)

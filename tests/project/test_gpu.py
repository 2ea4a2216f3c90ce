"""What only a GPU can show: where tensors are, and that looking never makes the host wait."""
import copy
import threading

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.stats.autosave import Autosave

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


def train(net, x, s, optimizer, steps=3):
    for _ in range(steps):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        s.step()


@pytest.mark.filterwarnings("error::hooklab.HookWarning")  # of what could not be measured, for instance because it would wait
@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"counts": True}, {"with_hist": True, "hist_sample": 100}, {"every": 2}])
def test_statistics_do_not_wait(net, x, options):
    "A training step with all statistics on never asks the device for a number, from the second step on, when memory is there."
    optimizer = torch.optim.SGD(net.parameters(), lr=.01)
    with hl.ActivationStats(grads=True, **options).on(net, optimizer=optimizer) as s:
        train(net, x, s, optimizer)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try: train(net, x, s, optimizer)
        finally: torch.cuda.set_sync_debug_mode("default")
    assert len(s.stats) == (3 if options.get("every") else 6) and s.history.values("mean").device.type == "cpu"


def test_a_copy_of_a_record_does_not_wait(net, x, tmp_path, monkeypatch):
    "The thread that writes does: it begins when nobody looks any more."
    go, write = threading.Event(), Autosave.write
    def write_later(self, *args):
        go.wait(60)
        write(self, *args)
    monkeypatch.setattr(Autosave, "write", write_later)
    optimizer = torch.optim.SGD(net.parameters(), .01)
    with hl.ActivationStats.for_diagnosis().autosave(tmp_path/"run.safetensors").on(net, optimizer) as stats:
        for step in range(5):
            stats.saver.due = 0. if step == 3 else 1e12
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            torch.cuda.set_sync_debug_mode("error" if step == 3 else "default")
            try: stats.step(loss)
            finally: torch.cuda.set_sync_debug_mode("default")
        expected = stats.history.tables()[:4].cpu()
        go.set()
        stats.saver.writing.join()
        found = hl.ActivationStats.load(tmp_path/"run.safetensors")
        torch.testing.assert_close(found.history.tables(), expected, rtol=0, atol=0, equal_nan=True)
        assert found.log.values("loss").isfinite().all()
    with hl.ActivationStats.load(tmp_path/"run.safetensors").resume(net, optimizer) as again:
        net(x).square().mean().backward()
        again.step()
    assert len(again.steps) == 6 and again.history.kept.chunks[0].is_cuda


def test_statistics_as_on_a_cpu(net, x):
    twin = copy.deepcopy(net).cpu()
    found = {}
    for model, batch in ((net, x), (twin, x.cpu())):
        optimizer = torch.optim.SGD(model.parameters(), lr=0)
        with hl.ActivationStats(with_hist=True, grads=True, cpu=False).on(model) as s: train(model, batch, s, optimizer)
        found[batch.device.type] = s
    assert found["cuda"].stats_tensor.is_cuda
    torch.testing.assert_close(found["cuda"].stats_tensor.cpu(), found["cpu"].stats_tensor, rtol=1e-3, atol=1e-4)
    here, there = found["cuda"].history.values("hist").cpu(), found["cpu"].history.values("hist")
    assert (here - there).abs().sum() <= .01*there.sum()  # rounding may move a number to the next bin


def test_scaler_on_a_gpu(net, x):
    scaler, optimizer = torch.amp.GradScaler("cuda", init_scale=2.**8), torch.optim.SGD(net.parameters(), lr=.01)
    with hl.ActivationStats(grads=True).on(net, optimizer=optimizer, scaler=scaler) as s:
        for i in range(4):
            with torch.autocast("cuda", dtype=torch.float16): loss = net(x).float().square().mean()*(float("inf") if i == 2 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            s.step()
    assert s.skipped == [2]

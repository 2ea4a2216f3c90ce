"""What looks at calls of functions is taken off, put on and run again from inside a call that it looks at."""
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import hooklab as hl


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = F.softmax(self.first(x), -1)
        return torch.tanh(self.second(x)).softmax(-1)


def looks(m, f): return hl.hook_calls(m, torch.softmax, f=f)
def edits(m, f): return hl.edit_calls(m, torch.softmax, f)
def by_token(m, f): return hl.by_token(m, f=lambda call: (f(call), call.output)[1], function=torch.softmax, dim=0)
def body(m, f): return hl.hook_calls(m, [torch.softmax, F.softmax, torch.tanh, F.linear], f=f)


TOOLS = {"hook_calls": looks, "edit_calls": edits, "by_token": by_token, "several functions": body}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x(): return torch.randn(2, 4)


def nothing_on(m):
    return not _get_current_function_mode_stack() and not hl.hooks_on(m)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("steps", [
    "off again", "again off", "again", "off again off", "off new", "new off", "off new again", "off again again",
    "again new off again", "part off", "off part", "off thread", "thread off"])
def test_whatever_is_done_inside_a_call(net, x, tool, steps):
    "In the first call: the hook goes off, a new one comes, the model or a part of it runs again, here or in a thread."
    plain, put_on, others, seen = net(x), TOOLS[tool], [], []

    def inside(call):
        seen.append(call.name)
        if len(seen) > 1: return
        for step in steps.split():
            if step == "off": hook.remove()
            elif step == "again": assert torch.equal(net(x), plain)
            elif step == "part": net.first(x)
            elif step == "new": others.append(put_on(net, lambda call: None))
            else:
                thread = threading.Thread(target=net, args=(x,))
                thread.start()
                thread.join()

    hook = put_on(net, inside)
    assert torch.equal(net(x), plain)
    assert not _get_current_function_mode_stack()
    if "off" in steps:
        assert hook.removed
        n = len(seen)
        if steps.startswith("off"): assert n == 1
        assert torch.equal(net(x), plain) and len(seen) == n, "off means off"
    for other in [hook, *others]: other.remove()
    assert nothing_on(net) and torch.equal(net(x), plain)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_pass_inside_a_call_leaves_the_pass_around_it_as_it_was(net, x, tool):
    "The names and numbers of the calls after it are those of a pass without it."
    names, depth = [], []

    def inside(call):
        if not depth: names.append(call.name)
        if depth or len(names) > 1: return
        depth.append(1)
        net(x)
        depth.clear()

    with TOOLS[tool](net, lambda call: names.append(call.name)): net(x)
    expected = names[:]
    names.clear()
    with TOOLS[tool](net, inside): net(x)
    assert names == expected and nothing_on(net)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_model_that_runs_itself_from_a_layer(net, x, tool):
    "The rest of the pass around it is seen as it would be without."
    names, inner = [], []
    with TOOLS[tool](net, lambda call: names.append(call.name)): net(x)
    expected = names[:]
    names.clear()

    def again(m, given):
        if inner: return
        inner.append(1)
        net(x)
        inner.append(2)

    with TOOLS[tool](net, lambda call: names.append(call.name) if len(inner) == 2 else None):
        handle = net.second.register_forward_pre_hook(again)
        net(x)
        handle.remove()
    assert names == [name for name in expected if name in names] and names[-1] == expected[-1]
    assert nothing_on(net)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("off", ["before", "after", "never"])
def test_errors_in_a_pass_inside_a_call(net, x, tool, off):
    seen = []

    def inside(call):
        seen.append(call.name)
        if len(seen) > 1: raise ZeroDivisionError("in the inner pass")
        if off == "before": hook.remove()
        try: net(x if off == "never" else x[:, :3])
        except (ZeroDivisionError, RuntimeError): seen.append("caught")
        if off == "after": hook.remove()
        if off == "never": raise ValueError("in the outer pass")

    hook = TOOLS[tool](net, inside)
    if off == "never":
        with pytest.raises(ValueError, match="in the outer pass"): net(x)
    else: net(x[:, :4])
    assert "caught" in seen and not _get_current_function_mode_stack()
    hook.remove()
    assert nothing_on(net)


def test_two_hooks_that_take_each_other_off(net, x):
    "In each other's calls, and the model runs again in between."
    seen, plain = [], net(x)

    def one(call):
        seen.append("one")
        second.remove()
        if len(seen) < 3: net(x)

    def two(call):
        seen.append("two")
        first.remove()
        if len(seen) < 3: net(x)

    first, second = looks(net, one), looks(net, two)
    assert torch.equal(net(x), plain)
    assert first.removed or second.removed
    first.remove()
    second.remove()
    assert nothing_on(net)


def test_modes_of_other_code_stay_where_they_were(net, x):
    class Counting(TorchFunctionMode):
        n = 0
        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.n += 1
            return func(*args, **(kwargs or {}))

    done = []

    def inside(call):
        if done: return
        done.append(1)
        hook.remove()
        with Counting() as inner: net(x)
        assert inner.n

    with Counting() as outer:
        hook = looks(net, inside)
        net(x)
        assert _get_current_function_mode_stack() == [outer] and outer.n
    assert nothing_on(net)


def test_hooks_that_another_thread_takes_off_see_nothing_any_more(net, x):
    "While a thread is inside the model. Its mode does nothing from then on, and goes when it next attaches hooks."
    ready, go, seen, left = threading.Event(), threading.Event(), [], []

    class Waits(nn.Module):
        def forward(self, x):
            ready.set()
            assert go.wait(60)
            return x.tanh()

    net.first = nn.Sequential(net.first, Waits())
    hook = looks(net, lambda call: seen.append(call.name))

    def work():
        net(x)
        torch.softmax(x, -1)
        with hl.hook_calls(nn.Sequential(nn.ReLU()), torch.relu) as other:
            left.extend(_get_current_function_mode_stack())
            other.group.root(x)

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    hook.remove()
    go.set()
    thread.join()
    assert not seen and not left and not len(hook) and nothing_on(net)

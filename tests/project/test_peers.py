"""Where fastai's hooks and hooklab's both work, they agree. Where fastai's do not, test_hook and the lessons say what hooklab does."""
import pytest
import torch
from torch import nn

import hooklab as hl

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning", "ignore::DeprecationWarning")]


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


def printed(capsys, work):
    work()
    return capsys.readouterr().out


def test_life_of_a_hook(peer, model, x, capsys):
    "Before the first run, printing from a hook, removal, twice, and silence afterwards; the same with either library."
    said = []
    for lib in (peer, hl):
        layer = nn.Linear(5, 3)
        with torch.no_grad(): [p.fill_(0.5) for p in layer.parameters()]
        h = lib.Hook(layer, lambda m, i, o: print(m, i, o))
        assert h.stored is None and h.removed is False
        on = printed(capsys, lambda: layer(torch.ones(2, 5)))
        h.remove()
        h.remove()
        said.append((on, h.removed, len(layer._forward_hooks), printed(capsys, lambda: layer(torch.ones(2, 5)))))
    assert said[0] == said[1] and said[0][1:] == (True, 0, "") and "Linear" in said[0][0]


def test_hook_fn_by_hand(peer, model, x):
    def both(m, i, o): return i[0] + 1, o*2
    y = model[0](x)
    for options in ({}, {"detach": False}, {"cpu": True}):
        stored = []
        for lib in (peer, hl):
            h = lib.Hook(model[0], both, **options)
            h.hook_fn(model[0], (x,), y)
            stored.append(h.stored)
            h.remove()
        same(*stored)
        assert [t.requires_grad for t in stored[0]] == [t.requires_grad for t in stored[1]]


class Several(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(5, 3), kind
    def forward(self, x): return self.kind([self.layer(x), x*2])


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_outputs(peer, kind):
    model, x = Several(kind), torch.randn(4, 5)
    with peer.hook_output(model) as theirs, hl.hook_output(model) as ours:
        model(x)
        same(list(ours.stored), list(theirs.stored))
        assert type(ours.stored) is kind


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("cpu", [True, False])
def test_hooks_as_a_sequence(peer, model, x, detach, cpu):
    def f(m, i, o): return o.float().mean()
    with peer.Hooks(model, f, True, detach, cpu) as theirs, hl.Hooks(model, f, True, detach, cpu) as ours:
        model(x)
        same(list(ours.stored), list(theirs.stored))
        assert [type(h).__name__ for h in ours] == [type(h).__name__ for h in theirs] == ["Hook"]*5
        same(ours[-1].stored, theirs[-1].stored)
        same([h.stored for h in ours[1:3]], [h.stored for h in theirs[1:3]])
        assert ours[0].stored.requires_grad == theirs[0].stored.requires_grad


def test_chain_rule(peer):
    "The gradients of three layers, by hand and from both libraries."
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2)), torch.randn(4, 5)
    with peer.hook_outputs(model, grad=True) as theirs, hl.hook_outputs(model, grad=True) as ours:
        y = model(x)
        y.pow(2).mean().backward()
        last = (2*y/y.numel()).detach()
        middle = last @ model[2].weight.data
        wanted = [middle*(model[0](x) > 0), middle, last]
        for hooks in (ours, theirs): torch.testing.assert_close([h.stored[0] for h in hooks], wanted)


@pytest.mark.parametrize("where", ["block", "hook"])
def test_removed_after_an_error(peer, model, x, where):
    for lib in (peer, hl):
        def f(m, i, o):
            if where == "hook": raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), lib.Hooks(model, f):
            model(x)
            1/0
        assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("options", [{}, {"cpu": True}])
def test_gradients_shown_to_a_function(peer, options):
    "fastai uses torch's old backward hooks; for a layer of one operation they see the same gradient of the output."
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2)), torch.randn(4, 5)
    def f(m, grad_in, grad_out): return grad_out[0].norm()
    with peer.Hooks(model, f, is_forward=False, **options) as theirs, hl.Hooks(model, f, is_forward=False, **options) as ours:
        model(x).sum().backward()
        same(list(ours.stored), list(theirs.stored))

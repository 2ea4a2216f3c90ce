"""What `.grad` held before, and backward passes that go through an earlier one: only what a pass made is judged."""
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.debug.nan.watch import find_nan

pytestmark = [pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning"),
              pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph")]
nan = float("nan")


class Do(nn.Module):
    "A layer that calls a function."
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *given): return self.f(*given)


def net(*middle): return nn.Sequential(nn.Linear(4, 4), *middle, nn.Linear(4, 1))
def layer(f): return f if isinstance(f, nn.Module) else Do(f)
def singular(x): return x.relu().sqrt()
def cut(x): return x*(x > 0)  # as relu, with a backward pass that lets infinity through
def told(found): return [(e.kind, e.layer, e.direction) for e in found]


@pytest.fixture
def x(): return torch.randn(8, 4, requires_grad=True)


@pytest.fixture
def found(): return []


# what was in `.grad` before

def test_a_nan_from_before_the_watch_is_no_fault_of_a_layer(x, found):
    model = net()
    (model(x)*nan).sum().backward()
    with pytest.warns(hl.HookWarning) as said, find_nan(model, found.append):
        for _ in range(2): model(x).sum().backward()
    assert not found and [str(w.message) for w in said] == [
        "find_nan: the `.grad` of 0.weight, 0.bias, 1.weight, 1.bias already held NaN before this watch, so it "
        "stays NaN whatever is added: call zero_grad() first"]


def test_a_gradient_that_is_not_added_to_is_not_looked_at(x, found):
    model = net()
    (model(x)*nan).sum().backward()
    with find_nan(model, found.append):
        torch.autograd.grad(model(x).sum(), x)
        torch.autograd.grad(model(x).sum(), list(model.parameters()))
        model.zero_grad()
        model(x).sum().backward()
    assert not found


def test_what_another_pass_put_into_grad_is_reported_as_that(x, found):
    model = net()
    with pytest.warns(hl.HookWarning, match="the `.grad` of 1.bias already held NaN before pass 2,"), \
            find_nan(model, found.append):
        model(x).sum().backward()
        model[1].bias.grad.fill_(nan)
        model(x).sum().backward()
    assert not found


class Roots(nn.Module):
    "Adds the root of a weight, whose gradient is infinite: that of the input is fine."
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x): return x + self.weight.sqrt()


@pytest.mark.parametrize("last", [True, False])
def test_a_weight_that_goes_bad_is_found_where_grad_was_there_before(last, x, found):
    model = nn.Sequential(nn.Linear(4, 4), Roots()) if last else net(Roots())
    for p in model.parameters(): p.grad = torch.ones_like(p)
    with find_nan(model, found.append): model(x).sum().backward()
    assert told(found) == [("layer", "1", "backward")]


def test_a_weight_that_goes_bad_again_after_zero_grad_is_found(x, found):
    model = net(Roots())
    with find_nan(model, found.append):
        (model(x)*nan).sum().backward()
        out = model(x).sum()
        model.zero_grad()
        out.backward()
    assert told(found) == [("loss", "", "backward"), ("layer", "1", "backward")]


def test_micro_batches_and_two_losses(x, found):
    model = net(nn.Tanh())
    with find_nan(model, found.append):
        for _ in range(3): model(x).sum().backward()
        a, b = model(x).sum(), (model(x)*nan).sum()
        a.backward()
        b.backward()
        model(x).sum().backward()
    assert told(found) == [("loss", "", "backward")]


def test_the_same_graph_twice(x, found):
    model = net(nn.Tanh())
    with find_nan(model, found.append):
        out = model(x)
        for factor in (1, 1, nan): (out*factor).sum().backward(retain_graph=True)
    assert told(found) == [("loss", "", "backward")]


# a backward pass through an earlier one

class Forces(nn.Module):
    "An energy, and the forces, which are its slope."
    def __init__(self, f):
        super().__init__()
        self.net = net(layer(f))

    def forward(self, x):
        energy = self.net(x := x.detach().requires_grad_())
        return energy, -torch.autograd.grad(energy.sum(), x, create_graph=True)[0]


class Checkpointed(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.inner, self.head = net(layer(f)), nn.Linear(1, 1)

    def forward(self, x): return self.head(checkpoint(self.inner, x, use_reentrant=False))


def slope(model, x): return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


def penalty(f, x):
    "As in a WGAN, with the loss beside it."
    model = net(layer(f))
    return model, lambda: (slope(model, x).square().sum(1) - 1).square().mean() + model(torch.randn(8, 4)).mean()


def second_derivatives(f, x):
    model = net(layer(f))
    def loss():
        first = slope(model, x)
        return torch.autograd.grad(first.sum(), x, create_graph=True)[0].square().sum()
    return model, loss


def norm_of_gradients(f, x):
    model = net(layer(f))
    def loss():
        gs = torch.autograd.grad(model(x.detach()).square().mean(), list(model.parameters()), create_graph=True)
        return sum(g.square().sum() for g in gs)
    return model, loss


def added_up_with_a_graph(f, x):
    model = net(layer(f))
    def loss():
        model(x.detach()).square().mean().backward(create_graph=True)
        return sum(p.grad.square().sum() for p in model.parameters())
    return model, loss


def inner_step(f, x):
    model = net(layer(f))
    def loss():
        old = dict(model.named_parameters())
        gs = torch.autograd.grad(model(x.detach()).square().mean(), list(old.values()), create_graph=True)
        fast = {name: p - .1*g for (name, p), g in zip(old.items(), gs)}
        return functional_call(model, fast, (x.detach().abs() + 1,)).square().mean()
    return model, loss


def forces(f, x):
    model = Forces(f)
    return model, lambda: sum(part.square().sum() for part in model(x))


def checkpointed(f, x):
    model = Checkpointed(f)
    return model, lambda: slope(model, x).square().sum()


def one_branch(f, x):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), layer(f)

        def forward(self, x): return self.a(x).sigmoid() + self.act(self.b(x))
    model = nn.Sequential(nn.Linear(4, 4), Branches(), nn.Linear(4, 1))
    return model, lambda: slope(model, x).square().sum()


WAYS = {"penalty": (penalty, "1"), "second derivatives": (second_derivatives, "1"),
        "norm of gradients": (norm_of_gradients, "1"), "added up": (added_up_with_a_graph, "1"),
        "inner step": (inner_step, "1"), "forces": (forces, "net.1"), "checkpointed": (checkpointed, "inner.1"),
        "one branch": (one_branch, "1.act")}
FINE = {"tanh": torch.tanh, "softplus": nn.functional.softplus, "cube": lambda x: x.relu()**3,
        "twice the same": lambda x: x*x.sigmoid()}


@pytest.mark.parametrize("way", WAYS)
def test_a_healthy_pass_through_a_pass_is_quiet_and_the_same(way):
    for f in FINE.values():
        seen = []
        for watch in (False, True):
            torch.manual_seed(0)
            model, loss = WAYS[way][0](f, torch.randn(8, 4, requires_grad=True))
            for _ in range(2):
                model.zero_grad()
                if not watch: loss().backward()
                else:
                    with find_nan(model): loss().backward()
            seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            for p in model.parameters(): assert not p._backward_hooks
            model.zero_grad()  # a gradient with a graph holds its own parameter
        torch.testing.assert_close(*seen, rtol=0, atol=0)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_singular_layer_is_blamed(way, saved, x, found):
    make, name = WAYS[way]
    # the slope of the second one is finite, and its slope is not: that goes straight to the input
    model, loss = make(nn.Sequential(Do(cut), Do(lambda x: x**1.5)) if saved else singular, x)
    if saved: name += ".1"
    with find_nan(model, found.append): loss().backward()
    if (way, saved) == ("second derivatives", False):  # by its output, which other layers might do that were given it
        assert told(found) == [("between layers", "(model)", "backward")]
        assert "NaN made by 1 (Do) or after it in (model) (Sequential), in the backward pass thr" in str(found[0])
    else:
        assert told(found) == [("layer", name, "backward")]
        assert f" made by {name} (Do) in the backward pass through its own backward pass" in str(found[0])
    assert not [p for p in model.parameters() if p._backward_hooks]
    model.zero_grad()


def test_the_report_says_which_pass_it_is(x, found):
    model = net(Do(singular))
    with find_nan(model, found.append): slope(model, x).square().sum().backward()
    head, *rows = str(found[0]).splitlines()
    assert head.endswith(" made by 1 (Do) in the backward pass through its own backward pass (pass 1, call 1)")
    assert [row.partition(":")[0].strip() for row in rows[:6]] == [
        "input", "output", "gradient of output", "gradient of input", "gradient of that gradient of input",
        "gradient of that gradient of output"]
    assert found[0].carriers[0] == "2"


def test_nothing_holds_the_graph_of_a_recorded_pass(x):
    inner = []
    model = net(Do(lambda x: inner.append(weakref.ref(y := x.tanh())) or y), nn.Identity(), nn.Flatten())
    with find_nan(model):
        for wanted in ([x], list(model.parameters()), [x]):
            gs = torch.autograd.grad(model(x).sum(), wanted, create_graph=True)
            sum(g.square().sum() for g in gs).backward()
            torch.autograd.grad(model(x).sum(), wanted, create_graph=True)  # and nothing goes back through it
            del gs
            assert [t() for t in inner] == [None]*len(inner)


def test_a_pass_that_breaks_leaves_no_hook(x):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x*1
        @staticmethod
        def backward(ctx, g): raise ValueError("no gradient")

    model = net(Do(Breaks.apply))
    with find_nan(model):
        with pytest.raises(ValueError): slope(model, x)
    assert not [p for p in model.parameters() if p._backward_hooks]


# a loss that is not finite, made of gradients

BAD_LOSSES = {
    "a penalty": lambda model, x: (slope(model, x)*0).norm(dim=1).log().mean() + model(torch.randn(8, 4)).mean(),
    "alone": lambda model, x: (slope(model, x)*0).sqrt().sum(),
    "of gradients of weights": lambda model, x: sum(
        (g*0).sqrt().sum() for g in torch.autograd.grad(model(x.detach()).sum(), [*model.parameters()],
                                                        create_graph=True)[:3]) + model(x.detach()).sum(),
    "of second derivatives": lambda model, x: (torch.autograd.grad(
        slope(model, x).sum(), x, create_graph=True)[0]*0).sqrt().sum() + model(x).sum(),
}


@pytest.mark.parametrize("what", BAD_LOSSES)
@pytest.mark.parametrize("f", [torch.tanh, nn.functional.softplus, lambda x: x.relu()**3, nn.functional.gelu])
def test_a_loss_that_is_not_finite_is_the_loss(f, what, x, found):
    model = net(Do(f), nn.Linear(4, 4), Do(f))
    with find_nan(model, found.append): BAD_LOSSES[what](model, x).backward()
    assert told(found) == [("loss", "", "backward")]
    assert "in the gradient that the loss passed to the gradient of " in str(found[0])
    assert "no layer made it" in str(found[0])


def test_the_loss_after_an_inner_step_is_the_loss(x, found):
    model = net(nn.Tanh())
    old = dict(model.named_parameters())
    with find_nan(model, found.append):
        gs = torch.autograd.grad(model(x.detach()).square().mean(), list(old.values()), create_graph=True)
        fast = {name: p - .1*g for (name, p), g in zip(old.items(), gs)}
        (functional_call(model, fast, (x.detach(),))*0).sqrt().sum().backward()
    assert told(found) == [("loss", "", "backward")]
    assert "passed to the output of (model)" in str(found[0])


# where it cannot be known

def test_work_between_layers_is_said_to_be_somewhere(x, found):
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Do(cut), nn.Linear(4, 4)

        def forward(self, x): return self.second(self.first(x)**1.5)
    model = net(Between())
    with find_nan(model, found.append): slope(model, x).square().sum().backward()
    assert told(found) == [("between layers", "1", "backward")]
    assert "1.first" in str(found[0]) and "Sequential" not in str(found[0])


def test_a_backward_pass_in_another_thread(x, found):
    """As on an accelerator. Each thread has its own numbers for the nodes of a graph, and those here are smaller."""
    def elsewhere(f, *given):
        with ThreadPoolExecutor(1) as pool: return pool.submit(f, *given).result()
    for f, layers in ((torch.tanh, []), (singular, ["1"])):
        model = net(layer(f), nn.Linear(4, 4))
        with find_nan(model, found.append):
            out = model(x).sum()
            g, = elsewhere(lambda out: torch.autograd.grad(out, x, create_graph=True), out)
            elsewhere(g.square().sum().backward)
        assert [error.layer for error in found] == layers


def test_transforms_are_quiet(x):
    model = net(nn.Tanh(), nn.Linear(4, 4))
    with find_nan(model):
        torch.func.hessian(lambda x: model(x).sum())(x[0].detach())
        torch.func.vmap(torch.func.grad(lambda x: model(x).sum()))(x.detach())
        torch.autograd.functional.hvp(lambda x: model(x).sum(), x[0], x[0])


def test_what_a_layer_swallows_is_found_too(x, found):
    model = net(nn.ReLU(), Do(lambda x: x**1.5))
    with find_nan(model, found.append): slope(model, x).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert told(found) == [("layer", "2", "backward")]


class Powers(nn.Module):
    "A weight whose slope has an infinite slope. Before a first layer there is no gradient to look at."
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x): return x + self.weight**1.5


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_whose_own_weight_goes_bad(first, x, found):
    model = nn.Sequential(Powers(), nn.Tanh(), nn.Linear(4, 1)) if first else net(Powers(), nn.Tanh())
    with find_nan(model, found.append):
        gs = torch.autograd.grad(model(x.detach()).sum(), list(model.parameters()), create_graph=True)
        sum(g.sum() for g in gs).backward()
    assert told(found) == [("layer", "0" if first else "1", "backward")]

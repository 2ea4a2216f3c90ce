"Edits of calls: what a function returns inside a layer is replaced, and the model is back as it was."
import copy
import gc
import operator
import pickle
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from support.nets import Returns, all_equal, step

SDPA = F.scaled_dot_product_attention
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")]


class Block(nn.Module):
    "Attention, a gate, and two residual sums."
    def __init__(self, dropout=0.):
        super().__init__()
        self.norm, self.qkv, self.gate = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + SDPA(q, k, v).transpose(1, 2).flatten(2)
        return x + self.drop(x*torch.sigmoid(self.gate(x)))


class Model(nn.Module):
    def __init__(self, run=None, **options):
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head, self.run = nn.ModuleList(Block(**options) for _ in range(2)), nn.Linear(8, 3), run

    def forward(self, x):
        for block in self.blocks: x = self.run(block, x) if self.run else block(x)
        return torch.softmax(self.head(x), -1)


@pytest.fixture
def model(): return Model()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(2, 5, 8, requires_grad=True)


def nothing_left(model): return not (_get_current_function_mode_stack() or hl.hooks_on(model))


# What is replaced

def test_a_function_of_the_call_gives_another_output(model, x):
    seen = []

    def f(call):
        seen.append((call.name, call.layer, call.function, call.number, len(call.inputs), call.output.requires_grad))
        return torch.zeros_like(call.output)

    with hl.edit_calls(model, SDPA, f, names="blocks.1") as edits, hl.hook_calls(model, SDPA) as h: model(x)
    name = "blocks.1/scaled_dot_product_attention#0"
    assert seen == [(name, "blocks.1", SDPA.__name__, 0, 3, True)] and edits.names == [name]
    assert not h[name].output.any() and h[0].output.any() and nothing_left(model)


def test_the_result_is_that_of_the_same_change_by_hand(model, x):
    def gated(t): return t.sigmoid().clamp(max=.5)
    by_hand = Model()
    for block in by_hand.blocks:
        block.forward = lambda x, b=block: _forward_with(b, x, gated)
    with hl.edit_calls(model, torch.sigmoid, lambda call: call.output.clamp(max=.5)): found = step(model, x)
    assert all_equal(found, step(by_hand, x))


def _forward_with(block, x, gated):
    q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in block.qkv(block.norm(x)).chunk(3, -1))
    x = x + SDPA(q, k, v).transpose(1, 2).flatten(2)
    return x + block.drop(x*gated(block.gate(x)))


def test_none_leaves_the_output(model, x):
    before = step(model, x)
    with hl.edit_calls(model, [SDPA, torch.add, torch.softmax], lambda call: None) as edits:
        assert all_equal(step(model, x), before)
    assert len(edits.names) == 7


CHANGES = {"scale": hl.scale(2), "ablate": hl.ablate([0], dim=1), "patch": hl.patch(3.),
           "steer": hl.steer(torch.ones(4), 2, dim=-1),
           "own": hl.Change(torch.tanh), "at": hl.scale(0, at=(slice(None), 0))}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_do_what_they_do_on_layers(model, x, name):
    with hl.hook_calls(model, SDPA) as h: model(x)
    with hl.edit_calls(model, SDPA, CHANGES[name], names="blocks.0"), hl.hook_calls(model, SDPA) as after: model(x)
    assert torch.equal(after[0].output, CHANGES[name](h[0].output))


def test_part_says_which_tensor_of_several(x):
    model = Returns(lambda t: t.max(-1))
    with hl.edit_calls(model, torch.max, hl.scale(2, part=0)): out = model(x)
    assert torch.equal(out.values, 2*x.max(-1).values) and torch.equal(out.indices, x.max(-1).indices)
    with pytest.raises(LookupError, match="which tensor is meant") as raised, hl.edit_calls(model, torch.max,
                                                                                            hl.scale(2)):
        model(x)
    assert "raised in edit_calls of /max#0" in raised.value.__notes__[0]


def test_only_one_call(x):
    model = Returns(lambda t: ((t + 1) + 10) + 100)
    with hl.edit_calls(model, operator.add, hl.patch(0.), call=1) as edits:
        for _ in range(2): assert torch.equal(model(x), torch.full_like(x, 100))
    assert edits.names == ["/add#1"]
    with pytest.warns(hl.HookWarning, match="add: called at most 3 times in one layer and pass, so call=7 never came"):
        with hl.edit_calls(model, torch.add, hl.patch(0.), call=7): model(x)


def test_inside_functions_that_are_written_in_python(x):
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    with hl.edit_calls(layer, torch.softmax, lambda call: torch.full_like(call.output, .2)):
        out, weights = layer(x, x, x)
    assert torch.equal(weights, torch.full((2, 5, 5), .2)) and torch.allclose(out, out.mean(1, keepdim=True))


def test_a_function_inside_another_spelling_is_edited_once(x):
    model = Returns(lambda t: F.softmax(t, -1))
    with hl.edit_calls(model, torch.softmax, hl.scale(2)): assert torch.allclose(model(x).sum(-1), torch.tensor(2.))


# Several edits, and hooks

def test_each_edit_sees_what_those_before_it_have_left(x):
    model, plus, doubled = Returns(torch.relu), lambda call: call.output + 1, hl.scale(2)
    with hl.hook_calls(model, F.relu) as early, hl.edit_calls(model, F.relu, plus), hl.edit_calls(model, F.relu,
                                                                                                  doubled):
        with hl.hook_calls(model, F.relu) as late: out = model(x)
    assert torch.equal(early[0].output, x.relu()) and torch.equal(late[0].output,
                                                                  (x.relu() + 1)*2) == torch.equal(late[0].output, out)
    with hl.edit_calls(model, F.relu, doubled), hl.edit_calls(model, F.relu, plus): out = model(x)
    assert torch.equal(out, x.relu()*2 + 1)


def test_what_an_edit_computes_is_no_call_of_the_model(model, x):
    def f(call): return torch.add(call.output, call.output).add(1)
    with hl.hook_calls(model, torch.add) as early, hl.edit_calls(model, [SDPA, torch.add], f):
        with hl.hook_calls(model, torch.add) as late, hl.edit_calls(model, torch.add, hl.scale(2)) as last: model(x)
    names = [f"blocks.{i}/add#{n}" for i in range(2) for n in range(2)]
    assert [c.name for c in early] == [c.name for c in late] == last.names == names


def test_an_edit_computes_under_the_modes_of_other_code(x):
    class Ones(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return torch.ones(8) if func is torch.rand else func(*args, **(kwargs or {}))
    model = Returns(torch.relu)
    with Ones() as mode, hl.hook_calls(model, F.relu), hl.edit_calls(model, F.relu,
                                                                     lambda call: call.output*torch.rand(8)):
        assert torch.equal(model(x), x.relu()) and _get_current_function_mode_stack() == [mode]
    with torch.device("meta"), hl.edit_calls(model, F.relu, lambda call: torch.zeros(3)): assert model(x).is_meta


def test_edits_of_layers_and_of_calls_go_together(model, x):
    with hl.edit_output(model, hl.scale(0), names="blocks.0.gate"), hl.edit_calls(model, torch.sigmoid, hl.scale(2),
                                                                                  names="blocks.0"):
        with hl.hook_calls(model, torch.sigmoid) as h: model(x)
    assert torch.equal(h[0].output, torch.ones(2, 5, 8))


# Gradients, in place

def test_gradients_flow_through_edits(model, x):
    factor = torch.tensor(2., requires_grad=True)
    with hl.edit_calls(model, SDPA, lambda call: call.output*factor): model(x)[..., 0].sum().backward()
    assert factor.grad and x.grad.any()
    with hl.edit_calls(model, SDPA, lambda call: call.output.detach()*2 + 0*call.output): step(model, x)
    assert not model.blocks[0].qkv.weight.grad.any()


@pytest.mark.parametrize("f, function", [(lambda t: t.relu_(), torch.Tensor.relu_), (lambda t: F.relu(t, True), F.relu),
                                         (lambda t: F.relu(t, inplace=True), F.relu), (lambda t: t.add_(1),
                                                                                       operator.iadd),
                                         (lambda t: torch.exp(t, out=t), torch.exp)])
def test_an_edit_of_a_call_in_place_is_written_into_its_tensor(f, function, x):
    def forward(t):
        t = t.clone()
        f(t)  # what it returns is ignored, as models do
        return t*1
    grad = "exp" not in function.__name__
    with torch.set_grad_enabled(grad):
        before = Returns(forward)(x)
        with hl.edit_calls(model := Returns(forward), function, hl.scale(3)): out = model(x)
    assert torch.equal(out, 3*before)
    if not grad: return
    expected, = torch.autograd.grad(3*before.sum(), x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], expected)


def test_in_place_without_version_counters(x):
    def forward(t):
        t = t.clone()
        t.relu_()
        return t
    with torch.inference_mode(), hl.edit_calls(model := Returns(forward), torch.Tensor.relu_, hl.scale(3)):
        assert torch.equal(model(x), 3*x.relu())


def test_a_function_that_returns_what_it_was_given_is_not_written_into(x):
    model = Returns(lambda t: t + t.contiguous())
    with hl.edit_calls(model, torch.Tensor.contiguous, hl.scale(3)): assert torch.equal(model(x), x + 3*x)
    model = Returns(lambda t: t + F.dropout(t, .5, False))
    with hl.edit_calls(model, F.dropout, hl.scale(3)): assert torch.equal(model(x), x + 3*x)


def test_a_call_in_place_that_is_left_is_as_it_was(x):
    "Through views, under leaves, and where only what a tensor is changes."
    def forward(t):
        t = t.clone()
        t[:, 1].mul_(2).add_(1)
        t.unsqueeze_(0).squeeze_(0)
        torch.sin(t.detach(), out=torch.empty_like(t))
        first = t[:, 0] + 1
        F.dropout(F.relu(first, True), 0.5, False, True)
        rest = t[:, 1:] - 1
        rest[0].relu_()
        return torch.cat([first[:, None], rest], 1)

    functions = [torch.Tensor.relu_, torch.Tensor.mul_, torch.Tensor.add_, torch.Tensor.unsqueeze_,
                 torch.Tensor.squeeze_, F.relu, F.dropout,
                 torch.sin]
    before, = torch.autograd.grad(Returns(forward)(x).pow(2).sum(), x)
    with hl.edit_calls(model := Returns(forward), functions, lambda call: None) as edits: out = model(x)
    assert torch.equal(out, Returns(forward)(x)) and torch.equal(torch.autograd.grad(out.pow(2).sum(), x)[0], before)
    assert len(edits.names) == 9
    leaf = Returns(lambda t: t.mul_(2))
    with pytest.raises(RuntimeError, match="leaf"), hl.edit_calls(leaf, torch.Tensor.mul_, hl.scale(2)): leaf(x)
    with torch.no_grad(), hl.edit_calls(leaf, torch.Tensor.mul_, hl.scale(2)):
        before, address = x.clone(), x.data_ptr()
        assert leaf(x) is x and torch.equal(x, 4*before) and x.data_ptr() == address and x.is_leaf


def test_an_edit_may_work_in_place(x):
    model = Returns(torch.exp)
    with torch.no_grad(), hl.edit_calls(model, torch.exp, lambda call: call.output.mul_(2)):
        assert torch.equal(model(x), 2*x.exp())


# Checkpointing

@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dropout", [0., .3])
def test_a_checkpointed_layer_is_edited_again(reentrant, dropout, x):
    runs = []

    def f(call):
        runs.append(call.name)
        return call.output*torch.rand_like(call.output)

    def run(model):
        torch.manual_seed(3)
        with hl.edit_calls(model, [SDPA, torch.sigmoid], f), hl.edit_calls(model, operator.mul, hl.scale(2),
                                                                           names="*.1"):
            return step(model, x)

    expected = run(Model(dropout=dropout))
    n = len(runs)
    found = run(model := Model(lambda block, t: checkpoint(block, t, use_reentrant=reentrant), dropout=dropout))
    for a, b in zip(found, expected): torch.testing.assert_close(a, b)
    assert len(runs) == 3*n and nothing_left(model)
    assert runs[2*n:] == ["blocks.1/scaled_dot_product_attention#0", "blocks.1/sigmoid#0",
                          "blocks.0/scaled_dot_product_attention#0", "blocks.0/sigmoid#0"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_nested_checkpoints_and_the_whole_model(reentrant, x):
    def inner(block, t): return checkpoint(block, t, use_reentrant=reentrant)
    with hl.edit_calls(model := Model(), SDPA, hl.scale(2)): expected = step(model, x)
    with hl.edit_calls(model := Model(inner), SDPA, hl.scale(2)):
        found = step(lambda_net(model, reentrant), x)
    for a, b in zip(found, expected): torch.testing.assert_close(a, b)
    assert nothing_left(model)


def lambda_net(model, reentrant):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
        def forward(self, x): return checkpoint(self.model, x, use_reentrant=reentrant)
    return Whole()


def test_one_call_cannot_be_picked_where_layers_run_again(x):
    model = Model(lambda block, t: checkpoint(block, t, use_reentrant=False))
    with pytest.raises(RuntimeError, match="call= does not work with checkpointing"), hl.edit_calls(model, SDPA,
                                                                                                  hl.scale(2), call=0):
        step(model, x)
    assert nothing_left(model)
    with hl.edit_calls(model, SDPA, hl.scale(2), call=0), torch.no_grad(): model(x)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_function_would_run_again_without_the_edit(reentrant, x):
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
        def part(self, t): return torch.relu(self.linear(t))
        def forward(self, t): return checkpoint(self.part, t, use_reentrant=reentrant) + 1

    model = Inside()
    with pytest.raises(RuntimeError, match="edit_calls of /relu#0: a function is checkpointed here"):
        with hl.edit_calls(model, F.relu, hl.scale(2)): model(x)
    with hl.edit_calls(model, F.relu, lambda call: None), hl.edit_calls(model, F.linear, hl.scale(2)):
        found = step(model, x)
    model.part = lambda t: torch.relu(2*model.linear(t))
    for a, b in zip(found, step(model, x)): torch.testing.assert_close(a, b)
    del model.part
    with torch.no_grad(), hl.edit_calls(model, F.relu, hl.scale(2)): model(x.detach())


def test_a_rerun_does_not_change_how_calls_are_counted(x):
    "The model asks for gradients in its own pass, so layers run again in the middle of it."
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Returns(lambda t: t.sin().cos())
        def forward(self, t):
            out = torch.sin(checkpoint(self.block, t, use_reentrant=False))
            slope, = torch.autograd.grad(out.sum(), t)
            return torch.sin(out) + self.block(slope)

    names = []
    with hl.edit_calls(model := Twice(), [torch.sin, torch.add], lambda call: names.append(call.name)): model(x)
    assert names == ["block/sin#0", "/sin#0", "block/sin#0", "/sin#1", "block/sin#1", "/add#0"] and nothing_left(model)


# When an edit does not fit

def test_another_form_is_named_where_something_stumbles(model, x):
    with pytest.raises(RuntimeError) as raised, hl.edit_calls(model, SDPA, lambda call: call.output[..., :3],
                                                              names="blocks.0"):
        model(x)
    assert raised.value.__notes__ == [
        "edit_calls of blocks.0/scaled_dot_product_attention#0: Tensor((2, 2, 5, 4) torch.float32 cpu) became "
        "Tensor((2, 2, 5, 3) torch.float32 cpu)"]
    with pytest.raises(RuntimeError) as raised, hl.edit_calls(model, torch.add, lambda call: call.output.double(),
                                                              names="*.0"):
        model(x)
    assert "became Tensor((2, 5, 8) torch.float64 cpu)" in raised.value.__notes__[0]
    with pytest.raises(AttributeError) as raised, hl.edit_calls(model, SDPA, lambda call: (call.output, None)): model(x)
    assert "became tuple(0 (2, 2, 5, 4)" in raised.value.__notes__[0]
    with pytest.raises(ZeroDivisionError) as raised, hl.edit_calls(model, SDPA, hl.scale(2)):
        model(x)
        1/0
    assert not hasattr(raised.value, "__notes__") and nothing_left(model)


def test_a_call_in_place_keeps_its_form(x):
    model = Returns(lambda t: t.clone().relu_())
    for f in (lambda call: call.output.double(), lambda call: call.output[0], lambda call: 3.,
              lambda call: (call.output, 1)):
        with pytest.raises(ValueError, match="/relu_#0 works in place, so its output must keep its form"):
            with hl.edit_calls(model, torch.Tensor.relu_, f): model(x)


def test_what_cannot_be_replaced_is_refused(model, x):
    with pytest.raises(ValueError, match="returns nothing to replace"):
        hl.edit_calls(model, operator.setitem, hl.scale(2))
    with pytest.raises(TypeError, match=r"edit_calls calls f\(call\), but got <lambda>\(m, i, o\)"):
        hl.edit_calls(model, SDPA, lambda m, i, o: o)
    with pytest.raises(TypeError, match="must be a function"): hl.edit_calls(model, SDPA, 3)
    with pytest.raises(TypeError, match="is a layer, not a function"): hl.edit_calls(model, nn.ReLU, hl.scale(2))
    with pytest.raises(LookupError, match="no layer of this Model matches 'nowhere'"):
        hl.edit_calls(model, SDPA, hl.scale(2), "nowhere")
    assert nothing_left(model)


def test_what_an_edit_raises_says_where(model, x):
    with pytest.raises(AttributeError) as raised, hl.edit_calls(model, SDPA, lambda t: t.mul(2)): model(x)
    said = "raised in edit_calls of blocks.0/scaled_dot_product_attention#0; the function is called as f(call)"
    assert said in raised.value.__notes__
    assert nothing_left(model)


# Silence

def test_silence_is_reported(model, x):
    with pytest.warns(hl.HookWarning,
                      match=r"log_softmax: never called while the model ran; it called softmax \(in the model"):
        with hl.edit_calls(model, torch.log_softmax, hl.scale(2)): model(x)
    with pytest.warns(hl.HookWarning, match="not called in the layers selected by names='head', but in blocks.0"):
        with hl.edit_calls(model, SDPA, hl.scale(2), "head"): model(x)
    with pytest.warns(hl.HookWarning, match="the model was not called"):
        with hl.edit_calls(model, SDPA, hl.scale(2)): pass


def test_compiled_code_is_not_edited_and_that_is_said(model, x):
    expected = model(x)
    model.blocks[1].compile(backend="eager", fullgraph=True)
    with pytest.warns(hl.HookWarning, match=r"blocks\.1: compiled.*force_eager"), hl.edit_calls(model, SDPA,
                                                                                                hl.scale(0.)) as edits:
        model(x)
    assert edits.names == ["blocks.0/scaled_dot_product_attention#0"]
    whole = torch.compile(Model(), backend="eager")
    with pytest.warns(hl.HookWarning, match="the model: compiled"), hl.edit_calls(whole, SDPA, hl.scale(0.)):
        torch.testing.assert_close(whole(x), expected)
    with torch.compiler.set_stance("force_eager"), hl.edit_calls(whole, SDPA, hl.scale(0.)) as edits: whole(x)
    assert len(edits.names) == 2
    inner, compiled = (other := Model()), torch.compile(other, backend="eager")
    with pytest.warns(hl.HookWarning, match="scaled_dot_product_attention: "), hl.edit_calls(inner, SDPA, hl.scale(0.)):
        compiled(x)


def test_layers_that_torch_runs_as_one_function_are_named():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad(), pytest.warns(hl.HookWarning, match="set_fastpath_enabled"), hl.edit_calls(layer, SDPA,
                                                                                                    hl.scale(0.)):
        layer(torch.randn(2, 5, 8))


# The model is as it was

@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["edit", "body", "model", "backward"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_nothing_is_left(error, where, checkpointed, x):
    n = [0]

    def run(block, t): return checkpoint(block, t, use_reentrant=False) if checkpointed else block(t)
    def broken(m, given):
        if error and where == "model": raise error

    def f(call):
        n[0] += 1
        if error and where == "edit": raise error
        if error and where == "backward" and n[0] > 2: raise error
        return call.output*2

    model = Model(run)
    state, before = copy.deepcopy(model.state_dict()), step(model, x)
    foreign = model.blocks[1].gate.register_forward_pre_hook(broken)
    try:
        with hl.edit_calls(model, SDPA, f) as edits:
            step(model, x)
            if error and where == "body": raise error
    except (ValueError, KeyboardInterrupt): assert error
    foreign.remove()
    assert nothing_left(model) and edits.removed and all_equal(list(model.state_dict().values()), list(state.values()))
    assert all_equal(step(model, x), before)


def test_a_pass_after_one_that_was_broken_off(x):
    model, fails = Model(lambda block, t: checkpoint(block, t, use_reentrant=False)), [False]

    def f(call):
        if fails[0] and call.layer == "blocks.0": raise KeyboardInterrupt
        return call.output*2
    with hl.edit_calls(model, SDPA, f) as edits:
        expected = [t.clone() for t in step(model, x)]
        out = model(x)
        fails[0] = True
        with pytest.raises(KeyboardInterrupt): out.sum().backward()
        fails[0] = False
        assert all_equal(step(model, x), expected) and len(edits.names) == 2


def test_removed_while_the_model_runs(model, x):
    handle = model.blocks[1].register_forward_pre_hook(lambda m, given: edits.remove())
    edits = hl.edit_calls(model, SDPA, hl.scale(2))
    model(x)
    handle.remove()
    assert edits.removed and nothing_left(model) and "removed" in repr(edits) and len(edits.names) == 1


def test_copies_are_not_edited_and_edits_hold_nothing(x):
    model = Model()
    before = model(x)
    edits = hl.edit_calls(model, SDPA, hl.scale(2))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))): assert torch.equal(twin(x), before)
    assert not torch.equal(model(x), before) and {a.kind for a in hl.hooks_on(model)} == {"edit_calls", "pass"}
    hl.remove_hooks(model)
    assert edits.removed and torch.equal(model(x), before)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_any_order_of_removing(model, x):
    before = model(x)
    for order in (0, -1):
        on = [hl.edit_calls(model, SDPA, hl.scale(2)), hl.hook_calls(model, SDPA), hl.edit_calls(model, torch.add,
                                                                                                 hl.scale(3))]
        model(x)
        while on:
            on.pop(order).remove()
            model(x)
        assert nothing_left(model) and torch.equal(model(x), before)


def test_threads_do_not_mix(model):
    together, given, found = threading.Barrier(2), [torch.randn(2, 5, 8) for _ in range(2)], {}
    model.blocks[1].register_forward_pre_hook(lambda m, i: (together.wait(5), None)[1])
    with torch.no_grad(), hl.edit_calls(model, SDPA, lambda call: call.output*(call.number + 2)):
        def run(n):
            with torch.no_grad(): found[n] = model(given[n])
        threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
        for t in threads: t.start()
        for t in threads: t.join()
    model.blocks[1]._forward_pre_hooks.clear()
    with torch.no_grad(), hl.edit_calls(model, SDPA, hl.scale(2)):
        assert all(torch.equal(found[n], model(given[n])) for n in range(2))


def test_subclasses_and_vmap(x):
    class Named(torch.Tensor): pass
    model = Returns(torch.relu)
    with hl.edit_calls(model, F.relu, hl.scale(2)): out = model(x.detach().as_subclass(Named))
    assert type(out) is Named and torch.equal(out.as_subclass(torch.Tensor), 2*x.relu())
    model = Returns(torch.vmap(lambda t: t.relu()))
    with hl.edit_calls(model, F.relu, hl.scale(2)): assert torch.equal(model(x), 2*x.relu())


def test_nothing_is_shown_before_the_first_pass(model):
    edits = hl.edit_calls(model, [SDPA, torch.add], hl.scale(2))
    assert repr(edits) == "edit_calls of scaled_dot_product_attention, add: nothing yet"
    edits.remove()

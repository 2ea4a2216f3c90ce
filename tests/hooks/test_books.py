"""What a hooked model carries into copies, pickles and checkpoints: nothing of ours, and all that is others'."""
import copy
import gc
import io
import pickle
import weakref
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

import hooklab as hl
from hooklab.hooks.books import Book, register
from support.forks import forked_without

DICTIONARIES = [name for name in vars(nn.Module()) if name.endswith(("_hooks", "_with_kwargs", "_always_called"))]
KINDS = "forward", "forward_pre", "backward", "backward_pre"


def theirs(m, *given): pass


def books(model): return {(name, d): getattr(m, d) for name, m in model.named_modules() for d in DICTIONARIES}


def small(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(4, 2)))


def all_of_ours(model):
    "Everything of hooklab's that can be attached to a layer, a parameter or the model."
    return [*(hl.Hooks(model, lambda m, *given: None, kind=kind, names="*", with_kwargs=kind in KINDS[:2]) for kind in KINDS),
            hl.edit_output(model, lambda m, i, o: o, names="0"), hl.ActivationStats(grads=True).on(model), hl.find_nan(model),
            hl.state_dict_hook(model, lambda *given: None), hl.state_dict_hook(model, lambda *given: None, before=True),
            hl.state_dict_hook(model, lambda *given: None, load=True), hl.state_dict_hook(model, lambda *given: None, load=True, before=True),
            hl.Timeline(model), hl.parameter_hooks(model, quiet=True)]


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("with_theirs", [False, True])
def test_copies_are_as_without_us(way, with_theirs):
    "The dictionaries of a copy are what they would be had hooklab never been there, down to their class."
    model = small()
    if with_theirs:
        model[0].register_forward_hook(theirs, with_kwargs=True)
        model.register_forward_pre_hook(theirs)
    def copied():
        if way == "deepcopy": return copy.deepcopy(model)
        if way == "pickle": return pickle.loads(pickle.dumps(model))
        torch.save(model, file := io.BytesIO())
        file.seek(0)
        return torch.load(file, weights_only=False)
    without, before = books(copied()), books(model)
    ours = all_of_ours(model)
    for _ in range(2): model(torch.randn(2, 3)).sum().backward()
    while_on, twin = books(model), copied()
    assert any(type(book) is Book for book in while_on.values())
    assert books(twin) == without and {type(book) for book in books(twin).values()} == {OrderedDict} and hl.hooks_on(twin) == hl.hooks_on(twin)
    assert sum(h.ours for h in hl.hooks_on(twin)) == 0 and sum(not h.ours for h in hl.hooks_on(twin)) == 2*with_theirs
    twin(torch.randn(2, 3)).sum().backward()
    for one in ours: one.remove()
    after = books(model)
    assert all(after[key] is before[key] for key in before) and list(map(list, after.values())) == list(map(list, before.values()))


def test_loads_where_only_weights_are_allowed():
    "`torch.save(model)` while recording, and `weights_only=True` with the classes of the model allowed, as without hooklab."
    model = small()
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU]):
        def size():
            torch.save(model, file := io.BytesIO())
            file.seek(0)
            torch.load(file, weights_only=True)
            return file.getvalue().count(b"hooklab")
        assert size() == 0
        ours = all_of_ours(model)
        assert size() == 0
        for one in ours: one.remove()
        assert size() == 0


@pytest.mark.parametrize("options", [{}, {"prepend": True}, {"with_kwargs": True}, {"with_kwargs": True, "prepend": True}, {"always_call": True}])
@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_what_we_write_is_what_torch_writes(kind, options):
    "`register` makes the entries itself: on this release of torch too, they are those of torch's own function."
    if kind == "forward_pre" and "always_call" in options: pytest.skip("torch has it for forward hooks")
    by_torch, by_us = small(), small()
    for model in (by_torch, by_us): getattr(model, f"register_{kind}_hook")(theirs, with_kwargs=True)
    handle, entry = getattr(by_torch, f"register_{kind}_hook")(print, **options), register(by_us, {kind: print}, options)
    def written(model): return {d: [(f, number == numbers(model)[0]) for number, f in getattr(model, d).items()] for d in DICTIONARIES}
    def numbers(model): return sorted({number for d in DICTIONARIES for number in getattr(model, d)})
    assert written(by_torch) == written(by_us)
    assert handle.id != entry.places[0][2] and len(numbers(by_us)) == 2
    later = by_us.register_forward_hook(theirs)
    assert later.id > entry.places[0][2]
    later.remove()
    handle.remove()
    entry.remove()
    assert written(by_torch) == written(by_us)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(["ours", "theirs", "first"]), st.booleans(), st.integers(0, 9)), max_size=12))
def test_hooks_of_others_come_and_go(steps):
    "Whatever is attached and removed in whatever order, by handles that were made before, during or after ours: a list is the model of it."
    m, expected, live = nn.Identity(), [], []
    own = m._forward_hooks
    for who, attach, n in steps:
        if attach or not live:
            def f(m, i, o): pass
            if who == "ours": live.append((f, register(m, {"forward": f}), True))
            else: live.append((f, m.register_forward_hook(f, prepend=who == "first"), False))
            expected.insert(0 if who == "first" else len(expected), f)
        else:
            f, handle, _ = live.pop(n % len(live))
            handle.remove()
            expected.remove(f)
        assert list(m._forward_hooks.values()) == expected
        mine = {f for f, _, ours in live if ours}
        assert list(copy.deepcopy(m)._forward_hooks.values()) == [f for f in expected if f not in mine]
    while live:
        f, handle, _ = live.pop()
        handle.remove()
        expected.remove(f)
        assert list(m._forward_hooks.values()) == expected
    register(m, {"forward": theirs}).remove()
    assert m._forward_hooks is own and not own


def test_a_class_with_a_method_of_its_own_is_asked():
    "A layer may want to know of its hooks, or to refuse them."
    class Counting(nn.Linear):
        def register_forward_hook(self, *args, **kwargs):
            self.asked = True
            return super().register_forward_hook(*args, **kwargs)
    model = nn.Sequential(Counting(2, 2))
    with hl.hook_outputs(model, names="0") as hooks: model(torch.ones(1, 2))
    assert model[0].asked and hooks["0"].n_calls == 1 and not any(books(model).values())
    assert not any(type(book) is Book for book in books(model).values())


def test_hook_that_removes_itself_while_ours_is_on():
    "A lazy layer does so in its first call."
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with hl.hook_outputs(model, names="*") as hooks: model(torch.randn(4, 2))
    assert [h.n_calls for h in hooks] == [1, 1] and not any(books(model).values())


def test_a_shallow_copy_runs():
    "It shares the dictionaries of the original, in which stand-ins may be."
    calls, m = [], nn.Linear(2, 2)
    m.register_forward_hook(lambda *given: calls.append(given))
    shared = copy.copy(m)
    with hl.hook_output(m): shared(torch.ones(1, 2))
    shared(torch.ones(1, 2))
    assert len(calls) == 2


def test_dictionary_that_others_replace():
    "Code that clears a layer's hooks by force takes ours too, and gets no old dictionary back."
    m = nn.Linear(2, 2)
    h = hl.hook_output(m)
    m._forward_hooks.clear()
    m(torch.ones(1, 2))
    assert h.n_calls == 0
    h = hl.hook_output(m)
    m._forward_hooks = new = OrderedDict()
    h.remove()
    assert m._forward_hooks is new


def test_a_hooked_model_can_be_sent_to_another_process(tmp_path):
    "As a whole, without hooklab there."
    model = small()
    ours = all_of_ours(model)
    torch.save(model, tmp_path/"model.pt")
    def load(): print(len(list(torch.load(tmp_path/"model.pt", weights_only=False).parameters())))
    done = forked_without("hooklab", load)
    assert done.stdout.strip() == "4", done.stderr
    for one in ours: one.remove()


def test_hooked_model_is_freed():
    "Once what was attached is off and gone, so is the model, without the garbage collector."
    gc.collect()
    gc.disable()
    try:
        for i in range(13):
            model = small()
            ours = all_of_ours(model)
            assert len(ours) == 13
            model(torch.randn(2, 3)).sum().backward()
            for one in ours: one.remove()
            held, ref = ours[i], weakref.ref(model)
            del model, ours, one
            if isinstance(held, hl.Hooks): assert ref() is None, held
            del held
            assert ref() is None, i
    finally: gc.enable()


@pytest.mark.parametrize("attached", ["before", "after"])
def test_compiled(attached):
    "A book neither breaks the graph nor has anything compiled again while it stays, nor when the dictionary is back."
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x, compiled = small(), torch.randn(5, 3), []
    def backend(graph, inputs):
        compiled.append(graph)
        return graph
    run = torch.compile(model, backend=backend, fullgraph=True)
    plain = model(x)
    if attached == "after":
        run(x)
        assert len(compiled) == 1
    hooks = hl.hook_outputs(model, names=["0", "2"])
    before = len(compiled)
    for _ in range(3): assert torch.equal(run(x), plain)
    assert [h.stored is not None for h in hooks] == [True, True] and len(compiled) == before + 1
    hooks.remove()
    before = len(compiled)
    for _ in range(3): assert torch.equal(run(x), plain)
    assert len(compiled) <= before + 1  # without hooks it is other code, and compiled once if it was not
    again = len(compiled)
    for _ in range(2):
        with hl.hook_outputs(model, names=["0", "2"]) as hooks: run(x)
        assert hooks["0"].stored is not None
        run(x)
    assert len(compiled) <= again + 2
    torch._dynamo.reset()

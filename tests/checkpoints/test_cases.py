"The cases of tests/bench with checkpoints are sound: their truth can be had, and they are what they say."
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.bench import checkpoint_cases as cases, checkpoint_changes as changes, checkpoint_judges as judges

ALWAYS = "torchvision vit", "torchvision vgg"
MORE = "transformers bert", "transformers llama"


@pytest.fixture(params=[*ALWAYS, *MORE])
def net(request):
    library = request.param.partition(" ")[0]
    pytest.importorskip(library)
    return request.param


def entries_of(checkpoint, truth):
    for key in truth.root: checkpoint = checkpoint[key]
    return checkpoint


def test_truth_comes_out_of_the_checkpoint(net):
    seen = set()
    for _, kind, model, checkpoint, truth in cases.misfits([net]):
        seen.add(kind.name)
        names, entries, back = model.state_dict(), entries_of(checkpoint, truth), cases.rebuild(checkpoint, truth)
        used = {entry for source in truth.sources.values() for entry in source.names}
        assert set(entries) - used == truth.unused and not used & truth.unused, kind
        assert set(back) == set(truth.right) <= set(names) and truth.undecidable | truth.near <= set(back), kind
        for name, t in truth.right.items():
            assert t.shape == names[name].shape and t.dtype == names[name].dtype, (kind, name)
            assert judges.equals(back[name], t, name in truth.near), (kind, name)
        found = SimpleNamespace(state_dict=back, sure={}, certain=False, unused=truth.unused, other_shape=[],
                                missing=[name for name in names if name not in back])
        grade = judges.judge_misfit(truth, found, names)
        assert grade.right and not grade.not_unused, (kind, grade)
    assert len(seen) > 20


def test_no_values_are_given_away(net):
    state, model = cases.state_of(net), cases.model_of(net).state_dict()
    # nothing but counts, and buffers that are always the same, is equal
    assert not [name for name, t in state.items() if t.is_floating_point() and torch.equal(t, model[name])]


def test_cases_are_the_same_each_time(net):
    for kind in ("invented words", "opaque names, in another order"):
        (first,), (again,) = (list(cases.misfits([net], [kind])) for _ in range(2))
        assert list(first[3]) == list(again[3]) and all(map(torch.equal, first[3].values(), again[3].values()))


def test_grades_tell_what_is_wrong_and_called_certain():
    (_, _, model, _, truth), = cases.misfits(["torchvision vit"], ["opaque names, in order"])
    names = list(model.state_dict())
    clear = next(name for name in names if name not in truth.undecidable)
    twin = next(name for name in names if name in truth.undecidable)
    bad = truth.right | {clear: truth.right[clear] + 1, twin: truth.right[twin] + 1}
    found = SimpleNamespace(state_dict=bad, sure=dict.fromkeys(names, "certain"), certain=False, unused=[], missing=[])
    grade = judges.judge_misfit(truth, found, names)
    assert grade.wrong == [clear] and set(grade.wrong_and_certain) == {clear, twin} and not grade.right
    assert set(grade.unearned) == truth.undecidable - {twin}
    found.sure = {}
    assert judges.judge_misfit(truth, found, names).wrong_and_certain == []
    found.state_dict = {}
    grade = judges.judge_misfit(truth, found, names)
    assert grade.wrong == [] and clear in grade.left_open and not grade.right


def test_undecidable_is_what_a_swap_leaves_as_it_is():
    sizes = {"a.q": (4, 4), "a.k": (4, 4), "a.o": (4, 6), "b.0": (4, 6), "b.1": (4, 6),
             "c.layer_0": (4, 6), "c.layer_1": (4, 6)}
    state = {name + ".weight": torch.randn(size) for name, size in sizes.items()}
    state |= {"one.weight": torch.ones(7), "two.weight": torch.ones(7)}  # either is right, as they are equal
    assert cases.swappable(state) == cases.interchangeable(state) == {"a.q.weight", "a.k.weight"}
    assert cases.shared_shapes(state) == {name + ".weight" for name in sizes}


def test_half_loads_are_halves(net):
    seen = set()
    for _, kind, model, given in cases.halves([net]):
        seen.add(kind.loud)
        before = {name: t.clone() for name, t in model.state_dict().items()}
        said = model.load_state_dict(given, strict=False)
        after = model.state_dict()
        come = sum(name in given for name in after)
        assert all(torch.equal(t, given.get(name, before[name])) for name, t in after.items())
        lacking = {name for name in after if name not in given}  # norms do not ask older checkpoints for their counts
        assert {n for n in lacking if "num_batches" not in n} <= {n for n in said.missing_keys if n in after} <= lacking
        assert come < .8*len(after) if kind.loud else come > .6*len(after), (kind.name, come)
        model.load_state_dict(before)
    assert seen == {True, False}


def test_equal_checkpoints_are_equal(net):
    state = cases.state_of(net)
    model = cases.model_of(net)
    for make in cases.EQUAL.values():
        model.load_state_dict(make(state, cases.generator_of(net)))
        assert all(map(torch.equal, model.state_dict().values(), state.values()))


class TestChanges:
    def test_are_what_they_say(self, net):
        seen = set()
        for _, kind, a, b, truth in changes.changes([net]):
            seen.add(kind)
            assert set().union(*truth.rows.values(), {"equal"}) <= changes.RELATIONS
            other = {name: next((b[n] for n in b if n == name or n.endswith("." + name)), None) for name in a}
            for name, t in a.items():
                right = truth.rows.get(name, {"equal"})
                assert (other[name] is None) == (right == {"only in a"}), (kind, name)
                if other[name] is None: continue
                assert torch.equal(t, other[name].to(t.dtype)) == ("equal" in right), (kind, name)
                self.check(right, truth.numbers.get(name), t, other[name])
            new = {name for name in b if name not in truth.rows and name not in a}
            assert all(any(name.endswith("." + n) for n in a) for name in new), kind
        assert len(seen) > 24

    def check(self, right, number, a, b):
        if right == {"scaled"}: torch.testing.assert_close(b, a*number)
        if right == {"transposed"}: assert torch.equal(b, a.T)
        if right == {"zeros"}: assert not b.count_nonzero()
        if right == {"not finite"}: assert not b.isfinite().all() and a.isfinite().all()
        if right == {"permuted"}: assert torch.equal(b.flatten().sort()[0], a.flatten().sort()[0])
        if right == {"rounded"}: assert torch.equal(b.to(a.dtype), a.to(getattr(torch, number)).to(a.dtype))

    def test_grades(self):
        (_, _, a, b, truth), = changes.changes(["torchvision vit"], ["one tensor times a factor"])
        (name, factor), = truth.numbers.items()
        row = SimpleNamespace(name="model." + name, relation="scaled", number=factor*1.001)
        found = SimpleNamespace(rows=[row], verdict="")
        names = judges.names_of_change(a, b, truth)
        assert judges.judge_change(truth, found, names).right
        row.number = factor*1.1
        assert judges.judge_change(truth, found, names).numbers == [name]
        row.relation = "changed"
        assert judges.judge_change(truth, found, names).rows == {name: "changed"}

    def test_merging_adds_what_the_adapter_adds(self):
        for kind, times in ("an adapter merged once", 1), ("an adapter merged twice", 2):
            (_, _, a, b, truth), = changes.changes(["torchvision vit"], [kind])
            for name in truth.rows:
                if name not in b: continue
                layer = name.removesuffix(".weight")
                added = a[layer + ".lora_B.weight"] @ a[layer + ".lora_A.weight"]
                torch.testing.assert_close(b[name] - a[name], times*added, atol=1e-6, rtol=1e-3)


def test_a_model_that_is_changed_for_a_case_comes_with_it():
    (_, _, model, _, truth), = cases.misfits(["torchvision vit"], ["weight_norm, older names"])
    assert model is truth.model and any(isinstance(layer, nn.utils.parametrize.ParametrizationList)
                                        for layer in model.modules())

"compare of two state dicts or files of weights. The figures are those of tests/bench."
import pytest
import torch
from torch import nn

import hooklab as hl
from support.checkpoints import filled, net, renamed

pytestmark = pytest.mark.usefixtures("one_thread")


def state(seed=3): return {name: t.clone() for name, t in filled(net(), seed).state_dict().items()}


def row(found, name): return next(row for row in found.rows if row.name == name)


def one_became(change, name="inner.0.weight"):
    "What is said of one tensor that was changed."
    a = state()
    found = hl.compare(a, a | {name: change(a[name])})
    assert not found.same and [r.name for r in found.changed] == [name]
    return row(found, name)


@pytest.mark.parametrize(("change", "relation", "words"), [
    (lambda t: t*-.37, "scaled", "by -0.37"), (lambda t: t.half().float(), "rounded", "float16"),
    (lambda t: t.to(torch.float8_e5m2).float(), "rounded", "float8_e5m2"), (lambda t: t*0, "zeros", ""),
    (lambda t: t.flip(1), "permuted", "columns"), (lambda t: t.flip(0), "permuted", "rows"),
    (lambda t: t.flatten().roll(1).view_as(t), "permuted", "single"), (lambda t: t + .01*t.square(), "changed", ""),
    (lambda t: t.masked_fill(t > t.quantile(.9), -torch.inf), "not finite", "of 48 numbers"),
    (lambda t: t.T.contiguous(), "transposed", "8×6 became 6×8"), (lambda t: t[:4], "changed", "8×6 became 4×6"),
    (lambda t: t.bfloat16(), "rounded", "bfloat16"), (lambda t: t.to_sparse()*2, "scaled", "by 2"),
])
def test_what_became_of_one_tensor(change, relation, words):
    said = one_became(change)
    assert said.relation == relation and words in said.words


def test_a_square_matrix_that_is_transposed_is_not_called_permuted():
    a = {"w": torch.rand(9, 9)}
    assert row(hl.compare(a, {"w": a["w"].T}), "w").relation == "transposed"


def test_one_number_has_no_relation_but_equal_or_changed():
    a = {"scale": torch.tensor(2.5), "n": torch.tensor(3)}
    found = hl.compare(a, {"scale": torch.tensor(5.), "n": torch.tensor(3)})
    assert row(found, "scale").relation == "changed" and row(found, "n").relation == "equal"


def test_equal_ones_and_those_with_a_prefix_on_one_side():
    a = state()
    assert hl.compare(a, state()).same and "equal" in hl.compare(a, state()).verdict
    for form in ("module.{}", "net.encoder.{}", "_orig_mod.{}"):
        assert hl.compare(a, renamed(form)(a)).same and hl.compare(renamed(form)(a), a).same
    nan = a | {"norm.bias": torch.full((6,), torch.nan)}
    assert hl.compare(nan, {name: t.clone() for name, t in nan.items()}).same


def test_names_on_one_side_only_and_a_roll_up_by_layer():
    a = state()
    b = {name: t + (t.is_floating_point() and name.startswith("first")) for name, t in a.items() if "last" not in name}
    found = hl.compare(a, b | {"extra.table": torch.ones(3, 2)})
    assert {r.name: r.relation for r in found.changed if r.relation.startswith("only")} == {
        "last.weight": "only in a", "last.bias": "only in a", "extra.table": "only in b"}
    assert list(found.layers()) and "changed" in found.layers()["first"] and "inner.0" not in found.layers()


def adapter(zero):
    g = torch.Generator().manual_seed(1)
    second = torch.zeros(8, 2) if zero else torch.randn(8, 2, generator=g)
    return {"inner.0.lora_A.weight": torch.randn(2, 6, generator=g), "inner.0.lora_B.weight": second}


def test_adapters_that_change_nothing_and_those_that_are_merged():
    a, name = state(), "inner.0.weight"
    assert "changes nothing" in hl.compare(a, a | adapter(True)).verdict
    given = adapter(False)
    assert "nothing" not in hl.compare(a, a | given).verdict
    added = given["inner.0.lora_B.weight"] @ given["inner.0.lora_A.weight"]
    once, twice = (hl.compare(a | given, a | {name: a[name] + n*added}).verdict for n in (1, 2))
    assert "merged once" in once and "twice" not in once and "merged twice" in twice
    assert "merged twice" in hl.compare(a, a | given | {name: a[name] + added}).verdict


def test_an_average_that_is_the_model_itself():
    model = net()
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    assert "the average is the model itself" in hl.compare(model.state_dict(), average.state_dict()).verdict
    with torch.no_grad(): model.first.weight.add_(1)
    assert "itself" not in hl.compare(model.state_dict(), average.state_dict()).verdict


def test_files_are_told_apart_by_content_and_compared_with_state_dicts(tmp_path):
    from safetensors.torch import save_file
    save_file(state(), tmp_path/"a.bin")
    torch.save({"model": state(), "step": 3}, tmp_path/"b.safe")
    assert hl.compare(tmp_path/"a.bin", str(tmp_path/"b.safe")).same and hl.compare(state(), tmp_path/"b.safe").same
    hl.record(net(), tmp_path/"run", torch.randn(4, 5))
    with pytest.raises(TypeError, match="record of one pass"): hl.compare(state(), tmp_path/"run")


def test_two_models_are_compared_as_before():
    model = net().eval()
    assert hl.compare(model, model, torch.randn(4, 5)).same
    with pytest.raises(TypeError, match="is a model"): hl.compare(model.state_dict(), model)
    with pytest.raises(TypeError, match="takes no inputs"):
        hl.compare(model.state_dict(), model.state_dict(), torch.ones(1))


def test_quantized_meta_and_complex_tensors():
    q = {"w": torch.quantize_per_tensor(torch.rand(5, 4), .02, 0, torch.qint8)}
    assert hl.compare(q, {"w": q["w"].dequantize()}).same
    c = {"w": torch.randn(4, 3, dtype=torch.complex64)}
    assert row(hl.compare(c, {"w": c["w"]*3}), "w").relation == "scaled"
    with pytest.raises(ValueError, match="meta"): hl.compare({"w": torch.rand(3)}, {"w": torch.rand(3, device="meta")})


def test_nothing_is_changed_by_comparing():
    a, b = state(), {name: t.clone() + 1 for name, t in state().items()}
    before = {name: t.clone() for name, t in b.items()}
    hl.compare(a, b)
    assert all(map(torch.equal, b.values(), before.values()))


def test_empty_ones_and_empty_tensors():
    assert hl.compare({"w": torch.empty(0, 3)}, {"w": torch.empty(0, 3)}).same
    found = hl.compare(nn.Linear(2, 2).state_dict(), {"w": torch.empty(0)})
    assert "only in" in str(found)

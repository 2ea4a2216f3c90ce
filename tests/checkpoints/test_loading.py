"Errors of load_state_dict explain themselves, loads that load little warn once, and preflight says what is not loaded."
import copy
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checkpoints.loading import weights_not_loaded
from hooklab.hooks.copies import HookWarning
from support.checkpoints import Attends, filled, net, renamed

pytestmark = pytest.mark.usefixtures("one_thread")


def note_of(model, given, load=None, **options):
    "The note on the error of this load, without torch's own text."
    with pytest.raises(RuntimeError) as raised, hl.explain_errors(model):
        (load or model).load_state_dict(given, **options)
    return "\n".join(raised.value.__notes__)


def line_in(note): return re.search(r"loads them: `(.*?)`", note)[1]


def warned_by(model, given, load=None, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with hl.explain_errors(model): (load or model).load_state_dict(given, strict=False, **options)
    return [w for w in found if w.category is HookWarning]


def outside(given): return {"hparams": {"lr": 1e-3}, "weights": given, "epoch": 7}
def transposed(given): return {name: t.T if t.dim() == 2 else t for name, t in given.items()}


CHANGES = {
    "DataParallel": renamed("module.{}"), "compiled": renamed("_orig_mod.{}"), "a prefix": renamed("student.net.{}"),
    "nested": outside, "nested with a prefix": lambda given: outside(renamed("net.{}")(given)),
    "transposed": transposed,
    "older norms": lambda given: {re.sub(r"^norm\.weight$", "norm.gamma", n): t for n, t in given.items()},
    "renamed": lambda given: {name.replace("first", "entry").replace("last", "exit"): t for name, t in given.items()},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_the_line_in_the_note_loads_all(kind):
    model, saved = net(), filled(net(), 3).state_dict()
    given = CHANGES[kind](saved)
    note = note_of(model, given)
    exec(line_in(note), {"model": model, "state_dict": given, "hl": hl})
    assert all(map(torch.equal, model.state_dict().values(), saved.values())), note
    assert not hl.hooks_on(model)


def test_what_was_loaded_before_the_error_is_said():
    model, saved = net(), filled(net(), 3).state_dict()
    del saved["first.bias"]
    n = len(model.state_dict())
    note = note_of(model, saved)
    assert f"loaded {n - 1} of {n} tensors, so the model is only partly loaded" in note and "`first.bias`" in note
    assert torch.equal(model.last.weight, saved["last.weight"])
    assert "so the model is unchanged" in note_of(net(), renamed("x.{}")(saved))


def test_another_size_is_named_with_both_shapes():
    model, other = net(), filled(net(n=9), 3)
    note = note_of(model, other.state_dict())
    assert "`last.weight` has shape (9, 6) in the checkpoint and (3, 6) in the model" in note
    exec(line_in(note), {"model": model, "state_dict": other.state_dict(), "hl": hl})
    assert torch.equal(model.first.weight, other.first.weight)


def test_a_checkpoint_of_another_model_names_the_first_parts_that_differ():
    note = note_of(net(), nn.LSTM(5, 7, 2).state_dict())
    assert "another model" in note and "first.weight" in note and "weight_ih_l0" in note and "loads them" not in note


@pytest.mark.parametrize(("where", "text"), [("1", "model[1]"), ("0.first", "model[0].first")])
def test_a_part_of_a_model_is_called_as_code_calls_it(where, text):
    model = nn.Sequential(net(), net())
    part = model.get_submodule(where)
    saved = {name: t + 1 for name, t in part.state_dict().items()}
    note = note_of(model, {"k." + name: t for name, t in saved.items()}, load=part)
    assert f"`{text}.load_state_dict(" in note
    exec(line_in(note), {"model": model, "state_dict": {"k." + name: t for name, t in saved.items()}, "hl": hl})
    assert all(map(torch.equal, part.state_dict().values(), saved.values()))


def test_a_compiled_model_and_one_in_a_wrapper():
    saved = filled(net(), 3).state_dict()
    for wrapped in (torch.compile(net()), nn.DataParallel(net())):
        note = note_of(wrapped, saved)
        exec(line_in(note), {"model": wrapped, "state_dict": saved, "hl": hl})
        assert all(map(torch.equal, wrapped.state_dict().values(), saved.values()))
        (one,) = warned_by(wrapped, saved)
        assert "loaded 0 of" in str(one.message)


def test_assign_is_kept_in_the_line_and_loads_into_meta():
    with torch.device("meta"): model = net()
    saved = filled(net(), 3).state_dict()
    line = line_in(note_of(model, renamed("a.b.{}")(saved), assign=True))
    assert "assign=True" in line and all(p.is_meta for p in model.parameters())
    exec(line, {"model": model, "state_dict": renamed("a.b.{}")(saved), "hl": hl})
    assert not any(p.is_meta for p in model.parameters()) and torch.equal(model.first.weight, saved["first.weight"])


def test_nothing_is_loaded_by_an_explanation():
    model, saved = net(), filled(net(), 3).state_dict()
    before = copy.deepcopy(model.state_dict())
    note_of(model, renamed("z.{}")(saved))
    warned_by(model, renamed("z.{}")(saved))
    assert all(map(torch.equal, model.state_dict().values(), before.values()))


@pytest.mark.parametrize("kind", ["DataParallel", "nested", "a prefix"])
def test_a_load_that_loads_little_warns_once_where_it_is_called(kind):
    model, given = net(), CHANGES[kind](filled(net(), 3).state_dict())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with hl.explain_errors(model):
            for _ in range(3): model.load_state_dict(given, strict=False)
    assert [w.category for w in found] == [HookWarning] and found[0].filename == __file__
    assert "loads them" in str(found[0].message)


def test_new_heads_and_whole_loads_are_silent():
    model, saved = net(), filled(net(), 3).state_dict()
    assert not warned_by(model, saved)
    assert not warned_by(model, {name: t for name, t in saved.items() if not name.startswith("last")})
    assert not warned_by(model, {name: t for name, t in saved.items() if "num_batches" not in name})
    assert len(warned_by(model, {})) == 1


def test_an_error_in_another_load_is_not_explained_as_this_models():
    model, other = net(), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), .1)
    with pytest.raises(ValueError) as raised, hl.explain_errors(model):
        optimizer.load_state_dict(torch.optim.SGD([*model.parameters()], .1).state_dict())
    assert not any("load_state_dict" in note for note in getattr(raised.value, "__notes__", []))


def test_from_pretrained_is_not_seen_and_weights_not_loaded_sees_it(tmp_path):
    library = pytest.importorskip("transformers")
    small = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=30)
    config = library.BertConfig(max_position_embeddings=12, **small)
    library.BertForMaskedLM(config).save_pretrained(tmp_path)
    loaded = library.BertModel.from_pretrained(tmp_path)
    assert [sure for sure, *_ in weights_not_loaded(loaded, tmp_path)] == ["note"], "its head has no place"
    assert weights_not_loaded(library.BertModel(config), tmp_path)[0][0] == "certain"
    assert not [sure for sure, *_ in weights_not_loaded(loaded.bfloat16(), tmp_path) if sure != "note"]


# ---- preflight

def batch():
    torch.manual_seed(4)
    return torch.randn(20, 5), torch.arange(20) % 3


def found_with(model, weights):
    found = hl.preflight(model, F.cross_entropy, batch(), weights=weights, overfit=False)
    return [f for f in found if f.what == "weights not loaded"], found


def test_preflight_says_which_tensors_are_not_in_the_model(tmp_path):
    model, saved = net(), renamed("module.{}")(filled(net(), 3).state_dict())
    model.load_state_dict(saved, strict=False)
    torch.save({"state_dict": saved}, tmp_path/"last.ckpt")
    for weights in (saved, {"state_dict": saved}, tmp_path/"last.ckpt"):
        (one,), found = found_with(model, weights)
        assert found and "first.weight" in one.evidence and one.layers[0] == "first"
        assert one.sure in ("certain", "likely")
        exec(line_in(one.evidence), {"model": (other := net()), "checkpoint": weights, "hl": hl})
        assert found_with(other, weights)[0] == []


def test_preflight_is_silent_where_all_is_loaded_and_where_nothing_is_asked():
    model = filled(net(), 3)
    assert found_with(model, model.state_dict())[0] == found_with(model, None)[0] == []
    rounded = copy.deepcopy(model).half().float()
    assert found_with(rounded, model.state_dict())[0] == found_with(model, rounded.state_dict())[0] == []


def test_preflight_names_tensors_without_a_place_and_finds_another_model():
    model = filled(net(), 3)
    nothing, found = found_with(model, model.state_dict() | {"old.head.weight": torch.ones(8, 2)})
    assert not nothing and "no place for `old.head.weight`" in str(found.all)
    (one,), _ = found_with(model, nn.LSTM(5, 7).state_dict())
    assert one.sure != "note" and "another model" in one.evidence


def test_tensors_whose_names_are_not_certain_may_be_anywhere():
    model = filled(Attends(), 2)
    given = {f"p{i:02}": t.clone() for i, t in enumerate(reversed(model.state_dict().values()))}
    assert not [one for one in weights_not_loaded(model, given) if one[0] != "note"]


def test_ones_and_zeros_that_a_new_model_has_too_are_not_counted_as_loaded():
    model, saved = net(), filled(net(), 3).state_dict()
    new = {name: t for name, t in model.state_dict().items() if bool((t == t.flatten()[0]).all())}
    assert new, "the model has no norm"
    (one,), _ = found_with(model, saved | new)
    assert one.evidence.startswith("No tensor of the checkpoint is in the model")
    first = next(name for name in saved if name not in new)
    model.load_state_dict({first: saved[first]}, strict=False)
    (one,), _ = found_with(model, saved | new)
    assert one.evidence.startswith(f"{len(saved) - len(new) - 1} of {len(saved)} tensors")

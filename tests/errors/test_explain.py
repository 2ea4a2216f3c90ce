"""`hl.explain_errors`: which layer, what it got and from where, and a repair that runs."""
import copy
import io
import subprocess
import sys
import threading
import traceback
import warnings
from contextlib import redirect_stdout

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from support.calls import Calls

warnings.filterwarnings("ignore", ".*Initializing zero-element tensors.*")


def explained(model, *args, run=None, **kwargs):
    "What is said of the error that a model raises, and its note."
    with pytest.raises(Exception) as raised, hl.explain_errors(model) as watch:
        run() if run else model(*args, **kwargs)
    found = watch.explanation
    if found is not None: assert raised.value.__notes__ == [f"\n{found}"] and raised.value.explanation is found
    return found


def flat(n=100): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(n, 10))


def test_a_linear_layer_behind_a_flatten():
    model = flat()
    x = torch.randn(2, 3, 8, 8)
    found = explained(model, x)
    assert str(found) == ("`3` (Linear) takes 100 features and got 144 = 4×6×6 from `2` (Flatten). "
                          "`Linear(144, 10)` fits; so does an input `input` of 7×7.")
    assert (found.layer, found.kind, found.certain) == ("3", "features", False)
    assert [repair.run(model, (x,), {}).shape for repair in found.repairs] == [(2, 10), (2, 10)]
    assert model[3].in_features == 100 and model[3].weight.shape == (10, 100)


def attend(m, x):
    b, t, d = x.shape
    q, k, v = (y.view(b, t, m.heads, d//m.heads).transpose(1, 2) for y in m.qkv(x).chunk(3, -1))
    return m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


def attention(heads):
    model = Calls(attend, qkv=nn.Linear(24, 72), out=nn.Linear(24, 24))
    model.heads = heads
    return model


def words(positions):
    return Calls(lambda m, x: m.head(m.word(x) + m.place(torch.arange(x.shape[1]))), word=nn.Embedding(50, 16),
                 place=nn.Embedding(positions, 16), head=nn.Linear(16, 50))


def words_of_parameter(positions):
    model = Calls(lambda m, x: m.head(m.word(x) + m.places[:, :x.shape[1]]), word=nn.Embedding(50, 16),
                  head=nn.Linear(16, 50))
    model.places = nn.Parameter(torch.zeros(1, positions, 16))
    return model


def residual(stride):
    return Calls(lambda m, x: m.a(x) + m.b(x), a=nn.Conv2d(3, 8, 3, stride, 1), b=nn.Conv2d(3, 8, 1))


def joined(wrong):
    return Calls(lambda m, x: m.head(torch.cat([m.a(x), m.b(x)], -1)), a=nn.Linear(8, 4), b=nn.Linear(8, 6),
                 head=nn.Linear(10 + wrong, 2))


def masked(m, x, mask): return m.head(m.mix(x).masked_fill(~mask, 0.))


pictures, tokens = torch.randn(2, 3, 8, 8), torch.randint(50, (2, 12))
REPAIRED = {  # what fails, with what, the layer, the kind, and the first repair
    "a layer too narrow": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(15, 4)), torch.randn(2, 8), "2",
                           "features", "`Linear(16, 4)`"),
    "channels": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(7, 4, 3)), pictures, "2", "channels",
                 "`Conv2d(8, 4, 3)`"),
    "batch norm": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(7)), pictures, "1", "channels", "`BatchNorm2d(8)`"),
    "layer norm": (nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(12)), torch.randn(2, 8), "1", "features",
                   "`LayerNorm(16)`"),
    "recurrent": (nn.Sequential(nn.Linear(8, 16), nn.GRU(12, 5)), torch.randn(2, 4, 8), "1", "features",
                  "`GRU(16, 5)`"),
    "channels last": (flat(100), torch.randn(2, 7, 7, 3), "0", "channels last",
                      "the input `input.permute(0, 3, 1, 2)`"),
    "double": (flat(144), pictures.double(), "0", "dtype", "the input `input.float()`"),
    "tokens that are no whole numbers": (words(20), torch.rand(2, 5), "word", "dtype", "the input `x.long()`"),
    "half a layer": (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4).half()), torch.randn(2, 8), "1", "dtype",
                     "`1.float()`"),
    "kernel": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Conv2d(8, 8, 5)), pictures, "2", "kernel",
               "`Conv2d(8, 8, 3)`"),
    "heads": (attention(5), torch.randn(2, 7, 24), "", "heads", "`heads=4`"),
    "view": (Calls(lambda m, x: m.head(m.c(x).view(len(x), 250)), c=nn.Conv2d(3, 8, 3), head=nn.Linear(288, 2)),
             pictures, "", "reshape", "`view(2, -1)` in the forward of the model"),
    "addition": (residual(2), pictures, "", "addition", "`Conv2d(3, 8, 3, stride=1, padding=1)` as `a`"),
    "concatenation": (Calls(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=nn.Conv2d(3, 8, 3, padding=1),
                            b=nn.Conv2d(3, 8, 3, stride=2, padding=1)), pictures, "", "concatenation", None),
    "joined, and then too wide": (joined(1), torch.randn(2, 8), "head", "features", "`Linear(10, 2)`"),
    "positions": (words(10), tokens, "place", "positions", "`Embedding(12, 16)`"),
    "positions as a parameter": (words_of_parameter(10), tokens, "", "positions", "`places` of shape (1, 12, 16)"),
}


@pytest.mark.parametrize("what", REPAIRED)
def test_a_repair_that_runs(what):
    model, x, layer, kind, first = REPAIRED[what]
    model.eval()  # else a batch norm before the error counts its batch
    state = copy.deepcopy(model.state_dict())
    found = explained(model, x)
    assert (found.layer, found.kind) == (layer, kind) and found.repairs
    if first: assert found.repairs[0].text == first
    for repair in found.repairs: repair.run(model, (x,), {})
    assert not hl.hooks_on(model) and all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    with pytest.raises((RuntimeError, IndexError)): model(x)  # it is as it was


def test_a_repair_is_certain_only_if_no_other_one_runs():
    found = explained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(7, 4, 3)), pictures)
    assert found.certain and "No other single change that was tried does." in str(found)
    found = explained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(7, 4, 3)), pictures)
    assert not found.certain and [r.text for r in found.repairs] == ["`Conv2d(8, 4, 3)`", "`Conv2d(3, 7, 3)` as `0`"]


def test_a_mask_of_another_shape():
    model = Calls(masked, mix=nn.Linear(8, 8), head=nn.Linear(8, 2))
    found = explained(model, torch.randn(2, 5, 8), mask=torch.ones(2, 5, dtype=torch.bool))
    assert found.kind == "mask" and found.repairs[0].text == "the input `mask.unsqueeze(2)`"


# ---- place and reason, without a repair

def summed(m, x):
    y = m.act(m.a(x))
    y += 1
    return y.sum()


def test_an_index_that_is_too_large():
    found = explained(words(20), torch.tensor([[1, 60]]))
    assert (found.layer, found.kind, found.repairs) == ("word", "index", [])
    assert str(found) == "`word` (Embedding) has 50 rows, 0 to 49, but got 60."
    model = nn.Linear(4, 3)
    found = explained(model, run=lambda: F.cross_entropy(model(torch.randn(2, 4)), torch.tensor([1, 5])))
    assert found.kind == "index" and not found.certain
    assert str(found) == ("The output has 3 classes, 0 to 2, but the target contains class 5. "
                          "`Linear(4, 6)` fits; so does `ignore_index=5`.")


def test_a_batch_of_one():
    found = explained(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), torch.randn(1, 4))
    assert (found.layer, found.kind) == ("1", "batch norm") and "eval mode" in str(found) and not found.repairs


def test_two_devices():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2).to("meta"))
    found = explained(model, torch.randn(2, 4))
    assert (found.layer, found.kind) == ("1", "device") and "meta" in str(found) and "cpu" in str(found)


def test_an_operation_in_place_on_what_the_backward_pass_needs():
    model = Calls(summed, a=nn.Linear(4, 4), act=nn.Sigmoid())
    found = explained(model, run=lambda: model(torch.randn(2, 4)).backward())
    assert (found.layer, found.kind) == ("", "in-place") and "`add_` writes to a tensor that `act` needs" in str(found)
    inner = nn.Sequential(nn.Linear(4, 4), Calls(summed, a=nn.Linear(4, 4), act=nn.Tanh()))
    found = explained(inner, run=lambda: inner(torch.randn(2, 4)).backward())
    assert found.layer == "1"


def test_a_loss_without_a_gradient():
    model = nn.Sequential(nn.Linear(4, 4), Calls(lambda m, x: x.argmax(-1).float()))
    found = explained(model, run=lambda: model(torch.randn(2, 4)).sum().backward())
    assert (found.layer, found.kind) == ("1", "no gradient") and "`argmax`" in str(found)
    frozen = nn.Linear(4, 4).requires_grad_(False)
    assert "No parameter" in str(explained(frozen, run=lambda: frozen(torch.randn(2, 4)).sum().backward()))


def test_a_second_backward():
    model = nn.Linear(4, 4)
    def twice():
        loss = model(torch.randn(2, 4)).pow(2).sum()
        loss.backward()
        loss.backward()
    assert explained(model, run=twice).kind == "second backward"


# ---- the error stays torch's own

def test_nothing_is_swallowed_and_nothing_is_left():
    model = flat()
    hooks = hl.hooks_on(model)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"), hl.explain_errors(model):
        model(pictures)
    assert not hooks and not hl.hooks_on(model)
    with hl.explain_errors(model) as watch: model(torch.randn(2, 3, 7, 7))
    assert watch.explanation is None and not hl.hooks_on(model)
    with pytest.raises(KeyboardInterrupt), hl.explain_errors(model): raise KeyboardInterrupt
    with pytest.raises(KeyError) as raised, hl.explain_errors(model): {}["a"]
    assert not hasattr(raised.value, "__notes__")  # it is none of the model


def test_one_note_and_never_two():
    model = flat()
    with pytest.raises(RuntimeError) as raised, hl.explain_errors(model), hl.explain_errors(model):
        hl.summary(model, pictures)
    assert len(raised.value.__notes__) == 1 and "The table up to there" in raised.value.__notes__[0]


TOOLS = {
    "summary": lambda m, x: hl.summary(m, x), "calls": lambda m, x: hl.calls(m, x), "cost": lambda m, x: hl.cost(m, x),
    "execution_order": lambda m, x: hl.execution_order(m, x),
    "preflight": lambda m, x: hl.preflight(m, F.cross_entropy, (x, torch.zeros(2, dtype=torch.long))),
    "FeatureExtractor": lambda m, x: hl.FeatureExtractor(m, "0")(x),
    "compare": lambda m, x: hl.compare(m, copy.deepcopy(m), x),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_explain_by_themselves(tool):
    with pytest.raises(Exception) as raised: TOOLS[tool](flat(), pictures)
    note, = raised.value.__notes__
    assert "`3` (Linear) takes 100 features and got 144 = 4×6×6 from `2` (Flatten). `Linear(144, 10)` fits" in note


def test_what_the_model_prints_is_not_printed_again():
    def talks(m, x):
        print("called")
        return m.a(x)
    model = Calls(talks, a=nn.Linear(4, 2))
    with redirect_stdout(io.StringIO()) as said: explained(model, torch.randn(2, 5))
    assert said.getvalue() == "called\n"


def test_state_modes_random_numbers_and_buffers_stay():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(7, 2))
    model[1].eval()
    torch.manual_seed(3)
    x = torch.randn(5, 4, requires_grad=True)
    with pytest.raises(RuntimeError): model(x)
    state, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    torch.manual_seed(3)
    x = torch.randn(5, 4, requires_grad=True)
    assert explained(model, x).kind == "features"
    assert torch.equal(torch.get_rng_state(), rng) and x.grad is None
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    assert [m.training for m in model] == [True, False, True, True] and all(p.grad is None for p in model.parameters())


def test_a_part_of_the_model_that_is_called_by_itself():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Linear(7, 2)))
    found = explained(model, run=lambda: model[1](torch.randn(2, 4)))
    assert found.layer == "1.1" and found.repairs[0].text == "`Linear(8, 2)`"


def test_models_that_cannot_be_hooked():
    parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(3, 2)])
    found = explained(parts, run=lambda: parts[1](torch.randn(2, 4)))
    assert (found.layer, found.repairs[0].text) == ("1", "`Linear(4, 2)`")
    with warnings.catch_warnings(action="ignore"): scripted = torch.jit.script(nn.Linear(3, 2))
    assert explained(scripted, torch.randn(2, 4)).repairs == []


def test_a_shared_layer_has_its_first_name():
    layer = nn.Linear(4, 5)
    found = explained(nn.Sequential(layer, layer), torch.randn(2, 4))
    assert found.layer == "0"


def test_compiled():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(7, 2))
    found = explained(torch.compile(model, backend="eager"), torch.randn(2, 4))
    assert (found.layer, found.repairs[0].text) == ("1", "`Linear(8, 2)`")


def test_what_cannot_run_again_is_told_by_its_place():
    once = []
    def fails_once(m, x):
        once.append(1)
        if len(once) == 1: raise RuntimeError("the first time")
        return x
    found = explained(nn.Sequential(nn.Linear(4, 4), Calls(fails_once)), torch.randn(2, 4))
    assert (found.layer, found.repairs) == ("1", []) and str(found) == "`1` (Calls) got 2×4."
    def short_of_memory(m, x): raise torch.OutOfMemoryError("no memory")
    ran = []
    found = explained(nn.Sequential(Calls(lambda m, x: ran.append(1) or x), Calls(short_of_memory)), torch.randn(2, 4))
    assert found.layer == "1" and len(ran) == 1
    assert explained(nn.LazyLinear(4), torch.randn(2, 3).long()).layer == ""


def test_in_a_run_of_several_processes_nothing_runs_again(monkeypatch):
    from hooklab.errors import investigating
    monkeypatch.setattr(investigating, "in_processes", lambda: True)
    ran = []
    model = nn.Sequential(Calls(lambda m, x: ran.append(1) or x), nn.Linear(3, 2))
    found = explained(model, torch.randn(2, 4))
    assert (found.layer, found.repairs, len(ran)) == ("1", [], 1)


def test_while_nothing_fails_no_layer_has_a_hook_and_the_last_input_is_let_go():
    model = flat(144)
    with hl.explain_errors(model) as watch:
        model(pictures)
        assert [hook.function for hook in hl.hooks_on(model) if "state_dict" not in hook.kind] == ["LastCall"]
    assert watch.group.last is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_that_is_half_on_a_gpu():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2).cuda())
    found = explained(model, torch.randn(2, 4))
    assert (found.layer, found.kind) == ("1", "device") and "cuda:0" in str(found)
    assert explained(flat().cuda(), pictures.cuda()).repairs[0].text == "`Linear(144, 10)`"


def test_what_the_user_wrote_is_not_a_model():
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): hl.explain_errors(lambda x: x)


def test_threads_and_nested_models():
    inner = flat()
    outer = nn.Sequential(inner)
    errors = []
    def run():
        try:
            with hl.explain_errors(outer): outer(pictures)
        except RuntimeError as error: errors.append(error.explanation.layer)
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert errors == ["0.3"]*3


def test_the_note_is_part_of_the_printed_error():
    with pytest.raises(RuntimeError) as raised, hl.explain_errors(model := flat()): model(pictures)
    said = "".join(traceback.format_exception(raised.value))
    assert said.rstrip().endswith("so does an input `input` of 7×7.")


def test_what_explains_is_imported_only_when_something_fails():
    code = "import sys, hooklab as hl\nhl.explain_errors\nassert not any('errors.walk' in name for name in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"The calls of a pass: all of them, in order, with names that hooks understand, and the model left as it was."
import copy
import warnings
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import hooklab as hl
from hooklab.debug.call_timeline import FIRST, LAST
from support.nets import Returns

pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.drop = nn.BatchNorm1d(5), nn.Linear(8, 24), nn.Dropout(.5)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.drop(F.scaled_dot_product_attention(q, k, v))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(8, 3))


@pytest.fixture
def x(): return torch.randn(2, 5, 8)


def outer(found): return [row.name for row in found if not row.depth]


def test_calls_in_order_with_layer_and_shapes(model, x):
    found = hl.calls(model, x)
    block = ["norm/batch_norm#0", "qkv/linear#0", "chunk#0", "scaled_dot_product_attention#0", "drop/dropout#0",
             "add#0"]
    expected = [f"{i}.{name}" if name[:4] in ("norm", "qkv/",
                                              "drop") else f"{i}/{name}" for i in range(2) for name in block]
    names = [row.name for row in found if row.function != "add_"]
    assert names == [*expected, "2/linear#0"]
    row = found["1/chunk#0"]
    assert asdict(row) == {"layer": "1", "function": "chunk", "number": 0, "inputs": "2×5×24",
                           "output": "2×5×8, 2×5×8, 2×5×8", "depth": 0, "layer_type": "Block"}
    assert found[-1].output == "2×5×3" and len(found[:3]) == 3 and len(found) == len(found.rows)


def test_names_are_those_of_hook_calls(model, x):
    with hl.hook_calls(model, [F.linear, F.scaled_dot_product_attention, torch.add]) as h: model(x)
    found = [row.name for row in hl.calls(model, x) if row.function in ("linear", "scaled_dot_product_attention",
                                                                        "add")]
    assert found == [call.name for call in h]


def test_the_model_is_left_as_it_was(model, x):
    model.train()
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    modes = [m.training for m in model.modules()]
    hl.calls(model, x)
    assert torch.equal(torch.get_rng_state(), random) and [m.training for m in model.modules()] == modes
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
    assert not hl.hooks_on(model) and not _get_current_function_mode_stack()
    with pytest.raises(RuntimeError): hl.calls(model, x[..., :3])
    assert not hl.hooks_on(model) and not _get_current_function_mode_stack()
    with pytest.raises(ValueError, match="lazy layers"): hl.calls(nn.LazyLinear(3), x)


def test_what_returns_no_tensor_is_left_out(x):
    def f(t):
        assert t.shape[0] == t.size(0) == len(t) and t.dtype and t.requires_grad is False
        assert t.sum().item() < t.numel()*1e9
        u = t.mT.clone()
        u[0] = 1
        return u.real
    assert outer(hl.calls(Returns(f), x)) == ["/sum#0", "/mT#0", "/clone#0", "/setitem#0", "/real#0"]
    assert hl.calls(Returns(f), x)["/setitem#0"].output == "2×8×5"


def test_calls_inside_functions_of_torch_have_a_depth(x):
    found = hl.calls(Returns(lambda t: F.normalize(t)), x)
    assert found[0].function == "normalize" and found[0].depth == 0 and {row.depth for row in found[1:]} == {1, 2}
    assert outer(hl.calls(Returns(lambda t: F.softmax(t, -1)), x)) == ["/softmax#0"] and len(found) > 2


def test_layers_that_torch_runs_as_one_and_compiled_ones_run_step_by_step(x):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    found = hl.calls(encoder, x)
    assert sum(row.function == "scaled_dot_product_attention" for row in found) == 2
    whole = torch.compile(Returns(lambda t: t.sin().cos()), backend="eager")
    whole(x)
    assert [row.function for row in hl.calls(whole, x)] == ["sin", "cos"]


def test_models_that_compute_gradients(x):
    def forces(t):
        t = t.detach().requires_grad_()
        return torch.autograd.grad(t.pow(2).sum(), t)[0]
    assert outer(hl.calls(Returns(forces), x)).count("/pow#0") == 1


def test_kwargs_and_inputs_without_tensors():
    found = hl.calls(Returns(lambda *, n: torch.ones(n) + torch.arange(n)), n=3)
    assert outer(found)[-1] == "/add#0" and found["/add#0"].inputs == "3, 3"


def test_the_table(model, x):
    text = str(hl.calls(model, x))
    assert text.startswith("0.norm: BatchNorm1d\n") and "\n0: Block\n    chunk#0" in text
    assert "→ 2×5×8, 2×5×8, 2×5×8" in text
    long = hl.calls(nn.Sequential(*(nn.ReLU() for _ in range(200))), x)
    lines = str(long).splitlines()
    assert len(lines) == 2*(FIRST + LAST) + 1 and f"… {200 - FIRST - LAST} more calls, all of them in `rows`" in lines
    html = hl.calls(model, x)._repr_html_()
    assert html.count("<tr>") == len(hl.calls(model,
                                              x)) + 1 + sum(not line.startswith(" ") for line in text.splitlines())


def test_a_row_that_is_not_there(model, x):
    with pytest.raises(LookupError, match="no call '0/softmax#0' in this pass; there is "):
        hl.calls(model, x)["0/softmax#0"]


def test_a_model_that_calls_nothing(x):
    with pytest.warns(hl.HookWarning, match="no layer called a torch function"): found = hl.calls(nn.Identity(), x)
    assert str(found) == "no calls" and not found.rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.plot()


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_the_picture(model, x, style):
    import matplotlib.pyplot as plt
    with plt.style.context(style):
        ax = hl.calls(model, x).plot()
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert "linear" in labels and "chunk" not in labels and labels[-1] == "other functions"
        assert [t.get_text() for t in ax.get_yticklabels()] == ["0.norm", "0.qkv", "0", "0.drop", "1.norm", "1.qkv",
                                                                "1", "1.drop", "2"]
        assert len(ax.patches) == len(hl.calls(model, x))
        ax.figure.canvas.draw()
        big = hl.calls(nn.Sequential(*(nn.ReLU() for _ in range(200))), x).plot()
        assert big.figure.get_size_inches()[1] <= 12 and len(big.get_yticks()) < 100
        plt.close("all")

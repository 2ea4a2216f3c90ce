"""Repairs of `hl.explain_errors`: what is printed is what ran, sizes that ran still run, and no sentence is false."""
import copy
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from support.calls import Calls

warnings.filterwarnings("ignore", ".*enable_nested_tensor.*")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    "A busy machine tries as many repairs as an idle one."
    from hooklab.errors import investigating
    monkeypatch.setattr(investigating, "SECONDS", 600.)


def explained(model, *args, run=None, **kwargs):
    errors = RuntimeError, ValueError, IndexError, TypeError, AssertionError
    with pytest.raises(errors), hl.explain_errors(model) as watch:
        run() if run else model(*args, **kwargs)
    return watch.explanation


def texts(found): return [repair.text for repair in found.repairs]


def typed(text): return eval(re.search(r"`(\w+\(.*?\))`", text)[1], vars(nn).copy())


# ---- what is printed is what was tried

WITH_SETTINGS = {
    "padding": (nn.Conv2d(12, 6, 5, padding=2, padding_mode="reflect"), (2, 9, 11, 11)),
    "no bias, dilated": (nn.Conv1d(12, 6, 3, dilation=2, bias=False), (2, 9, 11)),
    "layers and directions": (nn.LSTM(12, 6, num_layers=2, bidirectional=True, batch_first=True), (2, 4, 9)),
    "projected": (nn.LSTM(12, 6, proj_size=2, bias=False), (4, 2, 9)),
    "relu": (nn.RNN(12, 6, nonlinearity="relu"), (4, 2, 9)),
    "without affine": (nn.BatchNorm2d(12, eps=.01, affine=False), (2, 9, 4, 4)),
    "without scale": (nn.LayerNorm(12, elementwise_affine=False), (2, 9)),
    "transposed": (nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1), (2, 9, 4, 4)),
    "cell": (nn.GRUCell(12, 6, bias=False), (2, 9)),
}


@pytest.mark.parametrize("what", WITH_SETTINGS)
def test_typed_as_printed_it_fits_into_the_model(what):
    layer, shape = WITH_SETTINGS[what]
    def outputs(m, x):
        y = m.layer(x)
        return (y[0] if isinstance(y, tuple) else y).flatten(1).sum() * m.scale
    model = Calls(outputs, layer=layer)
    model.scale = nn.Parameter(torch.ones(()))
    found = explained(model, torch.randn(shape))
    assert found.repairs and found.layer == "layer"
    new = typed(texts(found)[0])
    fits = copy.deepcopy(model)
    fits.layer = new
    fits(torch.randn(shape))
    def settings(m): return {k: v for k, v in vars(m).items() if isinstance(v, int | float | str | bool | None | tuple)}
    wide = {k: v for k, v in settings(new).items() if v in (9, (9,))}
    assert wide and all(settings(layer)[k] in (12, (12,)) for k in wide)
    assert {k: v for k, v in settings(new).items() if k not in wide} == \
        {k: v for k, v in settings(layer).items() if k not in wide}


def test_a_sum_of_paths_with_padding():
    body = Calls(lambda m, x: x + m.a(x) + m.b(x), a=nn.Conv2d(6, 6, 5, padding=2),
                 b=nn.Conv2d(9, 6, 5, padding=2, bias=False))
    model = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), body)
    found = explained(model, torch.randn(2, 1, 12, 12))
    assert texts(found) == ["`Conv2d(6, 6, 5, padding=2, bias=False)`"] and found.certain
    body.b = typed(texts(found)[0])
    assert model(torch.randn(2, 1, 12, 12)).shape == (2, 6, 12, 12)


def test_all_layers_of_a_stack():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True, dropout=0.), 3)
    found = explained(model, torch.randn(2, 5, 16), torch.randn(2, 6, 20))
    assert texts(found) == ["`MultiheadAttention(16, 2, kdim=20, vdim=20, batch_first=True)` as "
                            "`layers.*.multihead_attn`"]
    assert "`layers.0.multihead_attn` (MultiheadAttention) takes 16 features and got 20" in str(found)


# ---- sizes that ran still run, and an input size is proposed

def halved(times, dim=2):
    "As many poolings as steps up again, with a connection at each level."
    conv, up, pool = ((nn.Conv1d, nn.ConvTranspose1d, F.max_pool1d) if dim == 1 else
                      (nn.Conv2d, nn.ConvTranspose2d, F.max_pool2d))
    def forward(m, x):
        kept = []
        x = m.first(x)
        for _ in range(times):
            kept.append(x)
            x = m.down(pool(x, 2))
        for i in range(times): x = m.merge(torch.cat([m.up(x), kept[-1 - i]], 1))
        return x
    return Calls(forward, first=conv(2, 4, 3, padding=1), down=conv(4, 4, 3, padding=1), up=up(4, 4, 2, 2),
                 merge=conv(8, 4, 3, padding=1))


@pytest.mark.parametrize(("times", "shape", "k", "wanted", "smaller"), [
    (1, (1, 2, 21, 21), 2, "22×22", "20×20"), (3, (1, 2, 60, 60), 8, "64×64", "56×56"),
    (2, (1, 2, 40, 27), 4, "40×28", "40×24"), (3, (2, 2, 90), 8, "96", "88")])
def test_an_input_of_the_next_multiple(times, shape, k, wanted, smaller):
    model = halved(times, len(shape) - 2)
    found = explained(model, torch.randn(shape))
    assert found.kind == "input size" and not found.certain and f"only multiples of {k} ran" in str(found)
    assert texts(found)[0].startswith("the input `F.pad(x, (") and texts(found)[0].endswith(f"` of {wanted}")
    assert texts(found)[1] == f"an input `x` of {smaller}"
    code = re.search(r"`(F.pad.*?)`", texts(found)[0])[1]
    padded = eval(code, {"F": F, "x": torch.randn(shape)})
    assert "×".join(map(str, padded.shape[2:])) == wanted and model(padded).shape[2:] == padded.shape[2:]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_repair_keeps_the_sizes_that_ran(times):
    model, n = halved(times), 2**times*6 + 2**times - 1
    for repair in explained(model, torch.randn(1, 2, n, n)).repairs:
        for side in 2**times*6, 2**times*7, 2**times*12:
            x = torch.randn(1, 2, side, side)
            if repair.on_input is None: repair.run(model, (x,), {})


def test_a_model_for_one_size_may_be_made_for_another():
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten(), nn.Linear(4*5*5, 2))
    found = explained(model, torch.randn(2, 1, 15, 15))
    assert texts(found)[0] == "`Linear(196, 2)`" and any("input" in text for text in texts(found))


def test_more_positions_keep_shorter_sequences():
    model = Calls(lambda m, x: m.head(m.word(x) + m.place(torch.arange(x.shape[1]))), word=nn.Embedding(30, 8),
                  place=nn.Embedding(9, 8), head=nn.Linear(8, 3))
    found = explained(model, torch.randint(30, (2, 14)))
    assert texts(found)[0] == "`Embedding(14, 8)`"
    found.repairs[0].run(model, (torch.randint(30, (2, 7)),), {})


# ---- masks, and batches that come first

def encoder(batch_first, width=12, heads=2):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, 20, batch_first=batch_first, dropout=0.), 2)


def test_batch_first_left_out_of_an_encoder():
    model = Calls(lambda m, x, hidden: m.head(m.enc(x, src_key_padding_mask=hidden)), enc=encoder(False),
                  head=nn.Linear(12, 2))
    found = explained(model, torch.randn(3, 8, 12), hidden=torch.zeros(3, 8, dtype=torch.bool))
    assert found.layer == "enc.layers.0.self_attn" and found.kind == "batch first" and not found.certain
    assert "takes a `key_padding_mask` of 8×3" in str(found) and "got 3×8" in str(found)
    assert "features" not in str(found) and "the input `hidden`" in str(found)
    assert texts(found)[0] == ("`TransformerEncoderLayer(12, 2, dim_feedforward=20, dropout=0.0, batch_first=True)` in "
                               "`enc` (the first dimension is the batch)")


def test_batch_first_left_out_of_recurrent_layers():
    def forward(m, x, h): return m.head(m.rnn(x, h)[0])
    model = Calls(forward, rnn=nn.GRU(5, 7), head=nn.Linear(7, 2))
    found = explained(model, torch.randn(4, 6, 5), torch.zeros(1, 4, 7))
    assert texts(found) == ["`GRU(5, 7, batch_first=True)` (the first dimension is the batch)"] and not found.certain
    def joined(m, x, more): return m.head(torch.cat([m.rnn(x)[1][-1], more], 1))
    model = Calls(joined, rnn=nn.RNN(5, 7), head=nn.Linear(9, 2))
    found = explained(model, torch.randn(4, 6, 5), torch.randn(4, 2))
    assert texts(found)[0] == "`RNN(5, 7, batch_first=True)` as `rnn` (the first dimension is the batch)"


@pytest.mark.parametrize("alike", [True, False])
def test_a_mask_for_each_sample(alike):
    mask = torch.ones(6, 6).triu(1).bool().expand(3, 6, 6).clone()
    if not alike: mask[1, 2, 0] = True
    found = explained(encoder(True), torch.randn(3, 6, 12), mask=mask)
    assert "takes an `attn_mask` of 6×6 or 6×6×6" in str(found) and "got 3×6×6" in str(found)
    assert texts(found) == ["the input `mask.repeat_interleave(2, 0)`", *(["the input `mask[0]`"] if alike else [])]


def test_a_memory_of_another_width():
    look = nn.MultiheadAttention(12, 3, dropout=.1, batch_first=True)
    model = Calls(lambda m, x, seen: m.look(x, seen, seen)[0], look=look)
    found = explained(model, torch.randn(2, 4, 12), torch.randn(2, 5, 7))
    assert texts(found) == ["`MultiheadAttention(12, 3, dropout=0.1, kdim=7, vdim=7, batch_first=True)`"]


# ---- other causes

def test_colors_last_before_a_view():
    model = Calls(lambda m, x: m.head(m.conv(x).relu().view(len(x), -1)), conv=nn.Conv2d(3, 4, 3),
                  head=nn.Linear(4*25, 2))
    found = explained(model, torch.randn(2, 7, 7, 3))
    assert texts(found)[0] == "the input `x.permute(0, 3, 1, 2).contiguous()`"


def test_a_weight_that_is_tied():
    model = Calls(lambda m, x: m.out(m.mix(m.words(x))), words=nn.Embedding(20, 6), mix=nn.Linear(6, 10),
                  out=nn.Linear(10, 20))
    model.out.weight = model.words.weight
    found = explained(model, torch.randint(20, (2, 3)))
    assert str(found).startswith("The `weight` of `out` (Linear) is 20×6 and not 20×10: it is tied to `words.weight`.")
    assert texts(found)[0] == "`Linear(10, 20)` with its own `weight`" and not found.certain


def test_tied_layers_get_another_size_together():
    model = Calls(lambda m, x: m.out(m.mix(m.words(x))), words=nn.Embedding(20, 6), mix=nn.Linear(8, 8),
                  out=nn.Linear(8, 20))
    model.out.weight = model.words.weight
    found = explained(model, torch.randint(20, (2, 3)))
    assert "`Embedding(20, 8)` as `words`" in texts(found)


@pytest.mark.parametrize(("layer", "shape"), [(nn.GroupNorm(2, 6), (1, 9, 9)), (nn.BatchNorm1d(6), (1, 9)),
                                              (nn.PReLU(6), (1, 9, 9))])
def test_a_missing_batch_dimension(layer, shape):
    conv = nn.Conv2d(1, 6, 1) if len(shape) == 3 else nn.Conv1d(1, 6, 1)
    found = explained(nn.Sequential(conv, layer).eval(), torch.randn(shape))
    assert "takes 6 channels and got" not in str(found) and not found.certain
    assert "the input `input.unsqueeze(0)`" in texts(found)


def test_a_constant_on_another_device():
    inner = Calls(lambda m, x: x * m.scale["by"], a=nn.Linear(2, 2))
    inner.scale = {"by": torch.ones(3, device="meta")}
    found = explained(nn.Sequential(nn.Linear(4, 3), inner), torch.randn(2, 4))
    assert (found.layer, found.kind) == ("1", "device")
    assert "`1.scale.by`, which the model keeps, is on meta" in str(found)
    assert texts(found) == ["`1.scale.by` on cpu, with values (tensors on meta have none),"]
    assert found.repairs[0].run(nn.Sequential(nn.Linear(4, 3), inner), (torch.randn(2, 4),), {}).shape == (2, 3)


def test_a_layer_or_an_input_on_another_device():
    model = Calls(lambda m, x: m.head(m.rnn(x)[0]), rnn=nn.GRU(3, 5, device="meta"), head=nn.Linear(5, 4))
    more = nn.Sequential(model, nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2))
    found = explained(more, torch.randn(2, 6, 3))
    assert texts(found) == ["`0.rnn.weight_ih_l0`, `0.rnn.weight_hh_l0`, `0.rnn.bias_ih_l0` and more on cpu, with "
                            "values (tensors on meta have none),"]
    found = explained(nn.Linear(3, 2), torch.randn(4, 3, device="meta"))
    assert texts(found) == ["the inputs on cpu, with values (tensors on meta have none),"]
    assert found.repairs[0].run(nn.Linear(3, 2), (torch.randn(4, 3, device="meta"),), {}).device.type == "cpu"


@pytest.mark.parametrize(("dtype", "code"), [("float32", "torch.from_numpy(input)"),
                                             ("float64", "torch.from_numpy(input).float()")])
def test_an_array_of_numpy(dtype, code):
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    found = explained(model, np.zeros((3, 5), dtype))
    assert "a NumPy array, 3×5" in str(found) and found.kind == "numpy"
    assert texts(found) == [f"the input `{code}`"]


def test_gray_pictures():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    assert "the input `input.expand(-1, 3, -1, -1)`" in texts(explained(model, torch.randn(2, 1, 9, 9)))
    found = explained(model, torch.randn(2, 9, 9))
    assert "the input `input.unsqueeze(1).expand(-1, 3, -1, -1)`" in texts(found) and not found.certain


# ---- the loss and the backward pass

def test_a_class_that_does_not_exist():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 5))
    def loss(*labels):
        return explained(model, run=lambda: F.cross_entropy(model(torch.randn(3, 4)), torch.tensor(labels)))
    assert texts(loss(1, 5, 2))[0] == "`target - 1`"
    assert texts(loss(0, 6, 2)) == ["`Linear(8, 7)` as `1`", "`ignore_index=6`"]
    assert texts(loss(0, 255, 2)) == ["`ignore_index=255`"]
    assert texts(loss(-1, 0, 7)) == []  # two classes that do not exist
    x = (torch.randn(3, 4),)
    for repair in loss(0, 6, 2).repairs: repair.run(model, x, {})


def test_a_state_that_is_kept_with_its_graph():
    def forward(m, x):
        m.state = m.mix(x) + (0 if m.state is None else m.state)
        return m.state.tanh()
    inner = Calls(forward, mix=nn.Linear(3, 3))
    inner.state = None
    model = nn.Sequential(nn.Linear(3, 3), inner)
    def steps():
        for _ in range(3): model(torch.randn(2, 3)).sum().backward()
    found = explained(model, run=steps)
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    assert (found.layer, found.kind) == ("1", "second backward") and not found.certain
    assert texts(found) == ["`1.state.detach()` after each step"]
    found.repairs[0].run(model, (torch.randn(2, 3),), {})
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients))


def test_two_backward_passes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    def twice():
        y = model(torch.randn(2, 3))
        y.sum().backward()
        y.mean().backward()
    assert "retain_graph=True" in texts(explained(model, run=twice))[0]
    state = model(torch.randn(2, 3))
    state.sum().backward()
    found = explained(model, run=lambda: model(state).sum().backward())
    assert texts(found) == ["the input `input.detach()`"]


def test_a_picture_that_interpolate_makes_too_large():
    def forward(m, x): return m.b(torch.cat([x, F.interpolate(m.a(x), scale_factor=4.)], 1))
    model = Calls(forward, a=nn.Conv2d(1, 2, 3, stride=2, padding=1), b=nn.Conv2d(3, 1, 1))
    found = explained(model, torch.randn(1, 1, 16, 16))
    assert "`interpolate(…, size=(16, 16))` in the forward of the model" in texts(found) and not found.certain


def test_what_a_film_has_as_channels_stays():
    def forward(m, film): return m.conv(film.flatten(0, 1))
    found = explained(Calls(forward, conv=nn.Conv2d(5, 4, 3, padding=1)), torch.randn(2, 3, 4, 9, 9))
    assert texts(found)[0] == "`Conv2d(4, 4, 3, padding=1)`"


def test_a_weight_that_is_made_anew_in_each_pass_is_no_state():
    with warnings.catch_warnings(action="ignore"): layer = nn.utils.weight_norm(nn.Linear(3, 3))
    model = nn.Sequential(layer, nn.Tanh())
    def twice():
        loss = model(torch.randn(2, 3)).sum()
        loss.backward()
        loss.backward()
    assert "retain_graph=True" in texts(explained(model, run=twice))[0]

"""A layer as the call of its constructor: what is written makes the same layer, and is what is tried."""
import copy
import inspect
import warnings

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from torch import nn
from torch.nn import functional as F

from hooklab.errors.sizes import as_code, resize, sizes_of

CONTAINERS = {nn.Module, nn.Container, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict,
              nn.DataParallel, nn.TransformerEncoder, nn.TransformerDecoder, nn.RNNBase, nn.RNNCellBase,
              nn.SyncBatchNorm}  # of layers, or not to be used as they are
CLASSES = [kind for name, kind in sorted(vars(nn).items())
           if inspect.isclass(kind) and issubclass(kind, nn.Module) and kind not in CONTAINERS]
few, small = st.integers(1, 4), st.sampled_from([2, 4, 8])
NUMBERS = st.sampled_from([1e-5, 1e-3, .1, .25, .5])


def sides(name: str) -> st.SearchStrategy:
    "A number, or one for each dimension, as many as the name of the class says."
    n = int(name[-2]) if name[-1] == "d" and name[-2].isdigit() else 1
    return few | st.tuples(*[few]*n)


BY_NAME = {
    "kernel_size": sides, "stride": sides, "padding": sides, "dilation": sides, "output_size": sides,
    "in_features": few, "out_features": few, "in1_features": few, "in2_features": few, "num_features": few, "dim": few,
    "in_channels": st.just(4), "out_channels": st.just(8), "groups": st.sampled_from([1, 2, 4]), "bias": st.booleans(),
    "padding_mode": st.sampled_from(["zeros", "circular", "reflect", "replicate"]), "output_padding": st.just(0),
    "input_size": few, "hidden_size": st.integers(5, 7), "num_layers": st.integers(1, 3),
    "proj_size": st.integers(0, 3),
    "nonlinearity": st.sampled_from(["tanh", "relu"]), "embed_dim": small, "num_heads": st.sampled_from([1, 2]),
    "kdim": st.none() | small, "vdim": st.none() | small, "d_model": small, "nhead": st.sampled_from([1, 2]),
    "dim_feedforward": few, "num_encoder_layers": few, "num_decoder_layers": few,
    "activation": st.sampled_from(["relu", "gelu", F.gelu]), "num_embeddings": st.integers(5, 8), "embedding_dim": few,
    "padding_idx": st.none() | st.integers(-2, 3), "max_norm": st.none() | NUMBERS,
    "num_groups": st.sampled_from([1, 2]),
    "num_channels": small, "normalized_shape": few | st.tuples(few, few), "momentum": st.none() | NUMBERS,
    "num_parameters": few, "mode": st.sampled_from(["nearest", "bilinear", "sum", "mean"]), "size": few | st.none(),
    "scale_factor": st.none() | st.sampled_from([2., 3.]), "reduction": st.sampled_from(["mean", "sum", "none"]),
    "n_classes": st.just(9), "num_classes": few, "cutoffs": st.sampled_from([[2], [2, 5]]),
    "ignore_index": st.integers(-3, 3),
    "start_dim": few, "end_dim": st.integers(-2, -1), "unflattened_size": st.tuples(few, few),
    "approximate": st.sampled_from(["none", "tanh"]), "upscale_factor": few, "downscale_factor": few,
    "norm_type": st.sampled_from([1., 2.]), "blank": few, "lower": st.just(.1), "upper": st.just(.4),
    "align_corners": st.none() | st.booleans(), "output_ratio": st.none() | st.just(.5), "k": few,
}
NOT_PLAIN = {"self", "device", "dtype", "weight", "pos_weight", "size_average", "reduce", "process_group", "min_value",
             "max_value", "custom_encoder", "custom_decoder", "distance_function", "options"}
FORMS = {"RNN": "num_layers nonlinearity bias batch_first dropout bidirectional",
         "LSTM": "num_layers bias batch_first dropout bidirectional proj_size",
         "GRU": "num_layers bias batch_first dropout bidirectional"}


def parameters(kind: type) -> dict[str, object]: # Their defaults
    "What the constructor takes; that of recurrent layers says only *args."
    if kind.__name__ in FORMS:
        return dict.fromkeys(("input_size", "hidden_size"), inspect.Parameter.empty) | {
            name: {"num_layers": 1, "dropout": 0., "nonlinearity": "tanh", "proj_size": 0}.get(name, name == "bias")
            for name in FORMS[kind.__name__].split()}
    return {name: one.default for name, one in inspect.signature(kind).parameters.items()
            if name not in NOT_PLAIN and name[0] != "_" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}


def values(kind: type, name: str, default: object) -> st.SearchStrategy:
    if name in BY_NAME:
        known = BY_NAME[name]
        if kind.__name__.endswith(("Pad1d", "Pad2d", "Pad3d")): return few | st.tuples(*[few]*2*int(kind.__name__[-2]))
        return known(kind.__name__) if callable(known) else known
    if isinstance(default, bool): return st.booleans()
    if default is None: return st.none()
    return NUMBERS


@st.composite
def layers(draw, kind):
    "A layer with arguments drawn at random, some of them left out."
    found = {}
    for name, default in parameters(kind).items():
        if default is inspect.Parameter.empty or draw(st.booleans()): found[name] = draw(values(kind, name, default))
    try: return kind(**found)
    except Exception: return assume(False)  # arguments that do not go together


def facts(layer: nn.Module) -> dict:
    "What there is in a layer: plain values and functions, and the shapes of its tensors; told without its constructor."
    found = {}
    for name, m in layer.named_modules():
        plain = {k: v for k, v in vars(m).items() if k != "training" and not k.startswith("_")}
        found |= {f"{name}.{k}": tuple(v) if isinstance(v, list) else v for k, v in plain.items()
                  if isinstance(v, int | float | str | tuple | list | None) or inspect.isroutine(v)}
        for own, t in [*m._parameters.items(), *m._buffers.items()]:
            found[f"{name}.{own}"] = None if t is None else "lazy" if nn.parameter.is_lazy(t) else tuple(t.shape)
    return found | {"class": type(layer).__name__}


def typed(code: str) -> nn.Module: return eval(code, {**vars(nn), "__builtins__": __builtins__})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_is_written_makes_the_same_layer(kind):
    @settings(max_examples=8, deadline=None, database=None, derandomize=True)
    @given(layers(kind))
    def check(layer):
        code = as_code(layer)
        assert code is not None
        assert facts(typed(code)) == facts(layer), code
    with warnings.catch_warnings(action="ignore"): check()


OTHERS = {"kernel_size": 5, "num_heads": 2, "groups": 2, "batch_first": True}
SIZED = (nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm,
         nn.Embedding, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.PReLU)
SIZED = [kind for kind in CLASSES if issubclass(kind, SIZED) and not kind.__name__.startswith("Lazy")]


@pytest.mark.parametrize("kind", SIZED, ids=lambda kind: kind.__name__)
def test_what_is_tried_is_what_is_written(kind):
    @settings(max_examples=8, deadline=None, database=None, derandomize=True)
    @given(layers(kind), st.data())
    def check(layer, data):
        names = [size.name for size in sizes_of(layer)] + [name for name in OTHERS if name in parameters(kind)]
        assume(names)
        name = data.draw(st.sampled_from(names))
        changed = {name: OTHERS.get(name, (16,) if name == "normalized_shape" else 16)}
        code = as_code(layer, **changed)
        assume(code is not None)  # no layer with it can be made
        tried = copy.deepcopy(layer)
        resize(tried, **changed)
        assert facts(typed(code)) == facts(tried), code
        if name not in OTHERS: assert getattr(tried, name) in (16, (16,))
    with warnings.catch_warnings(action="ignore"): check()


class Own(nn.Conv2d):
    "A layer with a constructor of its own."
    def __init__(self, width): super().__init__(width, width, 3, padding=1)


class Same(nn.Linear):
    "A layer of an own class, but made as torch makes it."


def test_a_layer_that_no_call_makes_is_not_written():
    assert as_code(Own(4)) is None and as_code(nn.CrossEntropyLoss(torch.ones(3))) is None
    assert as_code(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))) is None
    altered = nn.MultiheadAttention(12, 3)
    altered.num_heads = 5
    assert as_code(altered) is None
    assert as_code(Same(3, 4, bias=False), in_features=7) == "Same(7, 4, bias=False)"


def test_random_numbers_and_tensors_that_fit_stay():
    layer = nn.LSTM(6, 8, num_layers=2, bidirectional=True)
    state, kept = torch.get_rng_state(), layer.weight_hh_l0
    assert as_code(layer, input_size=9) == "LSTM(9, 8, num_layers=2, bidirectional=True)"
    assert torch.equal(state, torch.get_rng_state())
    resize(layer, input_size=9)
    assert layer.weight_hh_l0 is kept and layer(torch.randn(3, 2, 9))[0].shape == (3, 2, 16)
    half = nn.Linear(4, 4).to(torch.bfloat16)
    resize(half, in_features=6)
    assert half.weight.dtype == torch.bfloat16 and half(torch.randn(2, 6).bfloat16()).shape == (2, 4)

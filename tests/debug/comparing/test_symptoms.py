"""Each kind of fault has its words, and a healthy pair has none."""
import copy
import warnings

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.comparing import compare
from hooklab.debug.comparing.symptoms import in_numbers, in_padding, in_parameters, in_settings
from support.nets import Makes


def numbers(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64)


def changed(a, where, by=1.):
    b = a.clone()
    b[where] += by
    return b


A = numbers(4, 6, 8)
HEADS = A.unflatten(-1, (4, 2))[:, :, [2, 0, 3, 1]].flatten(-2)
SQUARE = numbers(5, 5)
FAULTS = {
    "scaled by 2": (A, 2*A),
    "the sign is flipped": (A, -A),
    "all zero": (A, 0*A),
    "each channel is scaled": (A, A*torch.linspace(.5, 2, 8, dtype=A.dtype)),
    "shifted by 0.5": (A, A + .5),
    "each channel is shifted": (A, A + torch.linspace(-1, 1, 8, dtype=A.dtype)),
    "dimensions 0 and 1 are swapped": (SQUARE, SQUARE.T),
    "2 of 8 channels along dimension 2": (A, A[..., [1, 0, 2, 3, 4, 5, 6, 7]]),
    "blocks of 2 along dimension 2": (A, HEADS),
    "only sample 1 differs": (A, changed(A, 1, numbers(6, 8))),
    "only the last position differs": (A, changed(A, (slice(None), -1), numbers(4, 8))),
    "only 2 of 8 channels differ: [0, 3]": (A, changed(A, (..., [0, 3]), numbers(4, 6, 2))),
    "rounded to float16": (A, A.half().double()),
    "rounded to bfloat16": (A, A.bfloat16().double()),
    "1 of 192 values are finite in one model only": (A, changed(A, (0, 0, 0), float("inf"))),
}


@pytest.mark.parametrize("words", FAULTS)
def test_patterns(words):
    assert next(in_numbers(*FAULTS[words])).startswith(words)


def test_no_pattern():
    assert not list(in_numbers(A, A)) and not list(in_numbers(A, numbers(3))) and not list(in_numbers(A[:0], A[:0]))
    assert not list(in_numbers(A, A + numbers(4, 6, 8).flip(0, 1, 2).abs()))
    nan = changed(A, (0, 0, 0), float("nan"))
    assert not list(in_numbers(nan, nan))


def test_padding():
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    apart = torch.zeros(2, 4, 3)
    assert not in_padding(apart, [mask])
    apart[0, 3] = 1
    assert in_padding(apart, [mask]) and not in_padding(apart, []) and not in_padding(apart, [mask.T])
    apart[1, 0] = .1
    assert not in_padding(apart, [mask])


# In the layers

@torch.no_grad()
def with_weight(change):
    b = copy.deepcopy(LINEAR)
    change(b)
    return b


torch.manual_seed(0)
LINEAR = nn.Linear(6, 6)
PARAMETERS = {
    "weight differs in 1 of 36 values, by up to 0.5 at [2, 3]": lambda b: b.weight[2, 3].add_(.5),
    "bias differs by up to": lambda b: b.bias.add_(.5),
    "weight is transposed": lambda b: b.weight.copy_(b.weight.T.clone()),
    "weight is rounded to bfloat16": lambda b: b.weight.copy_(b.weight.bfloat16().float()),
    "only the reference has bias": lambda b: b.register_parameter("bias", None),
    "weight has shape 3×6 instead of 6×6": lambda b: setattr(b, "weight", nn.Parameter(b.weight[:3].clone())),
}


@pytest.mark.parametrize("words", PARAMETERS)
def test_parameters(words):
    assert next(in_parameters(LINEAR, with_weight(PARAMETERS[words]))).startswith(words)


def test_a_pattern_of_a_parameter():
    assert next(in_parameters(LINEAR, with_weight(lambda b: b.weight.mul_(2)))).endswith("(scaled by 2)")
    assert next(in_parameters(LINEAR, with_weight(lambda b: b.weight[1].mul_(2)))).endswith("(only row 1 differs)")


def test_buffers():
    a, b = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    b.running_mean += 1
    assert list(in_parameters(a, b)) == ["buffer running_mean differs by up to 1 at [0] (shifted by 1)"]


def test_equal_but_for_their_form():
    same = copy.deepcopy(LINEAR)
    assert not list(in_parameters(LINEAR, same)) and not list(in_settings(LINEAR, same))
    assert not list(in_parameters(LINEAR, copy.deepcopy(LINEAR).bfloat16()))
    wide = nn.Linear(6, 3)
    other = nn.Module()
    other.weight, other.bias = nn.Parameter(wide.weight.detach().T.clone()), wide.bias
    assert not list(in_parameters(wide, other))


def test_settings():
    a = nn.LayerNorm(4)
    assert list(in_settings(a, nn.LayerNorm(4, eps=.1))) == ["eps is 0.1 instead of 1e-05"]
    assert list(in_settings(a, nn.LayerNorm(4).eval())) == ["it is in eval mode instead of train mode"]
    assert list(in_settings(a, nn.GELU())) == ["it is a GELU instead of a LayerNorm"]


# In a comparison

def what(a, b, *args, **kwargs): return compare(a, b, *args, **kwargs).first.what


def made(make, other):
    torch.manual_seed(0)
    a, b = Makes(make), Makes(other)
    b.load_state_dict(a.state_dict())
    return what(a, b, torch.randn(3, 4))


def test_shapes_and_dtypes():
    assert "it returns 3×2 instead of 3×4" in made(lambda y: y, lambda y: y[:, :2]*2)
    assert "it returns 3 tensors instead of 2" in made(lambda y: (y, y), lambda y: (y, y, y))
    assert "float64 instead of float32" in made(lambda y: y, lambda y: y.double()*2)
    assert "output: scaled by 2" in made(lambda y: y, lambda y: y*2)


def test_random_numbers():
    a = nn.Sequential(nn.Linear(4, 4), nn.Dropout(.5)).eval()
    text = what(a, copy.deepcopy(a).train(), torch.randn(3, 4))
    assert "train mode instead of eval mode" in text and "only the candidate draws random numbers" in text


def test_called_more_often():
    class Repeats(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.lin, self.n = nn.Linear(4, 4), n

        def forward(self, x):
            for _ in range(self.n): x = self.lin(x)
            return x

    a, b = Repeats(2), Repeats(3)
    b.load_state_dict(a.state_dict())
    c = compare(a, b, torch.randn(3, 4))
    assert not c.same and "3 times instead of 2" in str(c) or "n is 3 instead of 2" in c.first.what


def test_padding_only():
    class Masked(nn.Module):
        def __init__(self, fill):
            super().__init__()
            self.lin, self.fill = nn.Linear(4, 4), fill

        def forward(self, x, mask): return self.lin(x).masked_fill(mask[..., None] == 0, self.fill())

    a, b = Masked(lambda: 0.), Masked(lambda: 1.)
    b.load_state_dict(a.state_dict())
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    assert "only the padding differs" in what(a, b, torch.randn(2, 4, 4), mask)


def test_a_healthy_pair_has_no_words():
    a = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    for b in (copy.deepcopy(a), copy.deepcopy(a).double().float()):
        assert {row.what for row in compare(a, b, torch.randn(3, 4)).rows} == {""}


@pytest.mark.filterwarnings("ignore")
def test_a_layer_that_torch_has_quantized():
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    b = torch.ao.quantization.quantize_dynamic(copy.deepcopy(a), {nn.Linear}, dtype=torch.qint8)
    x = torch.randn(3, 8)
    c = compare(a, b, x)
    assert [row.name for row in c.faults] == ["0", "2"]
    for row in c.faults:
        start, numbers = row.what.split("; ")[:2]
        assert start == "it is quantized: a torch.ao.nn.quantized.dynamic.Linear instead of a Linear"
        assert numbers.startswith("weight is stored as qint8 and differs by up to 0.00")
        assert "mode" not in row.what and "has weight" not in row.what and "has bias" not in row.what
    what = compare(b, a, x).first.what
    assert what.startswith("it is not quantized: a Linear instead of a torch.ao.nn.quantized.dynamic.Linear; "
                           "weight is not stored as qint8 and differs by")
    assert compare(b, copy.deepcopy(b), x).same


def test_complex_numbers_are_compared_whole():
    "Not their real parts only."
    a = torch.complex(numbers(6, 8), numbers(6, 8))
    b = torch.complex(a.real, a.imag*2)
    with warnings.catch_warnings(action="error"): assert list(in_numbers(a, b)) and not list(in_numbers(a, a.clone()))

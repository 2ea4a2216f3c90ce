"Sizes and parameters, on made-up inputs, of any model, with nothing left behind."
import pytest
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torchvision.models import resnet18

import hooklab as hl
from hooklab.profiling.shapes import first_layer
from support.traces import untouched

image, words = torch.float32, torch.int64


class Plain(nn.Module):
    "Not a `Sequential`; one child is a list, one returns a pair, one a dict, and one never runs."
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.lstm = nn.Conv2d(2, 4, 3, padding=1), nn.ModuleList([nn.BatchNorm2d(4), nn.Dropout()]), nn.LSTM(4, 6)
        self.head, self.spare = Dict(), nn.Linear(3, 3)

    def forward(self, x):
        x = self.blocks[1](self.blocks[0](self.stem(x)))
        return self.head(self.lstm(x.flatten(2).permute(2, 0, 1))[0])


class Dict(nn.Module):
    def forward(self, x): return {"mean": x.mean(), "all": x}


def conv(*channels, stride=1): return nn.Sequential(nn.Conv2d(*channels, 3, stride, padding=1), nn.BatchNorm2d(channels[1]), nn.ReLU())


# (first layer, channels it takes, shape and kind of a made-up input of size 12×12)
firsts = {
    "linear": (lambda: nn.Linear(5, 2), 5, [1, 5], image),
    "conv 1d": (lambda: nn.Conv1d(3, 4, 3), 3, [1, 3, 12], image),
    "conv 2d": (lambda: nn.Conv2d(3, 4, 3), 3, [1, 3, 12, 12], image),
    "conv 3d": (lambda: nn.Conv3d(3, 4, 3), 3, [1, 3, 12, 12, 12], image),
    "grouped": (lambda: nn.Conv2d(8, 8, 3, groups=4), 8, [1, 8, 12, 12], image),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3), 6, [1, 6, 12, 12], image),
    "half": (lambda: nn.Conv2d(3, 4, 3).bfloat16(), 3, [1, 3, 12, 12], torch.bfloat16),
    "embedding": (lambda: nn.Embedding(20, 4), None, [1, 12], words),
    "lstm": (lambda: nn.LSTM(7, 2), 7, [12, 1, 7], image),
    "gru, batch first": (lambda: nn.GRU(7, 2, batch_first=True), 7, [1, 12, 7], image),
    "cell": (lambda: nn.LSTMCell(7, 2), 7, [1, 7], image),
    "lazy conv": (lambda: nn.LazyConv2d(4, 3), None, [1, 3, 12, 12], image),
    "lazy conv 1d": (lambda: nn.LazyConv1d(4, 3), None, [1, 3, 12], image),
    "lazy linear": (lambda: nn.LazyLinear(4), None, [1, 3], image),
}


@pytest.mark.parametrize("kind", firsts)
def test_any_first_layer(kind):
    make, channels, shape, dtype = firsts[kind]
    for model in (make(), nn.Sequential(nn.Identity(), nn.Sequential(make()))):
        x = hl.dummy_batch(model, (12, 12))
        assert list(x.shape) == shape and x.dtype is dtype and not x.requires_grad and torch.equal(x, hl.dummy_batch(model, (12, 12)))
        if channels: assert hl.in_channels(model) == channels
        else:
            with pytest.raises(ValueError, match="lazy|whole numbers"): hl.in_channels(model)
        untouched(model, lambda m: hl.dummy_eval(m, (12, 12)))
    if dtype is words: assert 0 <= x.min() and x.max() < 20
    else: assert -1 <= x.min() < 0 < x.max() <= 1


def test_attention_has_to_be_given_three_inputs_but_its_size_is_known():
    assert hl.in_channels(nn.TransformerEncoderLayer(16, 4)) == 16
    assert list(hl.dummy_eval(nn.TransformerEncoderLayer(16, 4, batch_first=True), (5,)).shape) == [1, 5, 16]


def test_sizes_of_a_sequential():
    assert hl.model_sizes(nn.Sequential(conv(3, 16), conv(16, 32, stride=2), conv(32, 32))) == [[1, 16, 64, 64], [1, 32, 32, 32], [1, 32, 32, 32]]


def test_sizes_of_any_module():
    model = Plain()
    sizes = untouched(model, lambda m: hl.model_sizes(m, (8, 8)))
    assert sizes == [[1, 4, 8, 8]]*3 + [([64, 1, 6], ([1, 1, 6], [1, 1, 6])), {"mean": [], "all": [64, 1, 6]}, None]
    assert len(hl.model_sizes(resnet18())) == 10 and hl.model_sizes(resnet18())[-1] == [1, 1000]


def test_lazy_models_stay_lazy():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5), nn.LazyBatchNorm1d())
    assert untouched(model, lambda m: hl.model_sizes(m, (8, 8))) == [[1, 4, 6, 6], [1, 144], [1, 5], [1, 5]]
    assert all(map(is_lazy, model.parameters())) and hl.total_params(model) == (0, True)
    assert list(model(torch.randn(2, 1, 5, 5)).shape) == [2, 5]  # and takes what it is given first


def test_a_reused_child_has_the_size_of_its_last_run():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.conv = nn.MaxPool2d(2), nn.Conv2d(1, 2, 1)
        def forward(self, x): return self.pool(self.conv(self.pool(x)))
    assert hl.model_sizes(Twice(), (8, 8)) == [[1, 2, 2, 2], [1, 2, 4, 4]]


def test_num_features():
    assert hl.num_features_model(nn.Sequential(nn.Conv2d(5, 4, 3), nn.Conv2d(4, 3, 3))) == 3
    assert hl.num_features_model(nn.Sequential(conv(3, 16), conv(16, 32, stride=2), conv(32, 32))) == 32
    deep = nn.Sequential(*[nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2)) for _ in range(5)], nn.Conv2d(1, 7, 3))
    assert hl.num_features_model(deep) == 7  # too deep for 32 and 64 pixels
    with pytest.raises(RuntimeError, match="[Kk]ernel"): hl.num_features_model(nn.Conv2d(3, 4, 5000))
    with pytest.raises(ValueError, match="several tensors"): hl.num_features_model(nn.Sequential(nn.LSTM(4, 6)))


def test_model_without_children_is_a_size_itself():
    assert hl.model_sizes(nn.Sequential(nn.Linear(4, 2))) == [[1, 2]]
    assert hl.model_sizes(nn.Linear(4, 2)) == [[1, 2]] and hl.num_features_model(nn.Conv2d(3, 8, 3)) == 8


@pytest.mark.parametrize("m, expected", [
    (nn.Linear(10, 32), (352, True)), (nn.Linear(10, 32, bias=False), (320, True)), (nn.BatchNorm2d(20), (40, True)),
    (nn.BatchNorm2d(20, affine=False), (0, False)), (nn.Conv2d(16, 32, 3), (16*32*9 + 32, True)),
    (nn.LSTM(20, 10, 2), (4*(20*10 + 10) + 3*4*(10*10 + 10), True)), (nn.ReLU(), (0, False))])
def test_total_params(m, expected): assert hl.total_params(m) == expected and hl.has_params(m) == bool(expected[0])


def test_wrong_arguments():
    for f in (hl.in_channels, hl.dummy_batch, hl.model_sizes, hl.dummy_eval):
        with pytest.raises(TypeError, match="expected a torch.nn.Module"): f(3)
        with pytest.raises(ValueError, match="no layer of this ReLU"): f(nn.ReLU())


@pytest.mark.parametrize("where", range(3))
def test_exception_in_every_layer(where):
    class Breaks(nn.Module):
        def forward(self, x): raise KeyboardInterrupt
    layers = [conv(3, 4), conv(4, 4), nn.Dropout()]
    layers.insert(where, Breaks())
    for act in (hl.dummy_eval, hl.model_sizes):
        with pytest.raises(KeyboardInterrupt): untouched(nn.Sequential(*layers), act)


def test_first_layer_of_a_compiled_model():
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    model = torch.compile(inner, backend="eager")
    model(torch.zeros(1, 4))
    assert first_layer(model) is inner[0] and hl.model_sizes(model) == [[1, 8], [1, 8]] and list(hl.dummy_eval(model).shape) == [1, 8]


@pytest.mark.gpu
def test_on_a_gpu():
    model = nn.Sequential(conv(3, 4), nn.Dropout()).cuda()
    state = torch.cuda.get_rng_state()
    assert hl.dummy_batch(model).is_cuda and hl.dummy_eval(model).is_cuda and hl.model_sizes(model) == [[1, 4, 64, 64]]*2
    assert torch.equal(state, torch.cuda.get_rng_state())

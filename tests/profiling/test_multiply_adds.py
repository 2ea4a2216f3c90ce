"Multiply-adds against formulas worked out by hand, and against torch's own counter where that counts all there is."
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hooklab.hooks.undisturbed import WatchWrites
from hooklab.profiling.multiply_adds import MultiplyAdds
from hooklab.profiling.summaries import summary


class Calls(nn.Module):
    "Calls a function with layers of its own."
    def __init__(self, f, *layers):
        super().__init__()
        self.f, self.layers = f, nn.ModuleList(layers)
    def forward(self, *xs): return self.f(*self.layers, *xs)


def x(*size): return torch.randn(size)


def lstm(d, h, steps, *, gates=4, layers=1, ways=1, proj=0):
    "Each step goes through the matrices of input and state, in each layer and direction."
    out, total = proj or h, 0
    for layer in range(layers): total += ways*(gates*h*(d if layer == 0 else ways*out) + gates*h*out + proj*h)
    return steps*total


def attention(tokens, keys, d): return tokens*d*d + 2*keys*d*d + 2*tokens*keys*d + tokens*d*d  # in: q, k and v; scores and values; out


# (model, inputs, multiply-adds by hand)
by_hand = {
    "linear": (nn.Linear(8, 4), [x(3, 8)], 3*8*4),
    "linear on a sequence": (nn.Linear(8, 4), [x(2, 50, 8)], 2*50*8*4),
    "linear on a vector": (nn.Linear(8, 4), [x(8)], 8*4),
    "linear without bias": (nn.Linear(8, 4, bias=False), [x(3, 8)], 3*8*4),
    "conv 1d": (nn.Conv1d(3, 5, 4, stride=2), [x(2, 3, 20)], 2*9*5*3*4),
    "conv 2d": (nn.Conv2d(3, 5, 3, padding=1), [x(2, 3, 8, 8)], 2*64*5*3*9),
    "conv 3d": (nn.Conv3d(3, 5, 2), [x(1, 3, 4, 4, 4)], 27*5*3*8),
    "grouped conv": (nn.Conv2d(8, 4, 3, groups=4), [x(1, 8, 6, 6)], 16*4*2*9),
    "depthwise conv": (nn.Conv2d(8, 8, 3, groups=8, padding=1), [x(1, 8, 6, 6)], 36*8*9),
    "dilated conv": (nn.Conv2d(1, 2, 3, dilation=2), [x(1, 1, 8, 8)], 16*2*9),
    "transposed conv": (nn.ConvTranspose2d(3, 5, 2, stride=2), [x(1, 3, 4, 4)], 16*3*5*4),
    "bilinear": (nn.Bilinear(6, 7, 3), [x(2, 6), x(2, 7)], 2*6*7*3),
    "lstm": (nn.LSTM(8, 6), [x(5, 2, 8)], lstm(8, 6, 10)),
    "lstm, two ways, three layers": (nn.LSTM(8, 6, 3, bidirectional=True), [x(5, 2, 8)], lstm(8, 6, 10, layers=3, ways=2)),
    "lstm, batch first": (nn.LSTM(8, 6, batch_first=True), [x(2, 5, 8)], lstm(8, 6, 10)),
    "lstm with projection": (nn.LSTM(8, 6, proj_size=3), [x(5, 2, 8)], lstm(8, 6, 10, proj=3)),
    "lstm in double": (nn.LSTM(8, 6).double(), [x(5, 2, 8).double()], lstm(8, 6, 10)),
    "lstm on one sequence": (nn.LSTM(8, 6), [x(5, 8)], lstm(8, 6, 5)),
    "packed lstm": (Calls(lambda m, x: m(nn.utils.rnn.pack_padded_sequence(x, [5, 3])), nn.LSTM(8, 6)), [x(5, 2, 8)], lstm(8, 6, 8)),
    "gru": (nn.GRU(8, 6, 2), [x(5, 2, 8)], lstm(8, 6, 10, gates=3, layers=2)),
    "rnn": (nn.RNN(8, 6), [x(5, 2, 8)], lstm(8, 6, 10, gates=1)),
    "lstm cell": (nn.LSTMCell(8, 6), [x(2, 8)], lstm(8, 6, 2)),
    "gru cell": (nn.GRUCell(8, 6), [x(2, 8)], lstm(8, 6, 2, gates=3)),
    "attention": (Calls(lambda m, x: m(x, x, x), nn.MultiheadAttention(8, 2, batch_first=True)), [x(2, 5, 8)], 2*attention(5, 5, 8)),
    "attention without weights": (Calls(lambda m, x: m(x, x, x, need_weights=False), nn.MultiheadAttention(8, 2, batch_first=True)), [x(2, 5, 8)], 2*attention(5, 5, 8)),
    "cross attention": (Calls(lambda m, x, y: m(x, y, y), nn.MultiheadAttention(8, 2, batch_first=True)), [x(2, 5, 8), x(2, 7, 8)], 2*attention(5, 7, 8)),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), [x(2, 5, 8)], 2*(attention(5, 5, 8) + 2*5*8*16)),
    "decoder layer": (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), [x(2, 5, 8), x(2, 7, 8)], 2*(attention(5, 5, 8) + attention(5, 7, 8) + 2*5*8*16)),
    "scaled dot product": (Calls(F.scaled_dot_product_attention), [x(2, 3, 5, 8)]*3, 2*3*2*5*5*8),
    "matmul": (Calls(torch.matmul), [x(2, 3, 4), x(2, 4, 5)], 2*3*4*5),
    "matrix and vector": (Calls(torch.mv), [x(3, 4), x(4)], 12),
    "dot": (Calls(torch.dot), [x(9), x(9)], 9),
    "einsum": (Calls(lambda a, b: torch.einsum("bij,bjk->bki", a, b)), [x(2, 3, 4), x(2, 4, 5)], 2*3*4*5),
    "addmv": (Calls(torch.addmv), [x(3), x(3, 4), x(4)], 12),
    "addmm in place": (Calls(lambda y, a, b: y.clone().addmm_(a, b)), [x(3, 5), x(3, 4), x(4, 5)], 3*4*5),
    "int8": (Calls(torch._int_mm), [torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)], 32*16*8),
    "addbmm": (Calls(torch.addbmm), [x(3, 5), x(2, 3, 4), x(2, 4, 5)], 2*3*4*5),
    "none": (nn.Sequential(nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(), nn.Softmax(1)), [x(4, 8)], 0),
    "embedding": (nn.Embedding(10, 4), [torch.arange(3)], 0),
    "the same layer twice": (Calls(lambda m, x: m(m(x)), nn.Linear(4, 4)), [x(2, 4)], 2*2*16),
    "nothing": (nn.Linear(4, 3), [x(0, 4)], 0),
}


@pytest.mark.parametrize("kind", by_hand)
def test_by_hand(kind):
    model, inputs, expected = by_hand[kind]
    told = summary(model, *inputs)
    assert told.multiply_adds == told.rows[0].multiply_adds == expected
    if kind != "packed lstm": assert summary(model, *inputs, device="meta").multiply_adds == expected  # torch packs on a device only
    assert summary(model, *inputs, train=True).multiply_adds == expected


@pytest.mark.parametrize("kind", by_hand)
def test_in_inference_mode(kind):
    "Operations arrive there before they are taken apart."
    model, inputs, expected = by_hand[kind]
    with torch.inference_mode(): assert summary(model, *inputs).multiply_adds == expected


_torch_misses = "in place", "int8", "lstm", "gru", "bilinear", "vector", "dot", "addmv", "addbmm"


@pytest.mark.parametrize("kind", [kind for kind in by_hand if not any(word in kind for word in _torch_misses)] + ["scaled dot product"])
def test_torch_counts_the_same(kind):
    "With attention taken apart: as one operation on a CPU, torch counts it from 2.15 on only."
    model, inputs, expected = by_hand[kind]
    with FlopCounterMode(display=False) as theirs, sdpa_kernel(SDPBackend.MATH): model.train()(*inputs)
    assert theirs.get_total_flops() == 2*expected
    with sdpa_kernel(SDPBackend.MATH): assert summary(model, *inputs).multiply_adds == expected


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("heads, tokens, keys, value", [(2, 5, 5, 8), (4, 5, 7, 8), (1, 1, 9, 8)])
def test_attention_is_two_products_on_every_torch(backend, heads, tokens, keys, value):
    q, k, v = x(2, heads, tokens, 8), x(2, heads, keys, 8), x(2, heads, keys, value)
    with sdpa_kernel(backend): assert summary(Calls(F.scaled_dot_product_attention), q, k, v).multiply_adds == 2*heads*tokens*keys*(8 + value)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, None])
def test_grouped_queries(backend):
    q, k = x(1, 4, 5, 8), x(1, 2, 7, 8)
    def attends(q, k): return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    with sdpa_kernel(backend) if backend else nullcontext(): assert summary(Calls(attends), q, k).multiply_adds == 2*4*5*7*8


def test_the_fast_path_of_attention_does_the_same_products():
    "It runs as one operation that cannot be looked into, so it is off while a summary is made, and on again afterwards."
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    mask = torch.tensor([[False]*5, [False]*3 + [True]*2])
    told = summary(encoder, x(2, 5, 8), src_key_padding_mask=mask)
    assert told.multiply_adds == 2*2*(attention(5, 5, 8) + 2*5*8*16) and torch.backends.mha.get_fastpath_enabled()
    assert told["layers.1.linear1"].multiply_adds == 2*5*8*16 and told["layers.0.self_attn"].multiply_adds == 2*attention(5, 5, 8)
    assert told["layers.0.self_attn.out_proj"].note == "its parent uses its weights" and not any("not called" in line for line in told.totals())


def test_each_layer_has_what_it_and_those_inside_do():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.lists = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2))])
            self.b = self.lists[0]
        def forward(self, x): return self.lists[1](self.b(self.a(x)) @ torch.eye(4))
    told = summary(Mixed(), x(1, 4))
    assert {row.name: row.multiply_adds for row in told.rows} == {"": 16*3 + 8, "a": 16, "lists": 24, "lists.0": 16, "lists.1": 8, "lists.1.0": 8, "b": None}


def test_a_layer_inside_itself_counts_once():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
        def forward(self, x, depth=3): return self.linear(self(x, depth - 1)) if depth else x
    told = summary(Nested(), x(2, 4))
    assert told.multiply_adds == told["linear"].multiply_adds == 3*2*16 and told[""].calls == 4 and told[""].memory == 3*2*4*4


def test_other_modes_still_see_everything():
    with FlopCounterMode(display=False) as theirs: summary(nn.Linear(4, 2), x(3, 4))
    assert theirs.get_total_flops() == 2*24


def test_what_is_counted_can_also_be_written_and_is_put_back():
    modes = []
    def writes(linear, x):
        modes.extend(map(type, torch.utils._python_dispatch._get_current_dispatch_mode_stack()))
        with torch.inference_mode(): x.clone() @ x.T  # here it reaches the mode whole, and is taken apart
        linear.weight.data.mul_(2)
        return linear(x)
    model, given = Calls(writes, nn.Linear(4, 2, bias=False)), x(3, 4)
    before = model.layers[0].weight.clone()
    found = summary(model, given)
    assert found.multiply_adds == 3*3*4 + 3*2*4 and found["layers.0"].multiply_adds == 3*2*4
    assert torch.equal(model.layers[0].weight, before) and modes == [WatchWrites]


def test_numbers_come_as_they_happen():
    seen = []
    with MultiplyAdds(seen.append): nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))(x(1, 2))
    assert seen == [6, 3]


# --- quantized layers

@torch.library.custom_op("hooklab_test::packed_linear", mutates_args=())
def packed_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor: return x @ w


@torch.library.custom_op("hooklab_test::upsample_linear", mutates_args=())
def upsample_linear(x: torch.Tensor) -> torch.Tensor: return x*2


def test_what_has_no_formula_is_said():
    told = summary(Calls(lambda m, a: packed_linear(m(a), torch.ones(4, 3)), nn.Linear(4, 4)), x(2, 4))
    assert told.multiply_adds == 2*16
    assert told.totals()[-1] == "not counted, because no formula is known: hooklab_test::packed_linear"
    assert not any("not counted" in line for line in summary(Calls(upsample_linear), x(2, 4)).totals())


class Observed(nn.Module):
    "Between numbers that are quantized."
    def __init__(self, layer, enter, back):
        super().__init__()
        self.enter, self.layer, self.back = enter, layer, back
    def forward(self, x): return self.back(self.layer(self.enter(x)))


dynamic = {
    "linear": (lambda: nn.Linear(8, 16), x(3, 5, 8)), "lstm": (lambda: nn.LSTM(8, 6, 2, bidirectional=True), x(5, 2, 8)),
    "gru": (lambda: nn.GRU(8, 6), x(5, 2, 8)), "lstm cell": (lambda: nn.LSTMCell(8, 6), x(3, 8)), "rnn cell": (lambda: nn.RNNCell(8, 6), x(3, 8)),
}
static = {
    "linear": (lambda: nn.Linear(8, 4), x(3, 8)), "conv 1d": (lambda: nn.Conv1d(4, 8, 3, stride=2), x(2, 4, 9)),
    "grouped conv": (lambda: nn.Conv2d(4, 8, 3, groups=2), x(2, 4, 6, 6)), "conv 3d": (lambda: nn.Conv3d(4, 8, 2), x(2, 4, 3, 3, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(4, 8, 3, stride=2), x(2, 4, 6, 6)),
}


def quantization():
    "torch's own, as long as it is there and this build can run it."
    found = pytest.importorskip("torch.ao.quantization")
    if not hasattr(found, "quantize_dynamic") or not set(torch.backends.quantized.supported_engines) - {"none"}: pytest.skip("this torch has no quantized layers")
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize("kind", dynamic)
def test_dynamically_quantized_layers_count_as_they_did_before(kind, dtype):
    make, given = dynamic[kind]
    model = nn.Sequential(make())
    told, before = summary(quantization().quantize_dynamic(model, {type(model[0])}, dtype=dtype), given), summary(model, given)
    assert told.multiply_adds == before.multiply_adds > 0 and told["0"].multiply_adds == before["0"].multiply_adds
    assert told.totals()[0] == "no parameters" and not any(line.startswith(("not called", "not counted")) for line in told.totals())
    assert told.totals()[-1] == f"{before.params:,} values in packed weights, which aren't parameters: 0"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", static)
def test_statically_quantized_layers_count_as_they_did_before(kind):
    make, given = static[kind]
    q = quantization()
    model = Observed(make(), q.QuantStub(), q.DeQuantStub()).eval()
    model.qconfig = q.get_default_qconfig("qnnpack" if "transposed" in kind else "fbgemm")
    before, prepared = summary(model, given), q.prepare(model)
    prepared(given)
    told = summary(q.convert(prepared), given)
    assert told.multiply_adds == told["layer"].multiply_adds == before.multiply_adds > 0
    assert told.totals()[-1] == f"{before.params:,} values in packed weights, which aren't parameters: layer"


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_torchao_counts_as_before(config):
    quantization = pytest.importorskip("torchao.quantization")
    model, given = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)), x(32, 64)
    before = summary(model, given)
    quantization.quantize_(model, getattr(quantization, config)())
    told = summary(model, given)
    assert told.multiply_adds == before.multiply_adds or any("not counted" in line for line in told.totals())
    assert told.params == before.params


@pytest.mark.gpu
@pytest.mark.parametrize("kind", by_hand)
def test_on_a_gpu(kind):
    model, inputs, expected = by_hand[kind]
    try: assert summary(model.cuda(), *[x.cuda() for x in inputs]).multiply_adds == expected
    finally: model.cpu()

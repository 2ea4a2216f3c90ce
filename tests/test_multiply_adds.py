"Multiply-adds against formulas worked out by hand, and against torch's own counter where that counts all there is."
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from hooklab.multiply_adds import MultiplyAdds
from hooklab.summaries import summary


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


_torch_misses = "lstm", "gru", "bilinear", "vector", "dot", "addmv", "addbmm"


@pytest.mark.parametrize("kind", [kind for kind in by_hand if not any(word in kind for word in _torch_misses)] + ["scaled dot product"])
def test_torch_counts_the_same(kind):
    model, inputs, expected = by_hand[kind]
    known = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry
    if kind in ("attention without weights", "scaled dot product") and not known: pytest.skip("this torch has no formula for it on a CPU")
    with FlopCounterMode(display=False) as theirs: model.train()(*inputs)
    assert theirs.get_total_flops() == 2*expected


def test_the_fast_path_of_attention_does_the_same_products():
    "It runs as one operation, which nobody could look into; so it is off while a summary is made, and on again afterwards."
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


def test_numbers_come_as_they_happen():
    seen = []
    with MultiplyAdds(seen.append): nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))(x(1, 2))
    assert seen == [6, 3]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", by_hand)
def test_on_a_gpu(kind):
    model, inputs, expected = by_hand[kind]
    try: assert summary(model.cuda(), *[x.cuda() for x in inputs]).multiply_adds == expected
    finally: model.cpu()

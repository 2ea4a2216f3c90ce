"""preflight notes which results of a pass nobody reads: a line that assigns to nothing, a loss that is not returned."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


class Words(nn.Module):
    "A model of sequences, whose `front` is changed."
    def __init__(self, front):
        super().__init__()
        torch.manual_seed(0)
        self.word, self.last, self.front = nn.Embedding(20, 8), nn.Linear(8, 3), front
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout(.1)
        self.mix, self.attention = nn.GRU(8, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("place", torch.randn(6, 8))
        self.kept = []

    def forward(self, x): return self.last(self.front(self, self.word(x)).mean(1))


def batch():
    torch.manual_seed(1)
    return torch.randint(0, 20, (16, 6)), torch.arange(16) % 3


def found_in(front, call=None):
    found = hl.preflight(Words(front), None if call else F.cross_entropy, batch(), call=call, overfit=False)
    return [(f.sure, f.evidence) for f in found if f.what == "result not used"]


def sum_dropped(m, x):
    x + m.place
    return x


def method_dropped(m, x):
    x.relu()
    return x


def function_dropped(m, x):
    F.dropout(x, .5, m.training)
    return x


def layer_dropped(m, x):
    m.drop(x)
    return x


def loop_dropped(m, x):
    for place in m.place:
        torch.add(x, place)
    return x


def masked_dropped(m, x):
    x.masked_fill(x > 2, 0.)
    return x


@pytest.mark.parametrize("front", [sum_dropped, method_dropped, function_dropped, layer_dropped, loop_dropped,
                                   masked_dropped], ids=lambda front: front.__name__)
def test_a_line_that_assigns_to_nothing_has_no_effect(front):
    (sure, said), *others = found_in(front)
    assert sure == "likely" and not others and "doesn't assign it" in said


def named_and_left(m, x):
    moved = x + m.place
    moved = m.drop(moved)
    return x


def overwritten(m, x):
    x = x + m.place
    x = m.word.weight[:6].expand(16, 6, 8)
    return x


@pytest.mark.parametrize("front", [named_and_left, overwritten], ids=lambda front: front.__name__)
def test_a_result_with_a_name_that_nobody_reads_is_a_note(front):
    assert [sure for sure, _ in found_in(front)] == ["note"]


def test_a_sum_of_losses_that_is_not_returned():
    def first_only(model, given):
        out = model(given[0])
        first, second = F.cross_entropy(out, given[1]), out.square().mean()
        total = first + .1*second
        return first if model.training else total
    (sure, said), *others = found_in(lambda m, x: x, first_only)
    assert sure == "note" and not others and "`total = first + .1*second` computes a number" in said


def in_place(m, x):
    x = x.clone()
    x.add_(m.place)
    x[:, 0] = 0
    return x


def kept_for_later(m, x):
    m.kept[:] = [x*2]
    return x


def parts_of_several(m, x):
    out, state = m.mix(x)
    out, weights = m.attention(out, out, out)
    values, places = out.max(2)
    out = out + values[..., None]
    return out


def read_in_numbers(m, x):
    size = x.square().mean()
    assert size.item() >= 0 and len(str(x.sum().detach()))
    return x


def under_no_grad(m, x):
    with torch.no_grad():
        share = (x > 0).float().mean()
    return x if share is None else m.norm(x)


def last_of_a_loop(m, x):
    state = x[:, 0]
    for step in x.unbind(1):
        out = state + step
        state = .5*out
    return x + out[:, None]


@pytest.mark.parametrize("front", [in_place, kept_for_later, parts_of_several, read_in_numbers, under_no_grad,
                                   last_of_a_loop], ids=lambda front: front.__name__)
def test_what_is_used_in_some_way_is_no_finding(front): assert not found_in(front)


def test_features_that_a_hook_keeps_are_used():
    features = []
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    body[1].register_forward_hook(lambda m, inputs, output: features.append(output))

    def front(m, x):
        features.clear()
        body(x)
        return features[0]
    assert not found_in(front)

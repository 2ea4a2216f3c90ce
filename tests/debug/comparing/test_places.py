"""Which tensors of two calls correspond, and how the numbers of one are laid out as those of the other."""
import pytest
import torch
from torch import nn

from hooklab.debug.comparing.pairing import pair_calls
from hooklab.debug.comparing.passes import Value, run_pass
from hooklab.debug.comparing.places import Part, TensorPlace, is_mask, parts_of_values, stops_of
from hooklab.debug.comparing.tensor_store import TensorStore


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def value(t, path=""):
    store = TensorStore()
    return Value(path, (store, store.put(t)), t.dtype, tuple(t.shape))


def parts(a, b, entry=False):
    "The parts of two dicts of tensors, and the paths of each."
    found = parts_of_values([value(t, path) for path, t in a.items()],
                            [value(t, path) for path, t in b.items()], entry)
    return found, {part.a.path: part.b.path for part in found}


# ---- layouts

@pytest.mark.parametrize("move", [
    lambda t: t.flatten(), lambda t: t.flatten(0, 1), lambda t: t.flatten(1), lambda t: t.transpose(0, 1),
    lambda t: t.permute(2, 0, 1), lambda t: t.flatten(0, 1).T, lambda t: t.flatten(1).T, lambda t: t[None]],
    ids="flat, first two joined, last two joined, swapped, rotated, joined and swapped, swapped and joined, one more"
        .split(", "))
def test_layouts_that_are_found(move):
    t, new = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    found, _ = parts({"": t}, {"": move(t)})
    assert torch.equal(found[0].for_b(t), move(t)) and torch.equal(found[0].for_b(new), move(new))


def test_channels_last():
    t = torch.randn(2, 3, 4, 4)
    found, _ = parts({"": t}, {"": t.permute(0, 2, 3, 1).contiguous()})
    assert torch.equal(found[0].for_b(t), t.permute(0, 2, 3, 1))


def test_equal_size_and_other_numbers_do_not_correspond():
    assert parts({"": torch.randn(4, 6)}, {"": torch.randn(3, 8)}) == ([], {})


def test_a_layout_is_found_in_spite_of_noise():
    t = torch.randn(4, 6)
    found, _ = parts({"": t}, {"": (t + 1e-3*torch.randn(4, 6)).T})
    assert torch.equal(found[0].for_b(t), t.T)


def test_six_dimensions_are_left_as_they_are():
    t = torch.randn(1, 2, 1, 3, 1, 2)
    found, _ = parts({"": t}, {"": t.flatten()})
    assert found[0].layout is None and torch.equal(found[0].for_b(t), t.flatten())


# ---- rows that are expanded

def test_a_row_that_the_candidate_expands():
    row = torch.randn(1, 4)
    found, _ = parts({"": row}, {"": row.expand(3, 4).clone()})
    assert torch.equal(found[0].for_b(row), row.expand(3, 4))


def test_rows_of_which_the_candidate_has_one():
    row = torch.randn(1, 4)
    found, _ = parts({"": row.expand(3, 4).clone()}, {"": row})
    assert torch.equal(found[0].for_b(row.expand(3, 4)), row)


def test_rows_that_differ_are_not_one_row():
    assert parts({"": torch.randn(3, 4)}, {"": torch.randn(1, 4)}) == ([], {})


# ---- which correspond

def test_name_and_shape_before_order():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert parts({"x": x, "y": y}, {"y": y, "x": x})[1] == {"x": "x", "y": "y"}
    assert parts({"x": x, "y": y}, {"p": x, "q": y})[1] == {"x": "p", "y": "q"}
    assert parts({"x": x, "y": y[0]}, {"y": x, "x": y[0]})[1] == {"x": "y", "y": "x"}, "shapes decide"


def test_dtypes_of_one_sort():
    x = torch.randn(2, 3)
    assert parts({"x": x}, {"x": x.bfloat16()})[1] == {"x": "x"}
    assert parts({"x": x}, {"x": x.long()})[1] == {}
    assert parts({"x": x.long()}, {"x": x.long()})[1] == {"x": "x"}


def test_masks_positions_and_flags_are_no_parts_of_an_entry():
    x, mask = torch.randn(2, 3), torch.full((2, 3), -1e9).triu(1)
    given = {"x": x, "mask": mask, "positions": torch.arange(3), "keep": torch.ones(2, 3, dtype=torch.bool)}
    assert parts(given, given, entry=True)[1] == {"x": "x"}
    assert parts(given, given)[1] == {name: name for name in given}, "what a layer returns is compared"


@pytest.mark.parametrize(("t", "is_one"), [
    (torch.full((3, 3), float("-inf")).triu(1), True), (torch.tensor([0., -1e4]), True), (torch.zeros(3), False),
    (torch.tensor([0., -1.]), False), (torch.tensor([1., -1e9]), True), (torch.tensor([-5e3, -1e9]), False),
    (torch.empty(0), False), (torch.zeros(3, dtype=torch.bool), False)])
def test_masks(t, is_one): assert is_mask(t) == is_one


# ---- stops

class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, mask=None, scale=1.): return self.linear(x)*scale + mask


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.act = Attends(), nn.Tanh()

    def forward(self, x): return self.act(self.attention(x, torch.full((3, 4), -1e9).triu(2), scale=.5)).sum()


def stops(a, b, x):
    a, b = run_pass(a, ((x,), {})), run_pass(b, ((x,), {}))
    return stops_of(pair_calls(a, b), a, b)


def test_stops_of_a_model():
    model = Model()
    found, other_shapes = stops(model, model, torch.randn(3, 4))
    by_name = {stop.pair.b.name: stop for stop in found}
    attention, linear, root = by_name["attention"], by_name["attention.linear"], by_name[""]
    assert not other_shapes and list(by_name) == ["attention.linear", "attention", "act", ""]
    assert [part.a.path for part in attention.entry] == ["x"] and attention.flags == ["mask", "scale"]
    assert linear.parent is attention and attention.parent is root and root.parent is None
    assert not root.entry and len(root.exit) == 1
    assert TensorPlace(linear, "entry", 0).owner is attention and TensorPlace(linear, "exit", 0).owner is linear
    assert isinstance(TensorPlace(linear, "exit", 0).part, Part)


def test_outputs_of_other_shapes_are_told():
    class Cuts(nn.Linear):
        def forward(self, x): return super().forward(x)[:, :3]
    a = nn.Sequential(nn.Linear(4, 4), nn.Flatten(0))
    b = nn.Sequential(Cuts(4, 4), nn.Flatten(0))
    b.load_state_dict(a.state_dict())
    found, other_shapes = stops(a, b, torch.randn(2, 4))
    assert [stop.pair.b.name for stop in other_shapes] == ["1", ""] and not found

"""Which call of one model is which call of the other."""
import copy
import random

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.pairing import pair_calls
from hooklab.debug.comparing.passes import run_pass


def net(n=3): return nn.Sequential(*(layer for _ in range(n) for layer in (nn.Linear(4, 4), nn.Tanh())))


def pairs_of(a, b, pairs=None):
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    return pair_calls(run_pass(a, ((x,), {})), run_pass(b, ((x,), {})), pairs)


def names(*args): return [(pair.a and pair.a.name, pair.b and pair.b.name) for pair in pairs_of(*args)]


class Renamed(nn.Module):
    "The layers of a net under other names, one level deeper."
    def __init__(self, a):
        super().__init__()
        self.body = nn.ModuleDict({f"layer_{name}": copy.deepcopy(m) for name, m in a.named_children()})

    def forward(self, x):
        for m in self.body.values(): x = m(x)
        return x


def test_equal_structure():
    a = net()
    assert names(a, copy.deepcopy(a)) == [(n, n) for n in ("0", "1", "2", "3", "4", "5", "")]


def test_renamed():
    a = net()
    assert names(a, Renamed(a)) == [*((str(i), f"body.layer_{i}") for i in range(6)), ("", "")]


def test_inserted():
    a = net(2)
    b = nn.Sequential(a[0], nn.Dropout(0), nn.LayerNorm(4), *a[1:])
    found = names(a, b)
    assert ("0", "0") in found and ("2", "4") in found and (None, "2") in found


class Branches(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.left, self.right, self.order = nn.Linear(4, 8), nn.Linear(4, 8), order

    def forward(self, x): return sum(getattr(self, name)(x) for name in self.order)


def test_swapped_branches():
    a, b = Branches(["left", "right"]), Branches(["right", "left"])
    b.load_state_dict(a.state_dict())
    assert set(names(a, b)) == {("left", "left"), ("right", "right"), ("", "")}


def test_fused():
    norm, linear = nn.BatchNorm1d(4).eval(), nn.Linear(4, 4)
    nn.init.normal_(norm.running_mean)
    a = nn.Sequential(linear, norm, nn.Tanh(), nn.Linear(4, 2)).eval()
    b = nn.Sequential(nn.utils.fuse_linear_bn_eval(linear, norm), nn.Tanh(), a[3]).eval()
    found = names(a, b)
    assert ("2", "1") in found and ("3", "2") in found and len({b for _, b in found if b}) == 3


def test_one_partner_per_name():
    class Twice(nn.Module):
        def __init__(self, one, two):
            super().__init__()
            self.one, self.two = one, two

        def forward(self, x): return self.two(self.one(self.one(x)))
    a = net(1)[0]
    found = names(Twice(a, a), Renamed(nn.Sequential(a, copy.deepcopy(a), copy.deepcopy(a))))
    partners = {}
    for one, other in found:
        if one and other: partners.setdefault(one, set()).add(other)
    assert all(len(others) == 1 for others in partners.values())


def test_pairs_as_a_dict_and_as_a_function():
    a = net()
    b = Renamed(a)
    assert ("0", None) in names(a, b, {"0": None}) and (None, "body.layer_0") in names(a, b, {"0": None})
    told = names(a, b, lambda name: f"body.layer_{name}")
    assert told == names(a, b, {str(i): f"body.layer_{i}" for i in range(6)}) == names(a, b)
    assert ("0", "body.layer_2") in names(a, b, {"0": "body.layer_2"}), "a person knows better"


@pytest.mark.parametrize(("pairs", "kind", "text"), [
    ({"9": "body.layer_0"}, LookupError, "the reference ran no layer called '9'"),
    ({"0": "body.layer_9"}, LookupError, "the candidate ran no layer called 'body.layer_9'; it has body.layer_"),
    ({"0": "body.layer_0", "2": "body.layer_0"}, ValueError, "the partner of two layers")])
def test_errors(pairs, kind, text):
    a = net()
    with pytest.raises(kind, match=text): pairs_of(a, Renamed(a), pairs)


class Abreast(nn.Module):
    "Three blocks for the same input."
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Identity())
            for _ in range(3))

    def forward(self, x): return sum(block(x) for block in self.blocks)


def as_threads_run(calls, chance):
    "The calls of the blocks, each block's in its order, and mixed by chance."
    *calls, whole = calls
    queues = [[c for c in calls if c.name.split(".")[1] == block] for block in "012"]
    return [chance.choice([queue for queue in queues if queue]).pop(0) for _ in calls] + [whole]


def test_what_has_no_parameters_is_known_by_the_block_that_it_is_in():
    "Blocks in threads overtake each other, in another way in each pass."
    torch.manual_seed(0)
    chance, model, x = random.Random(0), Abreast(), torch.randn(2, 8)
    other = copy.deepcopy(model)
    with torch.no_grad(): other.blocks[1][1].weight[0, 0] += .01
    for _ in range(20):
        a, b = (run_pass(m, ((x,), {})) for m in (model, other))
        for seen in a, b: seen.calls[:] = as_threads_run(seen.calls, chance)
        assert all(pair.a.name == pair.b.name for pair in pair_calls(a, b))

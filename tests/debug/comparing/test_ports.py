"""Ports that lack a parameter: each block keeps its partner, and the layer that lacks it is named, or its block."""
import pytest
import torch
from torch import nn

import hooklab as hl


class Gated(nn.Module):
    "A block under names of choice; `bare` are the layers without a bias."
    def __init__(self, names=("norm", "gate", "value", "out"), bare=(), d=12, inner=20):
        super().__init__()
        self.names = names
        norm, gate, value, out = names
        self.add_module(norm, nn.LayerNorm(d, bias=norm not in bare))
        self.add_module(gate, nn.Linear(d, inner, bias=gate not in bare))
        self.add_module(value, nn.Linear(d, inner, bias=value not in bare))
        self.add_module(out, nn.Linear(inner, d, bias=out not in bare))

    def forward(self, x):
        norm, gate, value, out = map(self.get_submodule, self.names)
        y = norm(x)
        return x + out(gate(y).sigmoid()*value(y))


class Another(Gated): pass


class Dropping(Gated):
    "Has one layer more."
    def __init__(self, *args):
        super().__init__(*args)
        self.drop = nn.Dropout(0.)

    def forward(self, x): return self.drop(super().forward(x))


class ByHand(nn.Module):
    "A Linear of another class."
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x): return nn.functional.linear(x, self.weight, self.bias)


class Feeding(nn.Module):
    "A block with its layers in it, or one level deeper, in what is called `deeper`."
    def __init__(self, deeper=None, kind=nn.Linear, bias=True):
        super().__init__()
        layers = {"norm": nn.LayerNorm(12), "up": nn.Linear(12, 20), "act": nn.GELU(), "down": kind(20, 12, bias=bias)}
        self.deeper = deeper
        if deeper: self.add_module(deeper, nn.Sequential(*layers.values()))
        else:
            for name, layer in layers.items(): self.add_module(name, layer)

    def forward(self, x):
        if self.deeper: return x + self.get_submodule(self.deeper)(x)
        y = x
        for layer in self.children(): y = layer(y)
        return x + y


class Fed(Feeding): pass


class Convolved(nn.Module):
    def __init__(self, names=("first", "second"), bare=(), act="relu"):
        super().__init__()
        self.names = names
        for name in names: self.add_module(name, nn.Conv1d(6, 6, 3, padding=1, bias=name not in bare))
        self.between = act
        self.add_module(act, nn.ReLU())

    def forward(self, x):
        first, second = map(self.get_submodule, self.names)
        return x + second(self.get_submodule(self.between)(first(x)))


class Residual(nn.Module):
    def __init__(self, inner, name="inner"):
        super().__init__()
        self.name = name
        self.add_module(name, inner)

    def forward(self, x): return x + self.get_submodule(self.name)(x).tanh()


class Stack(nn.Module):
    "Blocks in a container of choice, called one after the other; each of them so many times."
    def __init__(self, blocks, name="blocks", keys=None, times=1):
        super().__init__()
        self.name, self.times = name, times
        held = nn.ModuleList(blocks) if keys is None else nn.ModuleDict(dict(zip(keys, blocks)))
        self.add_module(name, held)

    def forward(self, x):
        held = self.get_submodule(self.name)
        for _ in range(self.times):
            for block in held.values() if isinstance(held, nn.ModuleDict) else held: x = block(x)
        return x


def gated(names, bare=(), kind=Gated): return lambda: kind(names, bare)


OLD, NEW = ("norm", "gate", "value", "out"), ("ln", "wi_0", "wi_1", "wo")
THREE = ("first", "second", "third")


def deep(make, name="inner"): return lambda: Residual(Residual(make(), name), name)


CASES = {  # the blocks of both, the rest of both, and how the layer that lacks something ends
    "the last layer": (gated(OLD), gated(NEW, ["wo"], Another), {}, {"name": "h"}, "out"),
    "one of two beside each other": (gated(OLD), gated(NEW, ["wi_1"], Another), {}, {"name": "h"}, "value"),
    "the norm": (gated(OLD), gated(NEW, ["ln"], Another), {}, {"name": "h"}, "norm"),
    "the reference lacks it": (gated(OLD, ["gate"]), gated(NEW, (), Another), {}, {"name": "h"}, "gate"),
    "a dict of blocks": (gated(OLD), gated(NEW, ["wo"], Another), {"keys": THREE}, {"name": "h", "keys": "abc"}, "out"),
    "a list and a dict": (gated(OLD), gated(NEW, ["wi_0"], Another), {}, {"name": "h", "keys": THREE}, "gate"),
    "nested twice": (deep(gated(OLD)), deep(gated(NEW, ["wo"], Another), "fn"), {}, {"name": "h"}, "out"),
    "a layer more": (gated(OLD), lambda: Dropping(NEW, ["wi_1"]), {}, {"name": "h"}, "value"),
    "one level less": (lambda: Feeding("net"), lambda: Fed(bias=False), {}, {"name": "h"}, "3"),
    "one level more": (lambda: Feeding(), lambda: Fed("mlp", bias=False), {}, {"name": "h"}, "down"),
    "convolutions": (lambda: Convolved(), lambda: Convolved(("conv1", "conv2"), ["conv2"], "relu_1"), {},
                     {"name": "stages"}, "second"),
    "blocks that run twice": (gated(OLD), gated(NEW, ["wo"], Another), {"times": 2}, {"name": "h", "times": 2}, "out"),
}


def both(case, n=3):
    "The two models, with the same numbers in all parameters that both have."
    make_a, make_b, rest_a, rest_b, where = CASES[case]
    torch.manual_seed(3)
    a, b = Stack([make_a() for _ in range(n)], **rest_a), Stack([make_b() for _ in range(n)], **rest_b)
    with torch.no_grad():
        for m in (a, b):
            for p in m.parameters(): p.normal_(1 if p.dim() == 1 else 0, .4)
        for one, other in zip(leaves(a), leaves(b), strict=True):
            for name, p in other.named_parameters():
                if getattr(one, name) is not None: p.copy_(getattr(one, name))
    d = 6 if "conv" in case else 12
    return a, b, torch.randn(2, d, 9) if "conv" in case else torch.randn(2, 5, d), where


def leaves(m): return [layer for layer in m.modules() if [*layer.parameters(recurse=False)]]


@pytest.mark.parametrize("case", CASES)
def test_a_layer_that_lacks_a_parameter_is_named_in_each_block(case):
    a, b, x, where = both(case)
    c = hl.compare(a, b, x)
    alone = [row for row in c.rows if not row.is_pair]
    assert len(alone) == (3 if "level" in case or "more" in case else 0), c
    assert {row.a.rpartition(".")[2] for row in c.faults} == {where}, c
    said = [(row.a, row.call) for row in c.faults]
    assert len(said) == len(set(said)) == 3*CASES[case][2].get("times", 1), c
    assert len({(row.a, row.b) for row in c.rows if row.is_pair}) == len({row.a for row in c.rows if row.is_pair})


def test_the_block_is_named_where_the_layer_has_no_partner():
    "A layer of another class that lacks its bias."
    a, b = (Stack([Feeding(kind=kind, bias=kind is nn.Linear) for _ in range(4)], name)
            for kind, name in ((nn.Linear, "blocks"), (ByHand, "h")))
    torch.manual_seed(0)
    with torch.no_grad():
        for p in a.parameters(): p.normal_(1 if p.dim() == 1 else 0, .4)
    b.load_state_dict({name.replace("blocks", "h"): t for name, t in a.state_dict().items()
                       if not name.endswith("down.bias")})
    c = hl.compare(a, b, torch.randn(2, 5, 12))
    assert all(row.a.startswith("blocks.") for row in c.faults) and len(c.faults) == 4, c
    assert [row.a for row in c.rows if row.kind == "only in a"] == [
        row.b.replace("h", "blocks") for row in c.rows if row.kind == "only in b"]

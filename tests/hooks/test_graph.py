"Which nodes lead to a tensor, in which order, how many, and what is left out."
import pytest
import torch
from torch import nn

from hooklab.hooks.graph import leaves_before, nodes_before, op_of, parents_of


def ops(*given, **options): return [op_of(node) for node in nodes_before(*given, **options)]


def leaf(*shape): return torch.rand(*shape, requires_grad=True)


def test_the_nearest_come_first_however_the_ways_meet():
    x = leaf(3)
    short, long = x.exp(), x.sin().cos().tanh()
    assert ops(long.sum() + short.sum())[:5] == ["Add", "Sum", "Sum", "Tanh", "Exp"]
    assert ops(short.sum() + long.sum())[-2:] == ["Cos", "Sin"]


def test_each_node_is_met_once():
    x = leaf(3)
    for _ in range(40): x = x + x  # 2**40 ways lead to the leaf
    assert ops(x) == ["Add"]*40 + ["torch::autograd::AccumulateGrad"]


def test_from_several_tensors_and_nodes():
    a, b = leaf(3), leaf(3)
    x, y = a.exp(), (a + b).sin()
    assert ops(x, y.grad_fn, torch.ones(3), None, a)[:2] == ["Exp", "Sin"]
    assert {*leaves_before(x, y)} == {a, b} and [*leaves_before(x)] == [a]
    assert [*nodes_before()] == [*leaves_before(a)] == []


def test_what_leads_around_an_end_is_met():
    a, b = leaf(3), leaf(3)
    end = a.exp()
    loss = end.sin() + a.cos()*b
    assert "Exp" not in ops(loss, ends=[end]) and {*leaves_before(loss, ends=[end])} == {a, b}
    assert {*leaves_before(end.sin()*b, ends=[end.grad_fn])} == {b}
    assert ops(end, ends=[end]) == []


def test_it_stops_behind_a_node_that_is_met_itself():
    a = leaf(3)
    seen = ops(a.exp().sin().cos(), stop=lambda node: op_of(node) == "Sin")
    assert seen == ["Cos", "Sin"]


@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_so_many_at_most(most):
    x = leaf(3)
    y = x.exp().sin().cos()
    assert ops(y, most=most) == ["Cos", "Sin", "Exp", "torch::autograd::AccumulateGrad"][:most]
    assert ops(y, ends=[x.exp()], most=2) == ["Cos", "Sin"]  # an end that is not met does not count


def test_a_leaf_of_a_function_of_ones_own_is_no_attribute_of_it():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.variable = "of its own"
            return x*2

        @staticmethod
        def backward(ctx, g): return g*2
    x = leaf(3)
    y = Own.apply(x)
    assert op_of(y.grad_fn) == "Own" and [*leaves_before(y)] == [x]


def test_what_needs_no_gradient_has_no_node():
    x = leaf(3)
    assert [*map(op_of, parents_of((x.exp()*torch.ones(3)).grad_fn))] == ["Exp", ""]
    assert parents_of((torch.ones(3) - x.exp()).grad_fn)[0] is None


def test_the_graph_of_a_gradient():
    x = leaf(3)
    slope, = torch.autograd.grad(x.pow(3).sum(), [x], create_graph=True)
    assert [*leaves_before(slope)] == [x]


def test_a_deep_graph():
    net, x = nn.Linear(2, 2), torch.ones(1, 2)
    for _ in range(3000): x = net(x)
    assert len(ops(x, most=1000)) == 1000 and {*leaves_before(x)} == {*net.parameters()}

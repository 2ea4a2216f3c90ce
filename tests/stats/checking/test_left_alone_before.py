"What preflight leaves alone, each with its reason."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def found(model, loss_fn, batch, what, **options):
    model = hl.preflight(model, loss_fn, batch, overfit=options.pop("overfit", False), **options)
    return [f.sure for f in model if f.what == what]


def net(n_out=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, n_out))


def data(n=32):
    torch.manual_seed(1)
    return torch.randn(n, 6), torch.arange(n) % 3


@pytest.mark.parametrize(("without", "sure"), [(1, "note"), (7, "note"), (8, "likely")])
def test_a_few_labels_without_effect_may_be_chance(without, sure):
    def loss(output, y): return F.cross_entropy(output[without:], y[without:])
    assert found(net(), loss, data(16), "labels not used") == [sure]


class Graph(nn.Module):
    "Numbers of nodes, from edges whose order does not matter."
    def __init__(self):
        super().__init__()
        self.node, self.last = nn.Parameter(torch.randn(5, 4)), nn.Linear(4, 2)

    def forward(self, edges):
        near = torch.zeros(5, 5).index_put((edges[:, 0], edges[:, 1]), torch.ones(()), accumulate=True)
        return self.last(near @ self.node)


def test_edges_in_another_order_make_the_same_graph():
    def call(m, edges): return m(edges).square().mean()
    torch.manual_seed(0)
    edges = torch.randint(5, (20, 2))
    assert not found(Graph(), None, edges, "input unused", call=call)


class Blind(nn.Module):
    def __init__(self):
        super().__init__()
        self.answer = nn.Parameter(torch.randn(3))

    def forward(self, x): return self.answer.expand(len(x), 3)


def test_an_input_without_effect_is_seen_with_one_batch():
    assert found(Blind(), F.cross_entropy, data(), "input unused")


@pytest.mark.parametrize(("times", "sure"), [(2.5, []), (10, ["likely"])])
def test_targets_of_validation_may_be_drawn_otherwise(times, sure):
    def batches(wide, seed):
        torch.manual_seed(seed)
        x = torch.randn(300, 6)
        return list(zip(x.split(30), (wide*x[:, :1] + .1*torch.randn(300, 1)).split(30)))
    train = batches(1, 0)
    assert found(net(1), F.mse_loss, train[:2], "validation differs from training", train=train,
                 valid=batches(times, 1)) == sure


@pytest.mark.parametrize(("size", "sure"), [(1e-8, []), (1e-3, ["possible"])])
def test_a_target_of_nothing_but_rounding_is_zero(size, sure):
    x, _ = data()
    assert found(net(1), F.mse_loss, (x, size*torch.randn(32, 1)), "targets not scaled") == sure


def test_of_a_loss_below_zero_nobody_knows_how_far_it_goes():
    "An agreement that is at -0.9 from the start, in a distance's clothes."
    def loss(output, y): return -.9 - .05*F.cosine_similarity(output, F.one_hot(y, 3).float()).mean()
    x, y = data(16)
    assert not found(net(), loss, (x, y), "cannot learn by heart", overfit=True, seconds=60)

"Preflight never raises by itself: graphs of second order, sparse, nested, quantized, complex and empty tensors."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checking.result import FAILED, Checklist
from hooklab.findings.rules import NotLookedAt
from hooklab.hooks.graph import op_of

N = 12
pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")


def said(model, loss, one, call=None):
    torch.manual_seed(0)
    batches = [one(), one()]
    optimizer = torch.optim.Adam(model.parameters())
    return hl.preflight(model, loss, batches, optimizer, call=call, train=batches, overfit=False)


def failed(found): return [why for why in found.not_looked_at.values() if why.startswith(FAILED)]


def labels(): return torch.randint(0, 3, (N,))


class Reads(nn.Module):
    "A layer behind a function that makes a plain tensor of the inputs."
    def __init__(self, plain, dtype=torch.float):
        super().__init__()
        self.plain, self.layer = plain, nn.Linear(5, 3, dtype=dtype)

    def forward(self, x): return self.layer(self.plain(x))


class ReadsTwo(Reads):
    def forward(self, x, more): return self.layer(self.plain(x, more))


class ReadsThree(Reads):
    def forward(self, x, edges, more): return self.layer(self.plain(x, edges, more))


# ---- Graphs of second order

def with_slope(loss):
    "A loss and the size of its gradient by the input, as for an adversary."
    def call(model, batch):
        x, y = batch
        x = x.clone().requires_grad_()
        own = loss(model(x), y)
        slope, = torch.autograd.grad(own, [x], create_graph=True)
        return own + slope.square().sum()
    return call


def shares(): return torch.rand(N, 3)


@pytest.mark.parametrize("loss, target", [
    (F.cross_entropy, labels), (F.mse_loss, shares), (F.huber_loss, shares), (F.l1_loss, shares),
    (F.binary_cross_entropy_with_logits, shares),
    (lambda out, y: F.binary_cross_entropy(out.sigmoid(), y), shares),
    (lambda out, y: F.kl_div(out.log_softmax(1), y.softmax(1), reduction="batchmean"), shares),
    (lambda out, y: -(out.softmax(1).log()*y.softmax(1)).sum(1).mean(), shares),
])
def test_a_gradient_in_the_loss_is_no_alarm(loss, target):
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    found = said(model, None, lambda: (torch.randn(N, 5), target()), with_slope(loss))
    assert not failed(found) and "wrong sign" not in found, f"{found!r}"


def test_weights_after_a_step_inside_the_loss():
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    def call(model, batch):
        x, y = batch
        own = dict(model.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(model, own, (x[:6],)), y[:6])
        grads = torch.autograd.grad(loss, own.values(), create_graph=True)
        new = {name: p - .1*grad for (name, p), grad in zip(own.items(), grads)}
        return F.cross_entropy(torch.func.functional_call(model, new, (x[6:],)), y[6:])
    found = said(model, None, lambda: (torch.randn(N, 5), labels()), call)
    assert not found and not failed(found), f"{found!r}"


def test_an_operation_has_another_name_than_its_gradient():
    x = torch.randn(4, 3, requires_grad=True)
    y = x.log_softmax(1)
    grad, = torch.autograd.grad(y[:, 0].sum(), [x], create_graph=True)
    assert op_of(y.grad_fn) == "LogSoftmax" and op_of(grad.grad_fn) == "LogSoftmaxBackwardData"


# ---- Tensors of other kinds

LAYOUTS = [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc]


def adjacency(to_sparse):
    a = (torch.rand(N, N) < .3).float() + torch.eye(N)
    return to_sparse(a/a.sum(1, keepdim=True))


@pytest.mark.parametrize("to_sparse", LAYOUTS)
@pytest.mark.parametrize("by_call", [False, True])
def test_a_sparse_matrix_beside_the_inputs(to_sparse, by_call):
    model = ReadsTwo(lambda x, a: torch.sparse.mm(a, x))
    def one(): return (torch.randn(N, 5), adjacency(to_sparse)), labels()
    def call(model, batch): return F.cross_entropy(model(*batch[0]), batch[1])
    found = said(model, None, one, call) if by_call else said(model, F.cross_entropy, one)
    assert not found and not failed(found), f"{found!r}"
    assert "samples leak" not in found and "without" in f"{found.all!r}"


@pytest.mark.parametrize("given, read", [
    (lambda: torch.randn(N, 5).relu().to_sparse(), lambda x: x.to_dense()),
    (lambda: torch.randn(N, 5).relu().to_sparse_csr(), lambda x: x.to_dense()),
    (lambda: torch.quantize_per_tensor(torch.randn(N, 5), .05, 0, torch.qint8), lambda x: x.dequantize()),
    (lambda: torch.nested.nested_tensor([torch.randn(1 + i % 3, 5) for i in range(N)]),
            lambda x: torch.nested.to_padded_tensor(x, 0.).mean(1)),
    (lambda: torch.nested.nested_tensor([torch.randn(1 + i % 3, 5) for i in range(N)], layout=torch.jagged),
            lambda x: torch.nested.to_padded_tensor(x, 0.).mean(1)),
])
def test_the_only_input_is_of_another_kind(given, read):
    found = said(Reads(read), F.cross_entropy, lambda: (given(), labels()))
    assert not found and not failed(found), f"{found!r}"


def test_complex_numbers():
    model = Reads(lambda x: x, torch.cfloat)
    found = said(model, lambda out, y: F.cross_entropy(out.abs(), y),
                 lambda: (torch.randn(N, 5, dtype=torch.cfloat), labels()))
    assert not found and not failed(found), f"{found!r}"


def test_an_input_that_is_ignored_is_named_beside_a_sparse_one():
    model = ReadsThree(lambda x, a, more: torch.sparse.mm(a, x))
    def one(): return (torch.randn(N, 5), adjacency(torch.Tensor.to_sparse), torch.randn(N, 2)), labels()
    assert "input unused" in said(model, F.cross_entropy, one)


@pytest.mark.parametrize("as_dict", [True, False])
def test_empty_parts_of_a_batch(as_dict):
    model = ReadsThree(lambda x, edges, more: torch.cat([x, more], 1))
    def one():
        given = {"x": torch.randn(N, 5), "edges": torch.zeros(2, 0, dtype=torch.long), "more": torch.zeros(N, 0)}
        return {**given, "labels": labels()} if as_dict else (tuple(given.values()), labels())
    found = said(model, F.cross_entropy, one)
    assert not found and not failed(found), f"{found!r}"


def test_tuples_and_dicts_inside_each_other():
    model = ReadsTwo(lambda x, more: x + more[0] + more[1]["k"][:, None])
    def one(): return (torch.randn(N, 5), (torch.randn(N, 5), {"k": torch.randn(N)})), {"a": labels()}
    found = said(model, lambda out, y: F.cross_entropy(out, y["a"]), one)
    assert not found and not failed(found), f"{found!r}"


# ---- Checks that fail

class Remembers(nn.Module):
    "Compares with the batch before it, which has to have the same size, and only in training."
    def __init__(self):
        super().__init__()
        self.layer, self.before = nn.Linear(5, 3), None

    def forward(self, x):
        if not self.training: raise RuntimeError("only in training")
        out = self.layer(x)
        if self.before is not None: out = out + 0*self.before
        self.before = out.detach()
        return out


def test_a_model_that_runs_in_training_only():
    def call(model, batch): return F.mse_loss(model(batch[0]), batch[1])
    found = said(Remembers(), None, lambda: (torch.randn(N, 5), torch.randn(N, 3)), call)
    assert not found, f"{found!r}"


def test_a_check_that_fails_is_left_out():
    def fails():
        yield from ()
        raise AttributeError("no such attribute\nand more")
    def cannot():
        yield from ()
        raise NotLookedAt("no mask")
    made = Checklist()
    made.make("One.", fails)
    made.make("Two.", cannot)
    assert made.result(.1).not_looked_at == {
        "One.": f"{FAILED} (AttributeError: no such attribute)", "Two.": "no mask"}

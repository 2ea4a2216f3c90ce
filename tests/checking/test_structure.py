"""preflight finds dropout in eval mode, functions over a wrong dimension, and layers with nothing between them."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.checking.functions import keeps_order, looks_swapped

pytestmark = pytest.mark.usefixtures("one_thread")


class Flat(nn.Module):
    "A function of the input and of some layers."
    def __init__(self, f, **layers):
        super().__init__()
        self.f = f
        for name, m in layers.items(): setattr(self, name, m)

    def forward(self, *args): return self.f(self, *args)


def said(what, model, shape=(24, 20), loss_fn=F.cross_entropy, y=None, call=None):
    "What preflight says of one finding: how sure, where and why."
    torch.manual_seed(1)
    batch = torch.randn(*shape), torch.arange(shape[0]) % 5 if y is None else y
    found = hl.preflight(model, loss_fn, batch, torch.optim.Adam(model.parameters(), 1e-3), overfit=False, call=call)
    return [(f.sure, f.layers, f.evidence) for f in found if f.what == what]


def two(f, n=32): return Flat(f, a=nn.Linear(20, n), b=nn.Linear(32, 5))


class Mask(nn.Module):
    "Drops numbers by a mask, with or without a look at its mode."
    def __init__(self, looks=False):
        super().__init__()
        self.looks = looks

    def forward(self, x):
        if self.looks and not self.training: return x
        return x*torch.empty_like(x).bernoulli_(.8)


def attends(m, x):
    h = m.a(x)[:, None].unflatten(2, (4, 8)).transpose(1, 2)
    return m.b(F.scaled_dot_product_attention(h, h, h, dropout_p=.5 if m.always or m.training else 0.).flatten(1))


def unregistered():
    model = two(lambda m, x: m.b(m.drop[0](m.a(x).relu())))
    model.drop = [nn.Dropout(.5)]
    return model


def attention(always):
    model = two(attends)
    model.always = always
    return model


@pytest.mark.parametrize(("make", "layers", "kind"), [
    (lambda: two(lambda m, x: m.b(F.dropout(m.a(x).relu(), .3))), [], "dropout in the model itself"),
    (lambda: nn.Sequential(nn.Linear(20, 32), Mask(), nn.ReLU(), nn.Linear(32, 5)), ["1"], "bernoulli_ in 1"),
    (unregistered, [], "dropout in the model itself"),
    (lambda: attention(True), [], "scaled_dot_product_attention in the model itself")])
def test_dropout_that_does_not_look_at_its_mode(make, layers, kind):
    (sure, where, evidence), = said("random in eval", make())
    assert (sure, where) == ("likely", layers) and f"random seed: {kind} still drops values." in evidence


@pytest.mark.parametrize("make", [
    lambda: two(lambda m, x: m.b(F.dropout(m.a(x).relu(), .3, m.training))), lambda: attention(False),
    lambda: nn.Sequential(nn.Linear(20, 32), Mask(True), nn.Dropout(.3), nn.ReLU(), nn.Linear(32, 5)),
    lambda: nn.Sequential(nn.Linear(20, 32), nn.RReLU(), nn.Linear(32, 5))])
def test_dropout_that_does(make): assert not said("random in eval", make())


def test_samples_that_are_drawn_are_a_note():
    (sure, layers, _), = said("random in eval", two(lambda m, x: m.b(m.a(x) + torch.randn(32).exp())))
    assert (sure, layers) == ("note", ["b"])
    drawn = two(lambda m, x: m.b(torch.bernoulli(m.a(x).sigmoid())))
    assert [sure for sure, *_ in said("random in eval", drawn)] == ["note"]
    def noisy(m, batch): return F.cross_entropy(m(batch[0] + torch.randn(20)), batch[1])
    assert not said("random in eval", nn.Linear(20, 5), loss_fn=None, call=noisy)


@pytest.mark.parametrize(("dim", "n"), [(0, 1), (-2, 1), (1, 0), (-1, 0)])
def test_a_softmax_over_samples(dim, n):
    found = said("softmax over samples", two(lambda m, x: m.b(m.a(x).softmax(dim))))
    assert [(sure, evidence) for sure, _, evidence in found] == n*[
        ("likely", "A softmax in the model itself is over dimension 0 of 16×32, which has size 16 with 16 "
                   "samples and 12 with 12.")]


def test_a_softmax_over_places_is_right():
    model = Flat(lambda m, x: m.b((m.a(x).softmax(1)*x).sum(1)), a=nn.Linear(20, 1), b=nn.Linear(20, 5))
    assert not said("softmax over samples", model, (24, 16, 20))


def test_a_softmax_where_time_comes_first():
    def f(m, x): return m.last(m.rnn(x)[0]).log_softmax(m.dim)
    model = Flat(f, rnn=nn.LSTM(3, 8), last=nn.Linear(8, 4))
    def loss(out, y): return -(out*y).sum(2).mean()
    for model.dim, sure in ((1, ["possible"]), (2, [])):
        assert [s for s, *_ in said("softmax over samples", model, (9, 24, 3), loss, torch.rand(9, 24, 4))] == sure


def test_shapes_that_look_swapped():
    for old, new in (((16, 4, 12, 7), (16, 12, 28)), ((16, 3, 8, 9), (16, 8, 9, 3)), ((2, 16, 5), (16, 10)),
                     ((16, 1, 4, 9), (16, 9, 4))):
        assert looks_swapped(old, new), (old, new)
    for old, new in (((16, 4, 12, 7), (16, 48, 7)), ((16, 4, 12), (16, 48)), ((16, 48), (16, 4, 12)),
                     ((16, 1, 5), (16, 5)), ((16, 6, 6), (16, 6, 6)), ((16, 12, 4), (16, 6, 8)), ((16, 20), (320,))):
        assert not looks_swapped(old, new), (old, new)


@pytest.mark.parametrize(("f", "n"), [
    (lambda m, x: m.a(x).relu().view(len(x), 36, 7), 1),
    (lambda m, x: m.a(x).relu().flatten(2).transpose(1, 2), 0),
    (lambda m, x: m.a(x).relu().permute(0, 2, 3, 1).flatten(1, 2), 0)])
def test_a_view_in_place_of_a_permutation(f, n):
    model = Flat(lambda m, x: m.b(f(m, x)).mean(1), a=nn.Conv2d(1, 7, 3), b=nn.Linear(7, 5))
    found = said("places mixed up", model, (24, 1, 8, 8))
    assert len(found) == n and all("turns 16×7×6×6 into 16×36×7" in evidence for *_, evidence in found)


def test_sizes_that_agree_by_chance_are_no_permutation():
    "Two heads of 16 units and 16 samples: torch's own attention makes 10×32×16 of 10×16×32."
    layer = nn.TransformerEncoderLayer(32, 2, 32, batch_first=True)
    model = Flat(lambda m, x: m.b(m.a(x).mean(1)), a=layer, b=nn.Linear(32, 5))
    assert not said("places mixed up", model, (24, 10, 32))


def split(x, heads, way):
    "Heads out of the units of each place; only the last way keeps the order of numbers."
    n, places, units = x.shape
    if way == "four": return x.view(n, heads, places, units//heads)
    if way == "three": return x.reshape(n*heads, places, units//heads).unflatten(0, (n, heads))
    if way == "function": return torch.reshape(x, (n, heads, -1, units//heads))
    x = x.view(n, places, heads, units//heads).transpose(1, 2)
    return x.reshape(n*heads, places, -1).unflatten(0, (n, heads)) if way == "right, three" else x


def join(x, way):
    n, heads, places, units = x.shape
    if way == "joined": return x.flatten(0, 1).reshape(n, places, heads*units)
    return x.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("way", ["four", "three", "function", "joined", "right", "right, three"])
def test_heads_that_a_view_alone_makes(way):
    def f(m, x):
        q, k, v = (split(layer(x), 4, way) for layer in (m.q, m.k, m.v))
        return m.last(join((q@k.mT/2).softmax(-1)@v, way).mean(1))
    parts = {name: nn.Linear(16, 16) for name in "qkv"}
    found = said("places mixed up", Flat(f, **parts, last=nn.Linear(16, 5)), (24, 7, 16))
    assert [sure for sure, *_ in found] == ([] if way.startswith("right") else ["likely"])


def test_views_that_are_no_heads():
    for old, new in (((16, 4, 12), (16, 4, 4, 3)), ((16, 7, 12), (16, 7, 4, 3)), ((16, 7, 12), (112, 4, 3)),
                     ((10, 16, 32), (10, 32, 16)), ((4, 16, 8), (2, 2, 16, 8)), ((16, 256, 36), (16, 1152, 8)),
                     ((16, 8, 12), (16, 2, 4, 12))):
        assert keeps_order(old, new) or looks_swapped(old, new), (old, new)


@pytest.mark.parametrize(("make", "layers"), [
    (lambda: nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 12), nn.Linear(12, 5)), ["0", "1", "2"]),
    (lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 32), nn.Linear(32, 5)), ["2", "3"]),
    (lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 32), nn.Dropout(.5), nn.Linear(32, 5)),
     ["2", "4"])])
def test_layers_with_nothing_between_them(make, layers):
    assert [(sure, where) for sure, where, _ in said("no non-linearity", make())] == [("likely", layers)]


@pytest.mark.parametrize("make", [
    lambda: nn.Sequential(nn.Linear(20, 5)), lambda: nn.Sequential(nn.Linear(20, 4), nn.Linear(4, 5)),
    lambda: nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Linear(32, 5)),
    lambda: nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 8), nn.Linear(8, 5)),
    lambda: Flat(lambda m, x: (lambda h: m.b(h).relu() + h[:, :5])(m.a(x)), a=nn.Linear(20, 32), b=nn.Linear(32, 5)),
    lambda: nn.Sequential(nn.Linear(20, 32).requires_grad_(False), nn.Linear(32, 5).requires_grad_(False), nn.ReLU(),
                          nn.Linear(5, 5)),
    lambda: nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Sequential(nn.Linear(16, 32)), nn.Linear(32, 5))])
def test_layers_that_are_meant_so(make): assert not said("no non-linearity", make())


def without_gradients(m, x):
    with torch.no_grad(): h = m.inner(m.first(x) if m.is_first else x)
    return m.last(h)


def recomputed(m, x): return m.last(checkpoint(m.inner, m.first(x) if m.is_first else x, use_reentrant=True))
def recomputed_between(m, x): return m.last(recomputed_activation(m.inner[2](recomputed_activation(m.inner[0](x)))))
def recomputed_activation(x): return checkpoint(F.gelu, x, use_reentrant=True)
def own_activation(m, x): return m.last(OwnActivation.apply(m.inner[2](OwnActivation.apply(m.inner[0](x)))))


class OwnActivation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, x/9)

    @staticmethod
    def backward(ctx, grad): return torch.where(ctx.saved_tensors[0] > 0, grad, grad/9)


def blocks(f, is_first=False, act=nn.GELU, first_is_trained=False):
    inner = nn.Sequential(nn.Linear(20, 32), act(), nn.Linear(32, 20))
    model = Flat(f, first=nn.Linear(20, 20).requires_grad_(first_is_trained), inner=inner, last=nn.Linear(20, 5))
    model.is_first = is_first
    return model


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("make", [
    lambda: blocks(without_gradients), lambda: blocks(without_gradients, True), lambda: blocks(recomputed),
    lambda: blocks(recomputed, True), lambda: blocks(recomputed, True, nn.Tanh, True),
    lambda: blocks(recomputed_between), lambda: blocks(own_activation),
    lambda: Flat(lambda m, x: m.b(no_grad_of(lambda x: m.a(m.first(x).relu()), x)), first=nn.Linear(20, 20),
                 a=nn.Linear(20, 20), b=nn.Linear(20, 5))])
def test_activations_that_run_without_gradients_are_activations(make): assert not said("no non-linearity", make())


def no_grad_of(f, x):
    with torch.no_grad(): return f(x)


@pytest.mark.parametrize("make", [
    lambda: Flat(lambda m, x: m.c(m.b(m.a(no_grad_of(torch.log1p, x.abs())))), a=nn.Linear(20, 20),
                 b=nn.Linear(20, 20), c=nn.Linear(20, 5)),
    lambda: Flat(lambda m, x: m.c(m.norm(m.b(m.norm(m.a(no_grad_of(torch.sin, x)))))), a=nn.Linear(20, 20),
                 b=nn.Linear(20, 20), c=nn.Linear(20, 5), norm=nn.BatchNorm1d(20)),
    lambda: Flat(lambda m, x: m.c(m.b(m.a(no_grad_of(m.before, x)))), before=blocks(recomputed).inner,
                 a=nn.Linear(20, 20), b=nn.Linear(20, 20), c=nn.Linear(20, 5))])
def test_what_runs_before_trained_layers_without_gradients_is_no_activation(make):
    (_, where, _), = said("no non-linearity", make())
    assert where == ["a", "b", "c"]


def test_one_layer_in_several_places():
    model = nn.Sequential(*[nn.Linear(20, 20)]*3, nn.ReLU(), nn.Linear(20, 5))
    assert [(sure, where) for sure, where, _ in said("one layer for several", model)] == [("note", ["0", "1", "2"])]
    def f(m, x): return m.last(m.norms[0](x) + m.norms[1](m.far*x + m.far))
    def normed(norms, far):
        model = Flat(f, norms=nn.ModuleList(norms), last=nn.Linear(20, 5))
        model.far = far
        return model
    assert [sure for sure, *_ in said("one layer for several", normed([nn.BatchNorm1d(20)]*2, 9))] == ["likely"]
    assert [sure for sure, *_ in said("one layer for several", normed([nn.BatchNorm1d(20)]*2, 1e-3))] == ["likely"]
    assert not said("one layer for several", normed([nn.BatchNorm1d(20), nn.BatchNorm1d(20)], 9))
    assert not said("one layer for several", nn.Sequential(*[nn.ReLU()]*2, nn.Linear(20, 5)))


class Factors(nn.Module):
    def __init__(self, down, up):
        super().__init__()
        self.layer, self.gain = nn.Linear(20, 5), nn.Parameter(torch.zeros(1))
        self.down, self.up = nn.Parameter(down*torch.randn(20, 4)), nn.Parameter(up*torch.randn(4, 5))
        self.inner = nn.Linear(5, 5)

    def forward(self, x): return self.layer(x) + x @ self.down @ self.up + self.gain*self.inner(self.layer(x))


def test_factors_that_wait_for_each_other():
    (sure, _, evidence), = said("stuck at zero", Factors(0, 0))
    assert sure == "likely" and evidence.startswith("All values of down, up are zero, and so is their gradient")
    for down, up in ((1, 0), (0, 1), (1, 1)): assert not said("stuck at zero", Factors(down, up))


def test_a_state_that_is_lost():
    def reads(m, x):
        state = None
        for row in x.unbind(1): state = m.cell(row, state if m.keeps else None)
        return m.last(state)
    for keeps in (False, True):
        model = Flat(reads, cell=nn.GRUCell(4, 8), last=nn.Linear(8, 5))
        model.keeps = keeps
        found = said("state is lost", model, (24, 6, 4))
        assert [(sure, layers) for sure, layers, _ in found] == ([] if keeps else [("likely", ["cell"])])
    for shape, n in (((24, 1, 4), 1), ((24, 6, 4), 0)):
        model = Flat(lambda m, x: m.last(m.rnn(x)[0][:, -1]), rnn=nn.LSTM(4, 8, batch_first=True), last=nn.Linear(8, 5))
        assert len(said("state is lost", model, shape)) == n


class SpaceAndTime(nn.Module):
    "A convolution over places, then one over time."
    def __init__(self, middle, bent):
        super().__init__()
        self.space, self.time, self.bent = nn.Conv2d(1, middle, 3, padding=1), nn.Conv1d(middle, 8, 3, padding=1), bent

    def forward(self, x):
        n, t = x.shape[:2]
        x = self.space(x.flatten(0, 1)[:, None])
        if self.bent: x = x.relu()
        x = x.unflatten(0, (n, t)).permute(0, 3, 4, 2, 1).flatten(0, 2)
        return self.time(x).relu().unflatten(0, (n, -1)).mean((1, 3))


@pytest.mark.parametrize("middle, bent, sures", [(6, False, ["note"]), (6, True, [])])
def test_two_filters_with_nothing_between_them(middle, bent, sures):
    model = nn.Sequential(SpaceAndTime(middle, bent), nn.Linear(8, 5))
    found = said("no non-linearity", model, (8, 4, 6, 6))
    assert [sure for sure, *_ in found] == sures
    assert all("0.time gets the output of 0.space" in evidence for *_, evidence in found)


def test_two_filters_with_few_numbers_between_them():
    model = Flat(lambda m, x: m.last(m.b(m.a(x)).relu().mean((2, 3))), a=nn.Conv2d(8, 4, 3), b=nn.Conv2d(4, 8, 3),
                 last=nn.Linear(8, 5))
    assert not said("no non-linearity", model, (8, 8, 6, 6))

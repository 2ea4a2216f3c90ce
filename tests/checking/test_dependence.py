"""preflight measures what the loss depends on, and says where the gradient does not know of it."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


class Two(nn.Module):
    "Two layers, and something between them."
    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.between = nn.Linear(20, 32), nn.Linear(32, 5), between

    def forward(self, x): return self.b(self.between(self, x))


class Rounds(torch.autograd.Function):
    "Rounds, and passes the gradient on."
    @staticmethod
    def forward(ctx, x): return (4*x).round()/4

    @staticmethod
    def backward(ctx, grad): return grad


class Frozen(nn.Module):
    @torch.no_grad()
    def forward(self, x): return x.relu()


def without_gradients(m, x):
    with torch.no_grad(): return m.a(x).relu()


def data(n=32):
    torch.manual_seed(1)
    return torch.randn(n, 20), torch.arange(n) % 5


def checked(model, loss_fn=F.cross_entropy, batch=None, optimizer=True, **options):
    own = optimizer and torch.optim.Adam(model.parameters(), 1e-3)
    optimizer = own if optimizer is True else optimizer
    return hl.preflight(model, loss_fn, batch or data(), optimizer, overfit=False, **options)


def found_in(model, what, **options):
    found = checked(model, **options)
    return [(f.sure, f.layers, f.evidence) for f in found if f.what == what]


@pytest.mark.parametrize(("between", "layer", "said"), [
    (lambda m, x: m.a(x).relu().detach(), "b", "b (Linear) gets values that depend on them, but without a graph."),
    (lambda m, x: torch.from_numpy(m.a(x).detach().numpy()), "b", "b (Linear) gets values that depend on them"),
    (lambda m, x: m.a(x).data, "b", "gets values that depend on them"),
    (lambda m, x: torch.tensor(m.a(x).tolist()), "b", "gets values that depend on them"),
    (without_gradients, "a", "a (Linear) runs with gradients turned off."),
    (lambda m, x: F.one_hot(m.a(x).argmax(1), 32).float(), "b", "gets values that depend on them"),
])
def test_where_a_gradient_is_cut(between, layer, said):
    (sure, layers, evidence), = found_in(Two(between), "gradient is cut")
    assert (sure, layers) == ("certain", [layer]) and said in evidence
    assert evidence.startswith("The loss depends on a.weight, a.bias, but no gradient reaches them: ")


def test_a_loss_that_is_computed_without_gradients():
    @torch.no_grad()
    def call(model, batch): return F.cross_entropy(model(batch[0]), batch[1])
    found = checked(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)), None, call=call)
    first = next(iter(found))
    assert first.what == "gradient is cut" and first.layers == ["0"]
    assert first.evidence == ("The loss has no graph, though it depends on 0.weight, 0.bias, 2.weight, 2.bias: "
                              "0 (Linear) runs with gradients turned off.")
    found = checked(nn.Linear(20, 5), lambda out, y: y.float().mean())
    assert "not trained" in found and "gradient is cut" not in found


def test_a_layer_that_returns_no_graph_is_named():
    model = nn.Sequential(nn.Linear(20, 32), Frozen(), nn.Linear(32, 5))
    (_, layers, evidence), = found_in(model, "gradient is cut")
    assert layers == ["1"] and "1 (Frozen) gets values with a graph and returns values without one." in evidence


def test_what_is_not_trained_on_purpose_is_no_cut():
    model = Two(without_gradients)
    model.a.requires_grad_(False)
    assert not checked(model)
    model = Two(without_gradients)
    assert "gradient is cut" not in checked(model, optimizer=torch.optim.Adam(model.b.parameters()))


def test_a_layer_that_nothing_depends_on_is_not_said_to_be_cut():
    found = checked(Two(lambda m, x: (m.a(x), x.repeat(1, 2)[:, :32])[1]))
    assert "gradient is cut" not in found and "not trained" in found


def test_the_parts_of_a_gan_have_losses_of_their_own():
    model = nn.ModuleDict({"maker": nn.Linear(4, 20), "judge": nn.Linear(20, 1)})
    both = [torch.optim.Adam(part.parameters()) for part in model.values()]

    def judged(model, batch):
        false = model["judge"](model["maker"](torch.randn(len(batch[0]), 4)).detach())
        return false.square().mean() + (model["judge"](batch[0]) - 1).square().mean()
    found = checked(model, None, optimizer=both, call=judged)
    assert not found and ("note", "not trained") in [(f.sure, f.what) for f in found]
    found = checked(model, None, optimizer=both[:1] + both[:1], call=judged)
    assert "gradient is cut" in found


class TwoHeads(nn.Module):
    def __init__(self, between=lambda h: h):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c, self.between = nn.Linear(20, 32), nn.Linear(32, 5), nn.Linear(32, 1), between

    def forward(self, x):
        h = self.a(x).relu()
        return self.b(h), self.c(self.between(h))


def both_losses(out, y): return F.cross_entropy(out[0], y) + (out[1].squeeze(1) - y).square().mean()


def test_a_term_that_is_detached_may_be_meant():
    for between in (torch.detach, lambda h: h*(4*h.mean(1, keepdim=True)).detach().exp()):
        assert not found_in(TwoHeads(between), "term without gradient", loss_fn=both_losses)


@pytest.mark.parametrize("between", [
    lambda h: h, lambda h: (h - h.max(1, keepdim=True).values.detach()).softmax(1),
    lambda h: F.dropout(h, .5), Rounds.apply, lambda h: h.sort(1).values, lambda h: F.normalize(h, dim=1), torch.sign])
def test_a_gradient_that_is_whole(between):
    assert not found_in(TwoHeads(between), "term without gradient", loss_fn=both_losses)


def test_batch_norm_and_spectral_norm_have_whole_gradients():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(20, 32)), nn.BatchNorm1d(32), nn.ReLU(),
                          nn.Dropout(.5), nn.Linear(32, 5))
    assert not found_in(model, "term without gradient")


def test_what_cannot_be_measured_is_said():
    claim = "The loss has no term that was taken out of the graph."
    generator = torch.Generator()
    model = Two(lambda m, x: m.a(x + torch.randn(x.shape, generator=generator)) + m.a.bias.sum().item())
    assert "a different result each time" in checked(model).not_looked_at[claim]
    zero = checked(Two(lambda m, x: m.a(x)), lambda out, y: 0*out.sum() + out.sum().item())
    assert "all gradients are zero" in zero.not_looked_at[claim]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_term_that_is_a_number_in_any_dtype(dtype):
    def call(model, batch):
        out = model(batch[0].to(dtype))
        return out.abs().square().mean() + out[0].abs().sum().item()
    model = nn.Linear(20, 5).to(dtype)
    (sure, layers, evidence), = found_in(model, "term without gradient", loss_fn=None, call=call)
    assert sure == "likely" and not layers and "Doubling it changes the loss" in evidence

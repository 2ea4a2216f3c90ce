"The norm of gradients, put together in float16, overflows where its square does."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from tests.diagnosis.test_beside_the_model import batches, net

pytestmark = pytest.mark.usefixtures("one_thread")


def by_squares(params, kind): return sum(p.grad.to(kind).pow(2).sum() for p in params).sqrt()


def by_norms(params, kind): return torch.stack([p.grad.norm().to(kind)**2 for p in params]).sum().sqrt()


def flat(params, kind):
    g = torch.cat([p.grad.flatten() for p in params]).to(kind)
    return (g*g).sum()**.5


def diagnosed(norm, kind, scale=3000., half=True, clears=False):
    model = net()
    if half: model = model.half()
    params = [*model.parameters()]
    optimizer = torch.optim.SGD(params, lr=.01)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(20):
            optimizer.zero_grad()
            loss = scale*F.cross_entropy(model(x.to(params[0].dtype)).float(), y)
            loss.backward()
            if clears:
                for p in params: p.grad.zero_()
            else:
                factor = 1/(norm(params, kind).float() + 1e-6)
                for p in params: p.grad.mul_(factor.clamp(max=1).to(p.grad.dtype))
            optimizer.step()
            stats.step(loss.item())
    return hl.diagnose(stats)


def said(*args, **options):
    return {f.what: f.evidence for f in diagnosed(*args, **options) if f.sure != "note"}


@pytest.mark.parametrize("norm", [by_squares, by_norms, flat])
def test_squares_beyond_float16(norm):
    found = said(norm, torch.float16)
    assert "its square is Inf" in found["float16 limit"] and "step before backward" not in found
    assert "float16 limit" not in said(norm, torch.float32)
    assert "float16 limit" not in said(norm, torch.float16, scale=1.)


def test_gradients_that_are_cleared():
    assert set(said(None, None, scale=1., clears=True)) & {"step before backward"}
    assert "float16 limit" not in said(None, None, half=False, clears=True)


def test_clipping_of_torch():
    assert "float16 limit" not in said(lambda params, kind: nn.utils.get_total_norm([p.grad for p in params]), None)

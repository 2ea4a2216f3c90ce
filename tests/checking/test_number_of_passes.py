"How often preflight runs a healthy model, which is most of what it costs."
import pytest
import torch

from tests.bench.bench_passes import MODELS, Pass, counted, digest, passes_of

LIMITS = {"CNN": 13, "transformer": 13}  # they may only fall


@pytest.mark.parametrize("model", LIMITS)
def test_a_healthy_model_runs_so_many_times_at_most(model):
    found = counted(passes_of(MODELS[model]))
    assert found["passes"] <= LIMITS[model]
    assert 0 < found["distinct"] <= found["with buffers"] <= found["with random state"] <= found["passes"]


def test_passes_differ_by_more_and_more():
    one = Pass("x", (True, True), True, "w", "b", "r")
    others = [one._replace(inputs="y"), one._replace(modes=(True, False)), one._replace(has_graph=False),
              one._replace(weights="v"), one._replace(buffers="c"), one._replace(random="s")]
    assert counted([one, *others, one]) == {"passes": 8, "distinct": 5, "with buffers": 6, "with random state": 7}


def test_any_bit_makes_another_digest():
    x = torch.rand(3, 4, dtype=torch.bfloat16)
    others = [x.reshape(4, 3), x.T, x.float(), -x, torch.cat([x, x]), x.nextafter(x + 1)]
    assert len({digest([t]) for t in [x, *others]}) == 7 and digest([x]) == digest([x.clone()])
    assert digest([x, 1]) != digest([x, 2]) and digest([torch.tensor(0.)]) != digest([torch.tensor(-0.)])

"""Records that the first version of `record` has written are read: one with all numbers, and one with samples."""
import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import hooklab as hl

FILES = {"whole": "first_record.safetensors", "of samples": "first_record_of_samples.safetensors"}
PATHS = {kind: Path(__file__).parent/"records"/name for kind, name in FILES.items()}
kinds = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


class Waves(nn.Module):
    "Its numbers are the same wherever it is made."
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.Tanh())
        self.outer = nn.Linear(12, 2, dtype=torch.complex64)
        for p in self.parameters(): nn.init.zeros_(p).data.add_(torch.arange(p.numel()).sin().reshape(p.shape))

    def forward(self, x, shift=None):
        return {"waves": self.outer(torch.fft.fft(self.inner(x))), "shift": shift}


X, SHIFT = torch.arange(150.).cos().reshape(25, 6), torch.ones(3)


@pytest.fixture
def waves(): return Waves()


@pytest.fixture
def other():
    m = Waves()
    nn.init.ones_(m.inner[0].bias)
    return m


@kinds
def test_the_model_of_then_is_the_same(path, waves, tmp_path):
    now = hl.record(waves, tmp_path/"now.safetensors", X, shift=SHIFT)
    for pair in (path, waves), (waves, path), (path, now), (now, path):
        c = hl.compare(*pair)
        assert c.same, c
    assert hl.compare(path, waves, X, shift=SHIFT).same
    with pytest.raises(ValueError, match="record of different inputs"): hl.compare(path, waves, X + 1, shift=SHIFT)


@kinds
def test_a_fault_since_then_is_found(path, other, tmp_path):
    now = hl.record(other, tmp_path/"now.safetensors", X, shift=SHIFT)
    for pair in (path, other), (other, path), (path, now), (now, path):
        c = hl.compare(*pair)
        assert not c.same and c.first.a == "inner.0" and "bias" in c.first.what, c


def test_both_files(waves):
    assert hl.compare(PATHS["whole"], PATHS["of samples"]).same
    assert "only a sample of" in str(hl.compare(PATHS["of samples"], copy.deepcopy(waves)))

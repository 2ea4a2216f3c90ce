"Code of an installed package that looks like a fault and is none."
import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

BLOCKS = '''
import torch
from torch import nn


class Stage(nn.Module):
    "Calls only its first block."
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(8, 8), nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.Linear(8, 8))

    def forward(self, x): return self.used(x).relu()


def bound(loss, model):
    "A number of its own beside the loss, as an estimator reports it."
    return loss + model[-1].weight.square().sum().item()
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    "The module above, in a folder of installed packages and in one of the user's."
    def made(folder):
        file = tmp_path/folder/"blocks.py"
        file.parent.mkdir()
        file.write_text(BLOCKS)
        module = ModuleType(f"blocks_in_{folder.replace('-', '_')}")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(BLOCKS, file, "exec"), vars(module))
        return module
    return made


def batch(): return torch.randn(16, 8), torch.arange(16) % 3


def checked(blocks, call=None):
    torch.manual_seed(0)
    model = nn.Sequential(blocks.Stage(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters())
    return hl.preflight(model, F.cross_entropy if call is None else None, batch(), optimizer, call=call)


@pytest.mark.parametrize("folder, sure", [("site-packages", {"note"}), ("own", {"certain", "likely", "possible"})])
def test_layers_in_a_container_that_a_library_does_not_call(package, folder, sure):
    found = [f for f in checked(package(folder)).rows if f["what"] == "never ran"]
    assert found and {f["sure"] for f in found} <= sure


@pytest.mark.parametrize("folder, is_said", [("site-packages", False), ("own", True)])
def test_a_number_that_a_library_takes_out_of_the_graph(package, folder, is_said):
    blocks = package(folder)
    def call(model, batch): return blocks.bound(F.cross_entropy(model(batch[0]), batch[1]), model)
    assert ("term without gradient" in checked(blocks, call)) == is_said


class Scaled(nn.Module):
    "A margin loss whose classes have vectors of their own."
    def __init__(self, has_weights):
        super().__init__()
        weights = 40*torch.eye(3, 8)
        self.weights = nn.Parameter(weights) if has_weights else weights

    def forward(self, output, target): return F.cross_entropy(output @ self.weights.T, target)


@pytest.mark.parametrize("has_weights", [True, False])
def test_what_a_guess_loses_is_unknown_where_the_loss_has_parameters(has_weights):
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), Scaled(has_weights)
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()])
    found = hl.preflight(model, loss, (5*torch.randn(16, 8), torch.arange(16) % 3), optimizer)
    assert ("first loss too high" in found) != has_weights

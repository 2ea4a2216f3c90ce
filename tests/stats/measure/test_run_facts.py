"""What goes into a model: which of it are targets, from which the model computes its loss itself."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.measure.run_facts import facts_of_arguments, names_of_arguments

torch.set_num_threads(1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(48, 16), nn.Linear(16, 4)

    def forward(self, images, targets):
        made = self.out((self.body(torch.stack(images).flatten(1))*30).tanh())*20
        return {"loss": F.smooth_l1_loss(made, torch.stack([t["boxes"][0] for t in targets]))}


@pytest.mark.parametrize("scale", [1, 255])
def test_boxes_that_a_detector_is_given(scale):
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for _ in range(30):
            images = [torch.rand(3, 4, 4)*scale for _ in range(4)]
            targets = [{"boxes": 600*torch.rand(2, 4), "labels": torch.ones(2).long()} for _ in images]
            optimizer.zero_grad()
            loss = model(images, targets)["loss"]
            loss.backward()
            optimizer.step()
            s.step(loss)
    found = [f.evidence for f in hl.diagnose(s) if f.what == "inputs not scaled"]
    assert bool(found) == (scale > 1) and not any("boxes" in text for text in found)
    facts = s.facts.inputs[0].arguments
    assert facts["1.0.boxes"].target and facts["1.0.labels"].target and not facts["0.0"].target


def test_what_is_a_target():
    def forward(self, x, targets, y=None): pass
    def target(*args, **kwargs):
        found = facts_of_arguments(args, kwargs, Detector.forward if "forward" not in kwargs else forward)
        return [x.target for x in found.values()]
    two = torch.ones(2)
    assert target(two, {"a": [two]}) == [False, True] and target(two, labels=[{"class_boxes": two}]) == [False, True]
    assert target({"x": two, "boxes": two, "gt_depth": two}) == [False, True, True]
    assert names_of_arguments(forward) == {"0": "x", "1": "targets", "2": "y"}
    assert names_of_arguments(lambda x, *rest: x) == {"0": "x"} and names_of_arguments(None) == {}


def test_an_optimizer_with_two_epsilons_is_diagnosed_and_saved(tmp_path):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), 1e-2)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for _ in range(8):
            loss = model(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats.step(loss)
    hl.diagnose(stats)
    stats.save(tmp_path/"run")
    assert hl.ActivationStats.load(tmp_path/"run").facts.optimizers[0].eps is None

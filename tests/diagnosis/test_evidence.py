"Each question about a run is asked once, and several rules that look at one thing have one answer."
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis import data_faults, diagnosing, loop_faults, loss_faults, step_faults
from hooklab.diagnosis.evidence import Run
from hooklab.diagnosis.loss_curve import falls_well, loss_course
from hooklab.findings import rules
from hooklab.findings.rules import RULES
from hooklab.stats.measure.loop_watch import InputsAndOutputs


class Fixed(nn.Module):
    "Returns the same for each sample."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x): return self.body(torch.ones_like(x.flatten(1)))


def recorded(model_type, lr=.05, passes=1):
    "The record of three epochs of the digits."
    torch.manual_seed(0)
    model = model_type()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for x, y in [*hl.digits().train]*3:
            loss = sum(F.cross_entropy(model(x), y) for _ in range(passes))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            s.step(loss)
    return Run(s)


def linear(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_each_question_is_asked_once(monkeypatch):
    asked = []
    def counted(run):
        asked.append(1)
        yield from loss_faults.loss_does_not_fall(run)
    for room in step_faults, loop_faults: monkeypatch.setattr(room, "loss_does_not_fall", counted)
    i = next(i for i, rule in enumerate(RULES) if "loss does not fall" in [kind.what for kind in rule.kinds])
    changed = [*RULES[:i], replace(RULES[i], look=counted), *RULES[i + 1:]]
    monkeypatch.setattr(rules, "RULES", changed)
    run = recorded(linear, lr=1e-9)
    assert diagnosing.findings_in(run) and len(asked) == 1
    assert run.answer(counted) == [*loss_faults.loss_does_not_fall(run)]
    assert run.ratio is run.ratio


def test_outputs_that_are_alike_have_one_finding():
    run = recorded(Fixed)
    assert run.answer(data_faults.samples_alike) == []
    seen, = run.answer(data_faults.input_unused)
    assert seen.layers == ["body.0"] and seen.sure == "certain"
    assert not run.answer(falls_well) and not run.answer(data_faults.constant_inputs)


def test_how_the_loss_went():
    run = recorded(linear)
    course = loss_course(run)
    assert course.kind == "cross-entropy" and abs(course.guess - 2.3) < .02 and not course.is_short
    n_looks = sum(InputsAndOutputs().due(step) for step in run.log_steps)
    assert course.late < course.early and len(course.losses) == n_looks
    assert [len(third) for third in course.thirds] == [len(run.log_steps)//3]*3
    twice = loss_course(recorded(linear, passes=2))  # the same batch in both passes: its loss, and not the sum
    assert twice.early == pytest.approx(course.early, rel=.1) and twice.late <= course.late


def scaled(unscale, optimizer_type=torch.optim.SGD, growth_interval=2000, clip=1.):
    "What is said of a run with a `GradScaler` that clips its gradients."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    optimizer = optimizer_type(model.parameters(), lr=.01)
    scaler = torch.amp.GradScaler("cpu", growth_interval=growth_interval)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer, scaler=scaler) as s:
        for x, y in hl.digits().train:
            with torch.autocast("cpu", torch.float16): output = model(x)
            loss = F.cross_entropy(output.float(), y)
            scaler.scale(loss).backward()
            if unscale: scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            s.step(loss)
    return hl.diagnose(s)


@pytest.mark.parametrize("optimizer_type", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("growth_interval", [2000, 5])
def test_clipping_before_the_scale_is_taken_out(optimizer_type, growth_interval):
    finding = scaled(False, optimizer_type, growth_interval).first
    assert (finding.what, finding.sure) == ("clipping before unscaling", "likely")
    assert "or a power of two times that: gradients are clipped while still scaled" in finding.evidence
    assert finding.advice.startswith("Call scaler.unscale_(optimizer)")


@pytest.mark.parametrize("clip", [.1, 1., 100.])
def test_clipping_behind_unscaling_is_right(clip):
    assert not {"clipping too tight", "clipping before unscaling"} & {f.what for f in scaled(True, clip=clip)}

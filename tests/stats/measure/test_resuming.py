"""A record that goes on from a checkpoint has what the run without a break has, or says what it lacks."""
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.measure.sampled_numbers import SILENT_STEPS

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 70


def net():
    "Units of both layers are dead, of one from the first step on; the second layer has fewer units than the first."
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(9, 21), nn.ReLU(), nn.Linear(21, 7), nn.ReLU(), nn.Linear(7, 3))
    with torch.no_grad(): model[0].bias[4:10] = -40
    return model, torch.optim.SGD(model.parameters(), .05)


def train(model, optimizer, stats, steps):
    for step in steps:
        numbers = torch.Generator().manual_seed(step)
        x, y = torch.randn(15, 9, generator=numbers), torch.randint(3, (15,), generator=numbers)
        if step == 31:
            with torch.no_grad(): model[2].bias[:3] = -40
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        stats.step(loss)


def record(model, optimizer): return hl.ActivationStats.for_diagnosis(turns=None).on(model, optimizer=optimizer)


@pytest.fixture(scope="module")
def whole():
    with record(*(made := net())) as s: train(*made, s, range(STEPS))
    return s


def resumed(path, checkpoint, saved, change=lambda path: None):
    "From a checkpoint, with a record that was saved before it or behind it."
    model, optimizer = net()
    with record(model, optimizer) as s:
        for step in range(max(checkpoint, saved)):
            if step == checkpoint: state = deepcopy((model.state_dict(), optimizer.state_dict()))
            train(model, optimizer, s, [step])
            if step + 1 == saved: s.save(path)
    if checkpoint >= saved: state = deepcopy((model.state_dict(), optimizer.state_dict()))
    model, optimizer = net()
    model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    stats = hl.ActivationStats.load(path)
    change(stats)
    with stats.resume(model, optimizer=optimizer, step=checkpoint) as s:
        train(model, optimizer, s, range(checkpoint, STEPS))
    return s


OF_SAMPLES = "silent_units", "dead_units", "var_units", "n_samples"


@pytest.mark.parametrize("checkpoint, saved", [(40, 40), (40, 47), (10, 12), (33, 60)])
def test_no_column_is_lost(checkpoint, saved, whole, tmp_path):
    s = resumed(tmp_path/"run.safetensors", checkpoint, saved)
    assert s.steps == whole.steps
    for name in OF_SAMPLES:
        torch.testing.assert_close(s.history.values(name), whole.history.values(name), equal_nan=True)
    dead = s.history.values("dead_units")[1]
    assert dead[:SILENT_STEPS - 1].isnan().all() and not dead[SILENT_STEPS - 1:].isnan().any() and dead[-1] > .2
    assert [text.partition(":")[0] for text in s.missing] == [f"kept in step {checkpoint}"]


def test_steps_that_nobody_recorded_are_named(whole, tmp_path):
    s = resumed(tmp_path/"run.safetensors", 52, 44)
    assert s.steps == [*range(44), *range(52, STEPS)]
    assert s.missing[0].startswith("steps 44 to 51: the record ends before step 44")
    assert s.history.values("dead_units")[3, -1] == whole.history.values("dead_units")[3, -1] > 0
    assert set(s.missing) <= set(hl.diagnose(s).unknown)
    assert "steps 44 to 51" in s.report(tmp_path/"run.html").read_text()
    s.save(tmp_path/"again.safetensors")
    assert hl.ActivationStats.load(tmp_path/"again.safetensors").missing == s.missing == s.snapshot().missing


def test_of_an_earlier_file_the_steps_without_dead_units_are_named(tmp_path):
    def forget(stats): stats._silence = None
    s = resumed(tmp_path/"run.safetensors", 45, 45, forget)
    last = 45 + SILENT_STEPS - 2
    unknown = s.history.values("dead_units")[1, 44:].isnan().tolist()
    assert unknown == [False] + [True]*(SILENT_STEPS - 1) + [False]*(STEPS - last - 1)
    said = f"dead_units in steps 45 to {last}: the run was resumed at step 45"
    assert any(text.startswith(said) for text in s.missing)


def test_twice_and_in_the_same_process(tmp_path, whole):
    made = net()
    s = record(*made)
    train(*made, s, range(28))
    s.remove()
    for first, last in (28, 29), (29, STEPS):
        s.resume(made[0], optimizer=made[1])
        train(*made, s, range(first, last))
        s.remove()
    assert torch.equal(s.history.values("dead_units").nan_to_num(9), whole.history.values("dead_units").nan_to_num(9))
    assert [text.partition(":")[0] for text in s.missing] == ["kept in steps 28 to 29", "kept in step 29"]


def test_a_run_without_a_break_lacks_nothing(whole):
    assert whole.missing == [] and whole.facts.resumed == []

"A run that is killed keeps its record, and a run that is resumed goes on with it."
import copy
import errno
import gc
import json
import subprocess
import sys
import threading
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hooklab as hl
import hooklab.stats.autosave
from hooklab.hooks.attached import hooks_on
from hooklab.stats.autosave import Autosave
from hooklab.stats.records.facts import plain_facts
from hooklab.stats.records.recorded import Records
from hooklab.stats.records.run_log import LOG_COLUMNS
from support import killed
from support.forks import forked
from support.portions import sweep


def make(width=16):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))
    return model, torch.optim.SGD(model.parameters(), lr=.01, momentum=.9)


def train(model, optimizer, steps, stats=None):
    for step in steps:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if stats is not None: stats.step(loss)


def assert_same(a, b):
    "The same record to the last bit. What compares several steps with each other starts anew with a resumed run."
    assert [*a.histories] == [*b.histories] and a.log.steps == b.log.steps
    for kind, history in a.histories.items():
        other = b.histories[kind]
        assert (history.names, history.rows, history.steps) == (other.names, other.rows, other.steps)
        compared = [row for row, name in enumerate(history.rows) if name not in ("dead_units", "ended_units")]
        one, two = (record.tables()[:, compared] for record in (history, other))
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
    for what in LOG_COLUMNS.keys() - {"kept"}:
        torch.testing.assert_close(a.log.values(what), b.log.values(what), rtol=0, atol=0, equal_nan=True)


# Copies while the run goes on

@pytest.fixture
def often(monkeypatch):
    "Copies as often as the disk allows, and none of them is left to chance: each is written before the next step."
    update = Autosave.update
    def update_and_wait(self):
        update(self)
        if self.writing is not None: self.writing.join()
        self.due = 0.
    monkeypatch.setattr(Autosave, "update", update_and_wait)


def test_the_file_has_what_was_recorded_after_each_step_and_at_the_end(tmp_path, often):
    model, optimizer = make()
    file = tmp_path/"run.safetensors"
    stats = hl.ActivationStats.for_diagnosis().autosave(file, seconds=0)
    with stats.on(model, optimizer):
        for step in range(4):
            train(model, optimizer, [step], stats)
            assert hl.ActivationStats.load(file).steps == stats.steps == list(range(step + 1))
    assert_same(hl.ActivationStats.load(file), stats)
    stats.save(tmp_path/"by_hand.safetensors")
    assert file.read_bytes() == (tmp_path/"by_hand.safetensors").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".safetensors"] == []


def test_saves_take_a_twentieth_of_the_time_at_most(tmp_path, monkeypatch):
    "A clock of the test; each save takes a tenth of a second on it."
    now, saves = [100.], []
    monkeypatch.setattr(hooklab.stats.autosave, "time", SimpleNamespace(monotonic=lambda: now[0]))
    def save(noted, file):
        saves.append(now[0])
        now[0] += .1
    monkeypatch.setattr(Records, "save", save)
    model, optimizer = make()
    with hl.ActivationStats().on(model, optimizer) as stats: train(model, optimizer, [0], stats)
    for seconds, apart in (0, 2.1), (.5, 2.1), (5., 5.):
        saves.clear()
        saver = Autosave(stats, tmp_path/"run.safetensors", seconds)
        for _ in range(120):  # steps of a tenth of a second
            saver.update()
            if saver.writing is not None: saver.writing.join()
            now[0] += .1
        between = [after - before for before, after in zip(saves, saves[1:])]
        assert len(between) >= 2 and all(apart - 1e-6 <= gap <= apart + .2 for gap in between), (seconds, between)
        saver.close()


def test_a_copy_is_of_one_moment_although_it_is_written_while_the_run_goes_on(tmp_path, monkeypatch):
    "The thread begins to read when more steps have been recorded."
    model, optimizer = make()
    go = threading.Event()
    write = Autosave.write
    def write_later(self, *args):
        go.wait(60)
        write(self, *args)
    file = tmp_path/"run.safetensors"
    stats = hl.ActivationStats.for_diagnosis().autosave(file, seconds=0).on(model, optimizer)
    train(model, optimizer, range(3), stats)
    stats.saver.writing.join()
    stats.saver.due = 0.
    monkeypatch.setattr(Autosave, "write", write_later)
    train(model, optimizer, [3], stats)
    reference = copy.deepcopy(stats)
    train(model, optimizer, range(4, 7), stats)  # none of these is copied: a copy is being written
    go.set()
    stats.saver.writing.join()
    assert_same(hl.ActivationStats.load(file), reference)
    assert json.dumps(plain_facts(hl.ActivationStats.load(file).facts)) == json.dumps(plain_facts(reference.facts))
    stats.remove()
    assert hl.ActivationStats.load(file).steps == list(range(7))


def test_it_works_in_a_learner_and_where_steps_end_by_themselves(tmp_path):
    stats = hl.ActivationStats().autosave(tmp_path/"a.safetensors")
    learn = hl.synth_learner(n_trn=3, cbs=stats, quiet=True)
    learn.fit(2)
    assert hl.ActivationStats.load(tmp_path/"a.safetensors").steps == stats.steps
    learn.fit(1)  # another run, in the same file
    assert len(hl.ActivationStats.load(tmp_path/"a.safetensors").steps) == 3
    model, optimizer = make()
    alone = hl.ActivationStats().autosave(tmp_path/"b.safetensors")
    with alone.on(model, optimizer, auto=True): train(model, optimizer, range(3))
    assert hl.ActivationStats.load(tmp_path/"b.safetensors").steps == [0, 1, 2]


def test_a_disk_that_is_full_is_told_once_and_the_run_goes_on(tmp_path, often, monkeypatch):
    model, optimizer = make()
    file = tmp_path/"run.safetensors"
    stats = hl.ActivationStats().autosave(file, seconds=0)
    def full(*args): raise OSError(errno.ENOSPC, "No space left on device")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with stats.on(model, optimizer):
            train(model, optimizer, range(2), stats)
            before = file.read_bytes()
            with monkeypatch.context() as patch:
                patch.setattr("os.fsync", full)
                train(model, optimizer, range(2, 6), stats)
                assert file.read_bytes() == before
            train(model, optimizer, range(6, 8), stats)
    said = [str(w.message) for w in told]
    assert len(said) == 1 and "No space left" in said[0] and "run.safetensors" in said[0]
    assert hl.ActivationStats.load(file).steps == list(range(8))


def test_what_cannot_be_written_is_said_before_the_run(tmp_path):
    stats = hl.ActivationStats()
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"): stats.autosave(tmp_path/"nowhere"/"run")
    with pytest.raises(IsADirectoryError, match="is a folder"): stats.autosave(tmp_path)
    with pytest.raises(ValueError, match="seconds=-1"): stats.autosave(tmp_path/"run", seconds=-1)
    with pytest.raises(TypeError, match="custom hook"):
        hl.ActivationStats(hook=lambda m, i, o: {"mean": 0.}).autosave(tmp_path/"run")


def test_a_run_that_fails_or_is_interrupted_is_saved(tmp_path):
    for i, error in enumerate((RuntimeError, KeyboardInterrupt)):
        model, optimizer = make()
        file = tmp_path/f"run{i}.safetensors"
        stats = hl.ActivationStats().autosave(file, seconds=1e6)
        with pytest.raises(error), stats.on(model, optimizer):
            train(model, optimizer, range(3), stats)
            raise error
        assert hl.ActivationStats.load(file).steps == [0, 1, 2]


def test_a_program_that_ends_without_remove_has_saved_all(tmp_path):
    file = tmp_path/"run.safetensors"
    def program():
        model, optimizer = make()
        stats = hl.ActivationStats().autosave(file, seconds=1e6).on(model, optimizer)
        for _ in range(3):  # without a backward pass: autograd may have threads, and then it refuses to run in a fork
            model(torch.randn(16, 8))
            stats.step()
        program.stats = stats
        import atexit
        atexit._run_exitfuncs()  # a forked test ends without them
    ran = forked(program)
    assert ran.returncode == 0, ran.stderr
    assert hl.ActivationStats.load(file).steps == [0, 1, 2]


def test_a_forked_process_and_a_copy_do_not_write_to_the_file(tmp_path):
    model, optimizer = make()
    file = tmp_path/"run.safetensors"
    stats = hl.ActivationStats().autosave(file, seconds=1e6).on(model, optimizer)
    train(model, optimizer, range(3), stats)
    stats.saver.writing.join()
    before = file.stat().st_mtime_ns
    assert forked(stats.remove).returncode == 0
    copy.deepcopy(stats).remove()
    assert file.stat().st_mtime_ns == before
    stats.remove()
    assert hl.ActivationStats.load(file).steps == [0, 1, 2]


def test_it_keeps_nothing_alive_and_leaves_no_thread(tmp_path):
    model, optimizer = make()
    with hl.ActivationStats().autosave(tmp_path/"run.safetensors", seconds=0).on(model, optimizer) as stats:
        train(model, optimizer, range(3), stats)
    gone = weakref.ref(stats), weakref.ref(model)
    del stats, model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert not [thread for thread in threading.enumerate() if thread.name == "hooklab autosave"]


# Runs that are killed

def check_kills(folder, count, seed):
    command = [sys.executable, killed.__file__, folder, str(count), str(seed)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert len(found) == count and not [why for run in found if (why := killed.wrong(run))]


def test_a_killed_run_keeps_its_record(tmp_path): check_kills(tmp_path, 2, 0)


@sweep
def test_ten_killed_runs_keep_their_records(tmp_path): check_kills(tmp_path, 10, 1)


# Runs that are resumed

RECORDS = {"plain": {}, "all": {"grads": True, "with_hist": True, "samples": True, "include_paramless": True},
           "few rows": {"max_rows": 8}, "every": {"every": 3}, "a sample": {"hist_sample": 50, "counts": True},
           "one layer": {"modules": "3"}, "of gradients": {"is_forward": False}}


@pytest.mark.parametrize("options", RECORDS.values(), ids=RECORDS)
def test_a_resumed_run_has_the_record_of_one_that_was_not_interrupted(tmp_path, options):
    file = tmp_path/"run.safetensors"
    whole = hl.ActivationStats(**options)
    model, optimizer = make()
    with whole.on(model, optimizer): train(model, optimizer, range(30), whole)

    model, optimizer = make()
    first = hl.ActivationStats(**options).autosave(file)
    with first.on(model, optimizer): train(model, optimizer, range(16), first)
    for start, end in (16, 24), (24, 30):
        with hl.ActivationStats.load(file).autosave(file).resume(model, optimizer) as stats:
            train(model, optimizer, range(start, end), stats)
    assert_same(whole, stats)
    assert_same(whole, hl.ActivationStats.load(file))
    assert not hooks_on(model)


def test_steps_after_the_checkpoint_are_made_and_recorded_again(tmp_path):
    file = tmp_path/"run.safetensors"
    whole = hl.ActivationStats(grads=True, loop=True)
    model, optimizer = make()
    with whole.on(model, optimizer): train(model, optimizer, range(20), whole)

    model, optimizer = make()
    stats = hl.ActivationStats(grads=True, loop=True).autosave(file).on(model, optimizer)
    train(model, optimizer, range(8), stats)
    checkpoint = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, range(100, 105), stats)  # lost, because the run is killed before the next checkpoint
    stats.remove()
    model, optimizer = make()
    for part, state in zip((model, optimizer), checkpoint): part.load_state_dict(state)
    again = hl.ActivationStats.load(file)
    with again.resume(model, optimizer, step=8): train(model, optimizer, range(8, 20), again)
    assert_same(whole, again)
    looked = [one.step for one in again.facts.inputs]
    assert looked == sorted(set(looked))


def test_a_diagnosis_goes_on_in_turns_and_does_not_begin_with_the_costly_steps_again(tmp_path):
    options = {"turns": 6}
    whole = hl.ActivationStats.for_diagnosis(**options)
    model, optimizer = make()
    with whole.on(model, optimizer): train(model, optimizer, range(40), whole)
    model, optimizer = make()
    stats = hl.ActivationStats.for_diagnosis(**options)
    with stats.on(model, optimizer): train(model, optimizer, range(22), stats)
    stats.save(tmp_path/"run.safetensors")
    again = hl.ActivationStats.load(tmp_path/"run.safetensors")
    with again.resume(model, optimizer): train(model, optimizer, range(22, 40), again)
    later = [step for step in again.steps if step >= 22]
    assert len(later) <= 18//4 + 1 and later and again.updates is not None
    missing, = again.missing
    assert missing.startswith("kept in step 22: ") and not whole.missing
    said = str(hl.diagnose(again).all)
    assert said.replace(f"\nNot judged: {missing}", "").rstrip() == str(hl.diagnose(whole).all)


def test_a_learner_goes_on_with_a_record(tmp_path):
    file = tmp_path/"run.safetensors"
    learn = hl.synth_learner(n_trn=4, quiet=True)
    learn.fit(2, cbs=hl.ActivationStats().autosave(file))
    more = hl.ActivationStats.load(file).resume()
    learn.fit(1, cbs=more)
    assert more.steps == list(range(12)) and more.log.steps == list(range(12))


def test_a_record_without_steps_begins(tmp_path):
    model, optimizer = make()
    with hl.ActivationStats().resume(model, optimizer) as stats: train(model, optimizer, range(2), stats)
    assert stats.steps == [0, 1]


OTHERS = {
    "a layer less": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU()), "it has no 3"),
    "another kind of layer": (lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1)),
                              "`1` was a BatchNorm1d, but is a LayerNorm"),
    "another shape": (lambda: make(width=32)[0], r"the shape of `0.weight` was \[16, 8\], but is \[32, 8\]"),
    "another model": (lambda: nn.Linear(2, 2), "it has no 0, 1, 3")}


@pytest.mark.parametrize("other, why", OTHERS.values(), ids=OTHERS)
def test_another_model_is_refused_by_name_and_nothing_has_changed(other, why):
    model, optimizer = make()
    with hl.ActivationStats().on(model) as stats: train(model, optimizer, range(3), stats)
    before = stats.history.tables().clone()
    another = other()
    with pytest.raises(ValueError, match=f"from a different model: {why}"): stats.resume(another)
    assert not hooks_on(another) and torch.equal(stats.history.tables(), before)
    with stats.resume(model): train(model, optimizer, range(3, 5), stats)
    assert stats.steps == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="a different model"): stats.resume(another)
    assert stats.on(another).steps == []  # a record of its own
    stats.remove()


def test_what_the_record_needs_is_said():
    model, optimizer = make()
    with hl.ActivationStats().on(model, optimizer) as stats: train(model, optimizer, range(3), stats)
    with pytest.raises(ValueError, match="updates, which need the optimizer: use resume"): stats.resume(model)
    model[0].weight.requires_grad_(False)
    fewer = torch.optim.SGD([*model[0].parameters(), *model[1].parameters()], lr=.1)
    with pytest.raises(ValueError, match="a different model"): stats.resume(model, fewer)
    assert not hooks_on(model)
    stats.combined = True
    with pytest.raises(ValueError, match="combined record of all processes"): stats.resume(model, optimizer)

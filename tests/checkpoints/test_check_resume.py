"`check_resume`: states that were left out are named, and nothing else; what goes wrong is said in a sentence."
import collections
import functools
import gc
import itertools
import os
import pickle
import random
import subprocess
import sys
import time
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed as dist, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

import hooklab as hl
from hooklab.checkpoints import marks, walking
from hooklab.checkpoints.marks import mark_of
from hooklab.checkpoints.new_process import check_importable
from hooklab.checkpoints.walking import Walk
from support import resume_file
from support.resume_loops import STYLES

CASES = [(name, left) for name, style in STYLES.items() for left in style.parts]
QUICK = {("Epochs", "scheduler"), ("Epochs", "order"), ("closures", "n"), ("dict", "position"), ("globals", "step"),
         ("Gan", "ema"), ("Careful", "stopper"), ("Careful", "numpy"), ("Replay", "buffer"), ("Unfreezing", "scale"),
         ("Unfreezing", "generator"), ("Accumulates", "gradients"), ("Streams", "count"), ("SampledEpochs", "epoch")}


def checked(name, left=""):
    style = STYLES[name]
    return hl.check_resume(style.make, style.step, style.save, style.load(left), **{"warm": 7, **style.settings})


@pytest.mark.parametrize("name", STYLES)
def test_a_complete_checkpoint_is_silent(name):
    found = checked(name)
    assert found.same and not found and not found.lost and found.values > 20 and not found.differs_by_itself
    assert str(found).startswith(f"The resumed run is the run: 5 steps bit-equal, {found.values} values.")


@pytest.mark.parametrize(("name", "left"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
                                           for case in CASES])
def test_a_state_that_is_left_out_is_named_and_nothing_else(name, left):
    found, wanted = checked(name, left), STYLES[name].parts[left][2]
    wanted = (wanted,) if isinstance(wanted, str) else wanted
    assert found and not found.same
    assert all(any(piece in path for piece in wanted) for path in found.lost), found


# ---- a small run, to be spoiled

class Run:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.9)
        self.n = 0

    def inputs(self): return torch.randn(8, 4, generator=torch.Generator().manual_seed(self.n))

    def step(self):
        self.n += 1
        loss = self.model(self.inputs()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def step(run): return run.step()
def save(run): return {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "n": run.n}


def load(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.n = saved["n"]


def spoiled(change):
    "A load after which something else is done."
    def load_and_change(run, saved):
        load(run, saved)
        change(run)
    return load_and_change


def test_the_sentence_of_a_schedule_has_the_rate():
    class Scheduled(Run):
        def __init__(self):
            super().__init__()
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, .5)

        def step(self):
            loss = super().step()
            self.scheduler.step()
            return loss
    # load_state_dict of the optimizer brings the rate of now, and a rate by the count of steps another one
    class Counted(Scheduled):
        def __init__(self):
            super().__init__()
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 1/(1 + n))
    found = hl.check_resume(Counted, step, save, load, warm=3, steps=2)
    assert found.lost == ["run.scheduler"] and found.findings[0].kind == "schedule"
    assert "last_epoch 3 became 0, so the rate is 0.0333333 after 2 steps and was 0.0166667" in str(found)
    (lost,) = found.findings
    assert (lost.was, lost.became) == ("3", "0") and "run.scheduler" in found


def test_modes_dtypes_and_what_is_frozen():
    class Drops(Run):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(4, 2), nn.Dropout())
            self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.9)

        def step(self):
            torch.manual_seed(self.n)
            return super().step()
    found = hl.check_resume(Drops, step, save, spoiled(lambda run: run.model.eval()))
    assert found.lost == ["run.model"] and "is in eval mode after the load, and was in train mode" in str(found)
    assert "random state" not in found.lost[0] and any("random state of torch" in x for x in found.harmless)

    found = hl.check_resume(Run, step, save, spoiled(lambda run: run.model.bias.requires_grad_(False)))
    assert found.lost == ["run.model.bias"] and found.findings[0].kind == "requires_grad"

    found = hl.check_resume(Run, step, save, spoiled(lambda run: run.model.double()))
    assert found.lost[0] == "run.model" and "float64" in found.findings[0].became and "float32" in found.findings[0].was
    assert found.findings[-1].kind == "error" and isinstance(found.error, RuntimeError) and found.error.__traceback__


def test_the_optimizer_of_a_replaced_model():
    def replace(run, saved):
        run.model = nn.Linear(4, 2)
        load(run, saved)
    found = hl.check_resume(Run, step, save, replace)
    assert found.lost == ["run.optimizer"] and "trains other tensors" in str(found)


def test_a_load_that_returns_a_new_object_or_something_else():
    def new(_, saved):
        run = Run()
        load(run, saved)
        return run
    assert hl.check_resume(Run, step, save, new).same
    def keys(run, saved):
        load(run, saved)
        return run.model.load_state_dict(saved["model"])
    assert hl.check_resume(Run, step, save, keys).same


def test_a_load_that_changes_what_was_saved():
    def pops(run, saved):
        load(run, saved)
        del saved["n"]
    found = hl.check_resume(Run, step, save, pops)
    assert found.same and "`load` changes the checkpoint" in found.notes[0]


def test_a_save_that_changes_the_run():
    class Drops(Run):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout()
    def ends(run):
        run.drop.eval()
        return {**save(run), "drop": run.drop.training}
    found = hl.check_resume(Drops, step, ends, spoiled(lambda run: run.drop.eval()))
    assert found.same and found.notes == ["`save` changes the run: run.drop.training"]


def test_live_references_and_checkpoints_that_no_pickle_takes():
    def live(run): return {**save(run), "model": run.model.state_dict(keep_vars=True)}
    assert hl.check_resume(Run, step, live, load).same
    def unpickled(run): return {**save(run), "f": lambda: run}
    found = hl.check_resume(Run, step, unpickled, load)
    assert found.same and "cannot be written by torch.save" in found.notes[0]


def test_a_checkpoint_in_a_file_that_later_steps_overwrite(tmp_path):
    class Writes(Run):
        def step(self):
            loss = super().step()
            torch.save(save(self), tmp_path/"last.pt")
            return loss
    def read(run, path): load(run, torch.load(path))
    assert hl.check_resume(Writes, step, lambda run: tmp_path/"last.pt", read).same
    assert hl.check_resume(Writes, step, lambda run: str(tmp_path/"last.pt"), read).same


def test_a_make_that_is_not_fresh():
    shared = nn.Linear(4, 2)
    class Shares(Run):
        def __init__(self):
            super().__init__()
            self.model = shared
            self.optimizer = torch.optim.SGD(shared.parameters(), .1)
    with pytest.raises(ValueError, match=r"make is not fresh: `run.model` is the same object"):
        hl.check_resume(Shares, step, save, load)
    run = Run()
    with pytest.raises(ValueError, match=r"make is not fresh: `run` is the same object"):
        hl.check_resume(lambda: run, step, save, load)


@pytest.mark.parametrize("loss", [None, "0.5", True, []])
def test_a_step_without_a_loss(loss):
    with pytest.raises(TypeError, match="`step` returned .* in step 1, before the save, but must return the loss"):
        hl.check_resume(Run, lambda run: loss, save, load)


def test_losses_in_other_forms():
    def both(run): return {"loss": run.step(), "seconds": time.perf_counter()}
    assert hl.check_resume(Run, both, save, load).same
    assert hl.check_resume(Run, lambda run: (run.step().item(), 2), save, load).same


def fails(*_): raise KeyError("mine")


@pytest.mark.parametrize("which", ["make", "step", "save", "load"])
def test_an_error_says_which_of_the_four_it_came_from(which):
    four = {"make": Run, "step": step, "save": save, "load": load, which: fails}
    with pytest.raises(KeyError, match="mine") as caught: hl.check_resume(**four)
    assert f"check_resume: `{which}` failed" in caught.value.__notes__[0]
    assert any(entry.name == "fails" for entry in caught.traceback)


def test_a_gpu_that_is_absent():
    def on_gpu(run): raise RuntimeError("Found no NVIDIA driver on your system")
    with pytest.raises(RuntimeError) as caught: hl.check_resume(Run, on_gpu, save, load)
    assert "It needs a GPU, and there is none here" in caught.value.__notes__[0]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="make is a function, not a Run"): hl.check_resume(Run(), step, save, load)
    with pytest.raises(ValueError, match="warm=-1"): hl.check_resume(Run, step, save, load, warm=-1)
    with pytest.raises(ValueError, match="steps=0"): hl.check_resume(Run, step, save, load, steps=0)


# ---- loops that differ by themselves

class Noisy(Run):
    def __init__(self):
        super().__init__()
        self.chance = random.Random() # seeded by the system

    def inputs(self): return super().inputs() + self.chance.random()


class Clocked(Run):
    def __init__(self):
        super().__init__()
        self.begun, self.times = time.perf_counter(), []

    def step(self):
        self.times.append(time.perf_counter() - self.begun)
        self.last = time.perf_counter()
        return super().step()


def test_a_loop_that_differs_by_itself_is_said_to_and_accuses_nothing():
    found = hl.check_resume(Noisy, step, save, load)
    assert found.differs_by_itself and not found and not found.same and found.loss is found.batch is None
    assert "the loop differs by itself" in found.title and "run.model.weight" in found.noise
    def no_optimizer(run, saved):
        run.model.load_state_dict(saved["model"])
        run.n = saved["n"]
    assert hl.check_resume(Noisy, step, save, no_optimizer).lost == ["run.optimizer"]


def test_clocks_are_no_state():
    found = hl.check_resume(Clocked, step, save, load)
    assert found.same and not found.differs_by_itself and "run.last" in found.noise


def test_what_the_next_step_overwrites_is_no_loss():
    class Caches(Run):
        table = None
        def step(self):
            random.seed(self.n)
            np.random.seed(self.n)
            if self.table is None or self.rows < 8: self.table, self.rows = torch.ones(8, 1), 8
            self.last_loss = super().step()*self.table.mean() + 0*random.random() + 0*np.random.rand()
            return self.last_loss
    found = hl.check_resume(Caches, step, save, load)
    assert found.same and {"run.last_loss", "random state of Python", "random state of numpy"} <= {*found.harmless}


def test_a_best_loss_is_named_although_the_next_step_is_a_new_best():
    class Best(Run):
        def __init__(self):
            super().__init__()
            self.best = float("inf")

        def step(self):
            loss = 0*super().step().detach() + 1/self.n # falls in each step
            self.best = min(self.best, loss.item())
            return loss
    found = hl.check_resume(Best, step, save, load)
    assert found.lost == ["run.best"] and "happened to give both runs the same value again" in str(found)


def test_what_happens_once_in_a_process_is_no_difference():
    happened = weakref.WeakKeyDictionary() # no plain container, so it is not put back
    class Once(Run):
        def step(self):
            if nn.Linear not in happened: happened[nn.Linear] = torch.rand(1)
            return super().step() + 0*torch.rand(1)
    found = hl.check_resume(Once, step, lambda run: {**save(run), "random": torch.get_rng_state()},
                            lambda run, saved: (load(run, saved), torch.set_rng_state(saved["random"]))[1])
    assert found.same and not found.differs_by_itself


# ---- data

class Loads(Run):
    def __init__(self, workers=0):
        super().__init__()
        x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
        self.order = torch.Generator().manual_seed(3)
        self.loader = DataLoader(TensorDataset(x), 4, shuffle=True, generator=self.order, num_workers=workers)
        self.batches = None

    def inputs(self):
        if self.batches is None: self.batches = iter(self.loader)
        return next(self.batches)[0]


def save_order(run): return {**save(run), "order": run.order.get_state()}


def load_order(run, saved):
    load(run, saved)
    run.order.set_state(saved["order"])


def test_the_order_of_a_loader():
    found = hl.check_resume(Loads, step, save_order, load_order, warm=3, steps=2)
    assert found.lost == ["run.batches"] and found.batch == 1 and found.findings[0].kind == "order"
    assert "Batches differ from the first on: the order of `run.batches` was not saved" in str(found)


def test_random_numbers_that_nothing_depends_on():
    class Draws(Loads):
        def __init__(self):
            super().__init__()
            self.loader = DataLoader(self.loader.dataset, 12) # draws a number for its workers in each epoch
        def inputs(self):
            if self.n % 4 == 1: self.batches = iter(self.loader)
            return super().inputs()
    found = hl.check_resume(Draws, step, save, load, warm=4, steps=2)
    assert found.same and "random state of torch" in found.harmless
    class Shuffles(Draws):
        def inputs(self):
            if self.n % 4 == 1: self.rows = torch.randperm(8)
            return super().inputs()[self.rows]
    found = hl.check_resume(Shuffles, step, save, load, warm=4, steps=2)
    assert found.lost == ["random state of torch"]


@pytest.mark.slow
def test_workers_that_have_fetched_in_advance_are_a_kind_of_their_own():
    found = hl.check_resume(functools.partial(Loads, 2), step, save_order, load_order, warm=3, steps=2)
    assert found.lost == ["run.batches"] and found.findings[0].kind == "prefetched"
    assert "had fetched 4 batches in advance" in str(found)


def test_a_state_that_nothing_holds_is_seen_by_its_consequence(tmp_path):
    class Outside(Run):
        def __init__(self):
            super().__init__()
            (tmp_path/"count").write_text("0")

        def step(self):
            n = int((tmp_path/"count").read_text()) + 1
            (tmp_path/"count").write_text(str(n))
            return super().step()*n
    found = hl.check_resume(Outside, step, save, load)
    assert [lost.kind for lost in found] == ["unknown"] and found.loss == 1
    assert "All that could be compared came back, and the loss of step 1 after the resume differs" in str(found)


def test_state_that_is_still_new_is_listed_as_not_tested():
    class Later(Run):
        def __init__(self):
            super().__init__()
            self.epoch, self.scaler = 0, torch.amp.GradScaler("cpu", enabled=True)

        def step(self):
            self.epoch = self.n//6
            return super().step()
    found = hl.check_resume(Later, step, save, load, warm=3)
    assert found.same and found.not_tested == ["run.scaler", "run.epoch"] and "Not tested" in repr(found)
    assert "run.epoch" in hl.check_resume(Later, step, save, load, warm=9).harmless
    at_first = hl.check_resume(Later, step, save, load, warm=0, steps=1).not_tested
    assert {"run.n", "run.model.weight"} <= {*at_first} and not [path for path in at_first if ".grad" in path]


# ---- tensors and objects of other kinds

def test_tied_meta_sparse_quantized_and_odd_objects():
    class Odd(Run):
        def __init__(self):
            super().__init__()
            self.tied, self.meta = nn.Linear(4, 2), nn.Linear(3, 3, device="meta")
            self.tied.weight = self.model.weight
            self.sparse, self.bits = torch.eye(3).to_sparse(), torch.ones(3, dtype=torch.bfloat16)
            self.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
            self.first, self.second = memoryview(b"12"), memoryview(b"34")
            self.loop = [self] # holds itself
            self.raises = Raises()
    found = hl.check_resume(Odd, step, save, load)
    assert found.same and found.not_walked["run.meta.weight"] and "run.raises" in found.not_walked
    assert [path for path in found.not_walked if path in ("run.first", "run.second")] == ["run.first"] # named once
    paths = Walk(Odd()).leaves
    assert "run.model.weight" in paths and "run.tied.weight" not in paths


class Raises:
    "A proxy that answers no question."
    def __getattribute__(self, name): raise LookupError(name)


def test_marks_do_not_depend_on_the_process():
    values = [torch.eye(2), torch.eye(2).half(), {"b": 2, "a": [1., None]}, {"x", "y", "z"}, np.arange(3),
              random.Random(3), np.random.default_rng(3), torch.Generator().manual_seed(3), torch.eye(2).to_sparse(),
              "text", 3, True]
    found = [mark_of(value) for value in values]
    assert len({*found}) == len(found)
    assert found == resume_file.in_another_process(pickle.dumps(values[:5])) + found[5:]


# ---- afterwards, and memory

def test_everything_is_as_it_was():
    torch.manual_seed(17)
    random.seed(17)
    np.random.seed(17)
    before = torch.get_rng_state(), random.getstate(), mark_of(np.random.mtrand._rand)
    hooks = dict(nn.modules.module._global_forward_pre_hooks)
    n, log = 0, ["first"]
    def counts(run):
        nonlocal n
        n += 1
        log.append(n)
        torch.set_grad_enabled(True)
        return run.step()
    def turns_off(run, saved):
        load(run, saved)
        torch.set_default_dtype(torch.float64)
    try: hl.check_resume(Run, counts, save, turns_off)
    finally: assert torch.get_default_dtype() is torch.float32
    assert (n, log) == (0, ["first"]) and torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate() and before[2] == mark_of(np.random.mtrand._rand)
    assert dict(nn.modules.module._global_forward_pre_hooks) == hooks
    with pytest.raises(KeyError): hl.check_resume(Run, fails, save, load)
    assert torch.equal(before[0], torch.get_rng_state())


def test_one_run_is_alive_at_a_time():
    alive = weakref.WeakSet()
    class Counts(Run):
        def __init__(self):
            super().__init__()
            alive.add(self)
            gc.collect()
            assert len(alive) == 1
    assert hl.check_resume(Counts, step, save, load).same
    gc.collect()
    assert not alive


# ---- the result

def test_what_the_result_shows():
    found = hl.check_resume(Run, step, save, spoiled(lambda run: run.optimizer.state.clear()))
    assert len(found) == 1 and bool(found) and [*found] == found.findings and "run.optimizer" in found
    html = found._repr_html_()
    assert "<b>The resumed run is not the run: one state did not come back.</b>" in html and "momentum_buffer" in html
    assert "<li><code>run.optimizer</code> did not come back" in html and "`" not in html
    assert isinstance(found, hl.ResumeCheck) and isinstance(found.findings[0], hl.LostState)


def test_names_cannot_write_on_the_terminal():
    class Nasty(Run):
        def __init__(self):
            super().__init__()
            self.held = {"a\x1b[31m<b>": 0}

        def step(self):
            self.held["a\x1b[31m<b>"] += 1
            return super().step()
    found = hl.check_resume(Nasty, step, save, load)
    shown = found._repr_html_()
    assert found and "\x1b" not in repr(found) + shown and "<b>\']" not in shown


# ---- a new process

def test_a_function_of_a_notebook_cannot_be_imported():
    with pytest.raises(ValueError, match="fresh=True: a new process has to import `load`.*Put the four functions into"):
        hl.check_resume(Run, step, save, spoiled(len), fresh=True)


@pytest.mark.slow
def test_a_new_process_has_neither_globals_nor_singletons():
    four = resume_file.make, resume_file.step, resume_file.save, resume_file.load
    assert hl.check_resume(*four, warm=3, steps=2).same # the singleton is still there
    found = hl.check_resume(*four, warm=3, steps=2, fresh=True)
    assert found and found.loss == 1
    assert hl.check_resume(resume_file.make, resume_file.step, resume_file.save, resume_file.load_all, warm=3, steps=2,
                           fresh=True).same
    with pytest.raises(KeyError, match="absent") as caught:
        hl.check_resume(resume_file.make, resume_file.step, resume_file.save, resume_file.load_absent, fresh=True)
    assert "`load` failed" in caught.value.__notes__[0]


# ---- what is no state of the run

def test_what_only_save_and_load_use_is_no_state(tmp_path):
    class Folder:
        "Numbers the files of a process."
        written = 0
    folder, names = Folder(), iter("abcdefgh")
    def numbered(run):
        folder.written += 1
        file = tmp_path/f"{folder.written}-{next(names)}.pt"
        torch.save(save(run), file)
        return file
    assert hl.check_resume(Run, step, numbered, lambda run, path: load(run, torch.load(path))).same


def test_an_iterator_that_all_runs_share_begins_anew_in_each():
    numbers = itertools.count()
    class Numbered(Run):
        def inputs(self): return super().inputs() + next(numbers)
    def skips(run, saved):
        load(run, saved)
        for _ in range(run.n): next(numbers)
    assert hl.check_resume(Numbered, step, save, skips).same
    found = hl.check_resume(Numbered, step, save, load)
    assert found.lost == ["numbers"] and not found.differs_by_itself


class TwoHeads(Run):
    "The second head is trained in the first step, and seldom after that."
    every = 50
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(4, 2)
        self.other = torch.optim.SGD(self.second.parameters(), .1)

    def step(self):
        if self.n % self.every: return super().step()
        self.n += 1
        loss = self.second(self.inputs()).square().mean()
        self.other.zero_grad()
        loss.backward()
        self.other.step()
        return loss


def save_both(run): return {**save(run), "second": run.second.state_dict()}


def load_both(run, saved):
    load(run, saved)
    run.second.load_state_dict(saved["second"])


def test_gradients_that_no_step_uses_are_no_loss():
    found = hl.check_resume(TwoHeads, step, save_both, load_both)
    assert found.same and "gradients of run.second" in found.harmless
    class Seldom(TwoHeads): every = 7 # the other head's gradients are cleared in the last step
    assert hl.check_resume(Seldom, step, save_both, load_both, warm=3, steps=5).same


def test_gradients_that_a_late_step_uses_are_a_loss():
    class Adds(TwoHeads):
        every = 7
        def step(self):
            if self.n % 7: return super().step()
            self.n += 1
            loss = self.second(self.inputs()).square().mean()
            loss.backward() # added to those of seven steps before
            self.other.step()
            return loss
    found = hl.check_resume(Adds, step, save_both, load_both, warm=3, steps=6)
    assert found.lost == ["run.second"] and found.findings[0].kind == "gradient"


def test_random_numbers_that_nothing_depends_on_in_a_loop_that_ends():
    class Ends(Loads):
        def __init__(self):
            super().__init__()
            self.loader = DataLoader(self.loader.dataset, 12)
        def inputs(self):
            if self.n > 9: raise StopIteration
            if self.n % 4 == 1: self.batches = iter(self.loader)
            return super().inputs()
    found = hl.check_resume(Ends, step, save, load, warm=4, steps=4)
    assert found.same and "random state of torch" in found.harmless


# ---- names

model, optimizer = None, None


def make_variables():
    global model, optimizer
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), .1, momentum=.9)
    return [model, optimizer]


def step_variables(run):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_a_variable_has_its_name_rather_than_a_number_in_a_tuple():
    def load_model(run, saved): run[0].load_state_dict(saved)
    found = hl.check_resume(make_variables, step_variables, lambda run: run[0].state_dict(), load_model)
    assert found.lost == ["optimizer"]
    found = hl.check_resume(make_variables, step_variables, lambda run: None, lambda run, saved: None)
    assert found.lost == ["model", "optimizer"]


# ---- what it costs

class Reads(TorchDispatchMode):
    "Counts the bytes that are read: those of tensors that operations get, and those that marks are made of."
    def __init__(self, monkeypatch):
        super().__init__()
        self.by_marks = self.by_operations = 0
        bytes_of = marks.bytes_of
        def counted(t):
            self.by_marks += t.nbytes
            return bytes_of(t)
        monkeypatch.setattr(marks, "bytes_of", counted)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not any(returned.alias_info for returned in func._schema.returns): # a view reads nothing
            self.by_operations += sum(x.nbytes for x in tree_leaves(args) if isinstance(x, torch.Tensor))
        return func(*args, **(kwargs or {}))


class Holds(Run):
    "Tensors in places of many kinds, some of them beside an object that is no plain data."
    def __init__(self):
        super().__init__()
        self.wide, self.tied = nn.Linear(50, 50), nn.Linear(50, 50)
        self.tied.weight = self.wide.weight
        self.kept = [[[*map(torch.ones, [40]*300), step]]]
        self.named = {i: (torch.ones(30), "text") for i in range(300)} | {"f": object()}
        self.replay = collections.deque([(torch.ones(20), torch.ones(20))])
        self.of_meta = nn.Linear(2000, 2000, device="meta")


HELD = 4*(2*10 + 50*50 + 2*50 + 300*40 + 300*30 + 2*20) # with the momentum of ten parameters
RANDOM_STATE = torch.get_rng_state().nbytes


def test_a_walk_reads_each_byte_once_and_again_where_another_run_differs(monkeypatch):
    run = Holds()
    step(run)
    run.model.zero_grad()
    reads = Reads(monkeypatch)
    with reads: first = Walk(run).marks
    assert (reads.by_marks, reads.by_operations) == (HELD + RANDOM_STATE, 0)
    with reads: Walk(run, other=first)
    assert (reads.by_marks, reads.by_operations) == (2*(HELD + RANDOM_STATE), 0)
    with reads: Walk(run, other=first | {"run.tied.weight": b""})
    assert reads.by_marks == 3*(HELD + RANDOM_STATE) and 4*2500 <= reads.by_operations <= 4*4*2500 # its norm, in double


def test_a_check_reads_a_state_once_in_each_run_that_is_compared(monkeypatch):
    "At the start, at the save, after a step and in the end, of two runs; of the resumed one not at the start."
    class Waits(Holds):
        def step(self): return torch.zeros(())
    reads, one = Reads(monkeypatch), HELD - 4*10 + RANDOM_STATE # without momentum
    assert hl.check_resume(Waits, step, lambda run: {"large": torch.ones(9999)}, lambda run, saved: None).same
    assert 11*one < reads.by_marks < 12.2*one # once more before the save, to see what `save` changes


@pytest.mark.parametrize("spoil", ["add_", "del"])
def test_whether_a_load_changes_the_checkpoint_is_seen_without_reading_it(monkeypatch, spoil):
    def changes(run, saved):
        load(run, saved)
        if spoil == "del": del saved["n"]
        else: saved["large"].add_(1)
    reads = Reads(monkeypatch)
    found = hl.check_resume(Run, step, lambda run: {**save(run), "large": torch.ones(999_999)}, changes)
    assert "`load` changes the checkpoint" in found.notes[0] and reads.by_marks < 999_999
    assert not hl.check_resume(Run, step, lambda run: {**save(run), "large": torch.ones(999)}, load).notes


# ---- sharded and quantized tensors

@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_sharded_tensors(mesh):
    class Sharded(Run):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(4, 2)
            self.table = distribute_tensor(torch.arange(6.), mesh, [Shard(0)])
            for name, p in [*self.model.named_parameters()]:
                setattr(self.model, name, nn.Parameter(distribute_tensor(p, mesh, [Shard(0)])))
            self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.9)

        def inputs(self): return distribute_tensor(super().inputs(), mesh, [Replicate()])

        def step(self):
            loss = super().step()
            self.table = self.table*2
            return loss.full_tensor()
    def load_table(run, saved):
        load(run, saved)
        run.table = saved["table"]
    def save_table(run): return {**save(run), "table": run.table}
    assert hl.check_resume(Sharded, step, save_table, load_table).same
    found = hl.check_resume(Sharded, step, save_table, load)
    assert found.lost == ["run.table"] and found.findings[0].was.startswith("float32 [6], norm"), found
    found = hl.check_resume(Sharded, step, save_table, lambda run, saved: setattr(run, "table", saved["table"]))
    assert "run.model" in found.lost and "run.optimizer" in found.lost


def quantized(t, per_channel=False):
    if not per_channel: return torch.quantize_per_tensor(t, .25, 3, torch.qint8)
    return torch.quantize_per_channel(t, torch.tensor([.25, .5]), torch.tensor([3, 1]), 0, torch.qint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_tensors(per_channel):
    class Quantized(Run):
        def __init__(self):
            super().__init__()
            self.table = quantized(torch.zeros(2, 3), per_channel)

        def step(self):
            self.table = quantized(self.table.dequantize() + 1, per_channel)
            return super().step() + self.table.dequantize().sum()
    def save_table(run): return {**save(run), "table": run.table}
    def load_table(run, saved):
        load(run, saved)
        run.table = saved["table"]
    assert hl.check_resume(Quantized, step, save_table, load_table).same
    assert hl.check_resume(Quantized, step, save_table, load).lost == ["run.table"]
    t = torch.tensor([[1., 2.], [3., 4.]])
    other = torch.quantize_per_tensor(t/2, .125, 3, torch.qint8) # the same integers with another scale
    assert torch.equal(other.int_repr(), quantized(t).int_repr()) and mark_of(other) != mark_of(quantized(t))


@pytest.mark.filterwarnings("error")
def test_a_step_without_layers():
    class Plain:
        def __init__(self): self.w, self.n = torch.ones(3), 0
        def step(self):
            self.n += 1
            self.w = self.w/self.n
            return self.w.sum()
    assert hl.check_resume(Plain, step, vars, lambda run, saved: vars(run).update(saved)).same
    found = hl.check_resume(Plain, step, lambda run: run.w, lambda run, saved: setattr(run, "w", saved))
    assert found.lost == ["run.n"]


# ---- more of what users give

def test_what_load_state_dict_returns_is_no_run():
    def load_last(run, saved): return run[0].load_state_dict(saved)
    def stepped(run):
        loss = run[0](torch.ones(2, 4)).square().mean()
        run[1].zero_grad()
        loss.backward()
        run[1].step()
        return loss
    def made():
        torch.manual_seed(0)
        layer = nn.Linear(4, 2)
        return layer, torch.optim.SGD(layer.parameters(), .1)
    assert hl.check_resume(made, stepped, lambda run: run[0].state_dict(), load_last).same


def test_a_make_that_leaves_a_variable_as_it_was():
    layer, optimizer = make_variables()
    def stepped(_):
        loss = layer(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    with pytest.raises(ValueError, match="make is not fresh: `layer` is the same object in two runs"):
        hl.check_resume(lambda: None, stepped, lambda _: layer.state_dict(), lambda _, s: layer.load_state_dict(s))


def test_a_random_state_that_is_there_only_from_the_first_step_on(monkeypatch):
    "As that of a GPU which a step is the first to use."
    name, known = "random state of torch on cuda:0", walking.global_generators
    late = types.ModuleType("late") # which holds nothing of the run
    monkeypatch.setattr(walking, "global_generators", lambda: known() | late.generators)
    class Late(Run):
        draws = False
        def __init__(self):
            seed = torch.initial_seed()
            super().__init__()
            for generator in late.generators.values(): generator.manual_seed(seed) # as by those of the process

        def step(self):
            generator = late.generators.setdefault(name, torch.Generator().manual_seed(0))
            noise = torch.rand((), generator=generator) if self.draws else 0
            return super().step() + noise
    class Draws(Late): draws = True
    late.generators = {}
    assert hl.check_resume(Late, step, save, load).same
    late.generators = {}
    found = hl.check_resume(Draws, step, save, load)
    assert found.lost == [name] and f"The {name} did not come back: save torch.cuda.get_rng_state_all()" in str(found)


@pytest.mark.parametrize("path", [None, "a_script.py"])
def test_a_function_of_a_notebook_and_one_of_a_script(monkeypatch, path):
    main = types.ModuleType("__main__")
    if path: main.__file__ = path
    def make(): return None
    make.__module__, make.__qualname__ = "__main__", "make"
    main.make = make
    monkeypatch.setitem(sys.modules, "__main__", main)
    if path: return check_importable("make", make)
    with pytest.raises(ValueError, match="it was written in a notebook or at a prompt. Put the four functions into"):
        check_importable("make", make)


@pytest.mark.slow
def test_a_script_that_calls_check_resume_without_a_guard(tmp_path):
    script = tmp_path/"script.py"
    script.write_text("import hooklab as hl\nfrom support.resume_file import load, make, save, step\n"
                      "def mine(): return make()\nprint(hl.check_resume(mine, step, save, load, fresh=True))\n")
    folders = [str(Path(__file__).parents[1]), *sys.path]
    done = subprocess.run([sys.executable, script], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)})
    assert 'call check_resume below `if __name__ == "__main__":`' in done.stderr


@pytest.mark.slow
def test_batches_that_were_given_are_the_right_thing_to_count():
    class Counts(Loads):
        "Begins an epoch from the state that its generator had then."
        def __init__(self):
            super().__init__(2)
            self.began, self.given = self.order.get_state(), 0

        def inputs(self):
            self.given += 1
            return super().inputs()
    def save_count(run): return {**save(run), "began": run.began, "given": run.given}
    def skips(run, saved):
        load(run, saved)
        run.began, run.given = saved["began"], saved["given"]
        run.order.set_state(run.began)
        run.batches = iter(run.loader)
        for _ in range(run.given): next(run.batches)
    found = hl.check_resume(Counts, step, save_count, skips, warm=3, steps=2)
    assert found.same, found


@pytest.mark.parametrize("form", [tuple, collections.namedtuple("Batch", "x y")._make])
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_tuple_holds_is_put_back_with_it(form, nested):
    class Ahead(Run):
        "Has the batch of the next step."
        def __init__(self):
            super().__init__()
            self.ahead = self.batch()

        def batch(self):
            batch = form([torch.randn(8, 4), torch.tensor(1.)])
            return {"of": [batch]} if nested else batch

        def inputs(self):
            x, y = self.ahead["of"][0] if nested else self.ahead
            self.ahead = self.batch()
            return x*y
    def save_random(run): return {**save(run), "random": torch.get_rng_state(), "ahead": run.ahead}
    def load_random(run, saved):
        load(run, saved)
        torch.set_rng_state(saved["random"])
    found = hl.check_resume(Ahead, step, save_random, load_random)
    assert found.lost == ["run.ahead['of']" if nested else "run.ahead"]
    assert "nothing else depended on it" not in str(found) and found.batch == 1
    def load_ahead(run, saved):
        load_random(run, saved)
        run.ahead = saved["ahead"]
    assert hl.check_resume(Ahead, step, save_random, load_ahead).same


def test_what_cannot_be_put_into_a_run_is_not_said_to_be_used_by_nothing():
    class Sealed(Run):
        "Its count cannot be set."
        def __init__(self):
            super().__init__()
            self.box = Box(0)

        def step(self):
            self.box = Box(self.box.n + 1)
            return super().step()*self.box.n
    class Box:
        __slots__ = ("n",)
        def __init__(self, n): object.__setattr__(self, "n", n)
        def __setattr__(self, *_): raise AttributeError("sealed")
    found = hl.check_resume(Sealed, step, save, load)
    assert found.lost == ["run.box.n"] and "nothing else depended on it" not in str(found)

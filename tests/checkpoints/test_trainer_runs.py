"Runs of trainers: what their own checkpoints bring back, and what they do not."
import functools
import logging

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hooklab as hl
from hooklab.checkpoints.trainer_runs import Steps, accelerator_of, files_in, names_of_library, write_files
from hooklab.checkpoints.variables import variables_of

peers = pytest.mark.peers
X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Classifier(nn.Module):
    def __init__(self, counts=False):
        super().__init__()
        self.body, self.counts, self.n = nn.Sequential(nn.Linear(6, 8), nn.Dropout(.3), nn.Linear(8, 2)), counts, 0

    def forward(self, x, labels):
        if self.counts: self.n += 1
        logits = self.body(x)*(1 + .01*self.n)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"x": X[i], "labels": Y[i]}


def trainer(tmp_path, counts=False, kind=None, **options):
    import transformers
    torch.manual_seed(0)
    given = {"per_device_train_batch_size": 8, "max_steps": 40, "learning_rate": .01, "report_to": [], "use_cpu": True,
             "logging_strategy": "no", "disable_tqdm": True, **options}
    args = transformers.TrainingArguments(output_dir=str(tmp_path/"mine"), **given)
    return (kind or transformers.Trainer)(model=Classifier(counts), args=args, train_dataset=Rows())


@peers
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2, "lr_scheduler_type": "cosine"}], ids=str)
def test_a_hugging_face_trainer_resumes_in_the_middle_of_an_epoch_and_after_it(tmp_path, options):
    for warm in (3, 9):
        found = hl.check_resume(*hl.transformers_run(lambda: trainer(tmp_path, **options)), warm=warm, steps=3)
        assert found.same, found
    assert not (tmp_path/"mine").exists() or not [*(tmp_path/"mine").iterdir()]


@peers
def test_a_hugging_face_trainer_does_not_bring_back_attributes(tmp_path):
    found = hl.check_resume(*hl.transformers_run(lambda: trainer(tmp_path, counts=True)), warm=3, steps=3)
    assert found.lost == ["run.model.n"]
    import transformers
    class Mine(transformers.Trainer):
        calls = 0
        def compute_loss(self, *args, **kwargs):
            self.calls += 1
            return super().compute_loss(*args, **kwargs)*(1 + .1*self.calls)
    found = hl.check_resume(*hl.transformers_run(lambda: trainer(tmp_path, kind=Mine)), warm=3, steps=3)
    assert found.lost == ["run.calls"]


@peers
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_callback_that_a_trainer_makes_anew_from_its_checkpoint(tmp_path, is_saved):
    import transformers
    from transformers.trainer_callback import ExportableState
    class Counts(transformers.TrainerCallback):
        def __init__(self, n=0): self.n = n
        def on_step_end(self, *_, **__): self.n += 1
    class Kept(Counts, ExportableState):
        def state(self): return {"args": {"n": self.n}, "attributes": {}}
    def make():
        made = trainer(tmp_path, restore_callback_states_from_checkpoint=True)
        made.add_callback(Kept() if is_saved else Counts())
        return made
    found = hl.check_resume(*hl.transformers_run(make), warm=3, steps=3)
    assert found.lost == ([] if is_saved else ["run.Counts.n"]), found


@peers
@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_a_trainer_resumes_in_a_new_process(tmp_path, complete):
    from tests.bench.resume_loops import hf_trainer
    make = functools.partial(hf_trainer.trainer, tmp_path, complete)
    found = hl.check_resume(*hl.transformers_run(make), warm=4, steps=2, fresh=True)
    assert found.lost == ([] if complete else ["run.model.scale", "run.Smooth.smooth"]), found


def test_variables_of_what_a_partial_is_given():
    n = 0
    def adds(by, more):
        return by() + more()
    def one(): return n
    def two(): return later
    later = 2
    assert {"n", "later"} <= {*variables_of([functools.partial(adds, one, more=two)])}


@pytest.fixture
def quiet():
    names = "lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"
    loggers = [*map(logging.getLogger, names)]
    levels = [logger.level for logger in loggers]
    for logger in loggers: logger.setLevel(logging.ERROR)
    yield
    for logger, level in zip(loggers, levels): logger.setLevel(level)


def fitted(p=0., shuffle=False, average=True, epochs=9):
    import lightning
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.average = nn.Sequential(nn.Linear(6, 8), nn.Dropout(p), nn.Linear(8, 2)), 0.

        def training_step(self, batch, _):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.average = .9*self.average + .1*loss.item()
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), .01)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

        def on_save_checkpoint(self, checkpoint): checkpoint["average"] = self.average
        def on_load_checkpoint(self, checkpoint):
            if average: self.average = checkpoint["average"]
    torch.manual_seed(0)
    trainer = lightning.Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, accelerator="cpu")
    return trainer, Module(), DataLoader(TensorDataset(X, Y), 8, shuffle=shuffle)


@peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("warm", "options", "lost"), [
    (8, {}, []), (8, {"average": False}, ["run.model.average"]), (8, {"p": .3}, ["random state of torch"]),
    (5, {}, ["run.data[0]"]), (8, {"shuffle": True}, ["random state of torch"])], ids=str)
def test_lightning(quiet, warm, options, lost):
    found = hl.check_resume(*hl.lightning_run(lambda: fitted(**options)), warm=warm, steps=3)
    assert found.lost == lost, found
    assert found.same is (not lost)


@peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("p", [0., .3])
def test_a_trainer_that_ends_with_the_steps_that_are_compared(quiet, p):
    found = hl.check_resume(*hl.lightning_run(lambda: fitted(p, epochs=2)), warm=8, steps=8)
    assert found.lost == (["random state of torch"] if p else []), found


class Accelerated:
    def __init__(self):
        from accelerate import Accelerator
        torch.manual_seed(0)
        self.accelerator, self.n, self.batches = Accelerator(cpu=True), 0, None
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(.3), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), .01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        loader = DataLoader(TensorDataset(X, Y), 8)
        prepared = self.accelerator.prepare(model, optimizer, loader, schedule)
        self.model, self.optimizer, self.loader, self.schedule = prepared

    def batch(self):
        self.n += 1
        return X[8*self.n % 64:][:8], Y[8*self.n % 64:][:8]

    def step(self):
        x, y = self.batch()
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.schedule.step()
        return loss


class Registered(Accelerated):
    def __init__(self):
        super().__init__()
        self.accelerator.register_for_checkpointing(self)

    def state_dict(self): return {"n": self.n}
    def load_state_dict(self, state): self.n = state["n"]


class Iterates(Registered):
    def batch(self):
        if self.batches is None: self.batches = iter(self.loader)
        self.n += 1
        return next(self.batches)


@peers
@pytest.mark.parametrize(("make", "lost"), [(Registered, []), (Accelerated, ["run.n"]), (Iterates, ["run.batches"])])
def test_accelerate(make, lost):
    found = hl.check_resume(*hl.accelerate_run(make, Accelerated.step), warm=3, steps=3)
    assert found.lost == lost, found


def test_an_accelerated_run_without_an_accelerator():
    with pytest.raises(TypeError, match="make returned a dict without an Accelerator"):
        accelerator_of({"model": nn.ReLU()})


def test_steps_of_a_thread_end_with_it():
    steps = Steps()
    def train():
        for n in range(2):
            steps.pause()
            steps.losses.append(n)
    steps.start(train)
    assert (steps.one(), steps.one()) == ([0], [1]) and steps.is_over
    with pytest.raises(RuntimeError, match="the trainer has finished: let it train more steps"): steps.one()
    waits, done = Steps(), []
    def forever():
        try:
            while True: waits.pause()
        finally: done.append(1)
    waits.start(forever)
    waits.end()
    assert done == [1] and not waits.thread.is_alive()


def test_an_error_of_the_trainer_comes_out():
    steps = Steps()
    def train(): raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"): steps.start(train)


def test_files_of_a_folder(tmp_path):
    (tmp_path/"a"/"b").mkdir(parents=True)
    (tmp_path/"a"/"b"/"c.bin").write_bytes(b"12")
    (tmp_path/"a"/"d.txt").write_text("34")
    files = files_in(tmp_path/"a")
    assert sorted(files.values()) == [b"12", b"34"]
    assert files_in(write_files(files, tmp_path/"again")) == files
    assert files_in(tmp_path/"a"/"d.txt") == {"d.txt": b"34"}


def test_what_a_library_sets_is_told_from_what_a_user_sets():
    class Mine(torch.optim.SGD):
        def __init__(self, *args):
            super().__init__(*args)
            self.mine = 1
    names = names_of_library(Mine)
    assert "param_groups" in names and "mine" not in names

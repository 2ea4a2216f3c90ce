"""The callbacks for Lightning and for Hugging Face's Trainer, each in the real trainer: against a loop written by hand."""
import copy
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import hooklab.hooks.occasions
import hooklab.stats.trainers
from hooklab.hooks.attached import hooks_on
from hooklab.stats.activation_stats import ActivationStats

torch.set_num_threads(1)
peers = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore::DeprecationWarning")]
n_batches, bs = 7, 4


class Net(nn.Module):
    "Returns what Hugging Face's Trainer wants: the loss and more in a dict."
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 1)

    def forward(self, x, labels=None):
        pred = self.head(self.body(x))
        return {"logits": pred} if labels is None else {"loss": F.mse_loss(pred, labels), "logits": pred}


def samples():
    x = torch.randn(n_batches*bs, 5, generator=torch.Generator().manual_seed(1))
    return [{"x": row, "labels": row[:1]*3} for row in x]


def by_hand(stats, updates=False, accumulate=1, epochs=2, scale=None, exact_share=False):
    "The model after training. `exact_share` divides the loss by how many batches are in the step, as Hugging Face does, and not by how many should be."
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = scale and torch.amp.GradScaler("cpu", init_scale=scale)
    with stats.on(model, optimizer=opt if updates else None, scaler=scaler):
        for _ in range(epochs):
            for i, batch in enumerate(loader := DataLoader(samples(), bs)):
                in_step = min(accumulate, len(loader) - i//accumulate*accumulate)  # fewer at the end of an epoch
                loss = model(**batch)["loss"]/(in_step if exact_share else accumulate)
                (scaler.scale(loss) if scaler else loss).backward()
                if (i + 1) % accumulate and i + 1 < len(loader): continue
                if scaler:
                    scaler.step(opt)
                    scaler.update()
                else: opt.step()
                opt.zero_grad()
                stats.step()
    return model


class Fault:
    "Raises in the n-th call of what it is asked to be in."
    def __init__(self, where, error, n): self.where, self.error, self.left = where, error, n
    def __call__(self, where):
        if where != self.where: return
        self.left -= 1
        if self.left == 0: raise self.error


def in_lightning(stats=None, updates=False, accumulate=1, epochs=2, fault=None, scale=None, module=None, wrap=None, **options):
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = Net()

        def training_step(self, batch, i):
            if fault: fault("train")
            return self.net(**batch)["loss"]

        def validation_step(self, batch, i):
            if fault: fault("validate")
            self.net(batch["x"])

        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    class Loader(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                if fault: fault("data")
                yield batch

    module = (module or Module)()
    plugins = []
    if scale:
        from lightning.pytorch.plugins.precision import MixedPrecision
        plugins = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))]
    options = {"enable_progress_bar": False} | options
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", accumulate_grad_batches=accumulate, logger=False, enable_checkpointing=False,
                         enable_model_summary=False, plugins=plugins, callbacks=[stats.lightning(updates)] if stats else [], **options)
    ran = Run(module, lambda: trainer.fit(wrap(module) if wrap else module, Loader(samples(), bs), Loader(samples(), bs)))
    ran.trainer = trainer
    return ran


def in_transformers(stats=None, updates=False, accumulate=1, epochs=2, fault=None, scale=None, folder=None, **options):
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def get_train_dataloader(self): return self.accelerator.prepare(DataLoader(self.train_dataset, bs, collate_fn=self.collate))

        def collate(self, rows):
            if fault: fault("data")
            return self.data_collator(rows)

        def training_step(self, *args, **kwargs):
            if fault: fault("train")
            return super().training_step(*args, **kwargs)

        def prediction_step(self, *args, **kwargs):
            if fault: fault("validate")
            return super().prediction_step(*args, **kwargs)

    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    options = {"disable_tqdm": True, "eval_strategy": "epoch", "save_strategy": "no"} | options
    args = TrainingArguments(str(folder), num_train_epochs=epochs, per_device_eval_batch_size=bs, gradient_accumulation_steps=accumulate,
                             use_cpu=True, report_to="none", lr_scheduler_type="constant", max_grad_norm=0, **options)
    trainer = InOrder(model, args, train_dataset=samples(), eval_dataset=samples(), optimizers=(opt, None))
    if scale: trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    if stats: trainer.add_callback(stats.transformers(updates))
    ran = Run(model, trainer.train)
    ran.trainer = trainer
    return ran


class Run:
    "A run that is ready to begin."
    def __init__(self, model, begin): self.model, self.begin = model, begin

    def __call__(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
            self.begin()
        return self

    @property
    def net(self): return getattr(self.model, "net", self.model)


@pytest.fixture(params=["lightning", "transformers"])
def run(request, tmp_path):
    if request.param == "lightning": return in_lightning
    return lambda *args, **kwargs: in_transformers(*args, folder=tmp_path, **kwargs)


def short(name): return name.removeprefix("net.")


def same(a, b):
    "The records of `a` and `b` are the same, to the bit."
    assert a.histories.keys() == b.histories.keys() and len(a.stats) == len(b.stats)
    for kind, history in a.histories.items():
        other = b.histories[kind]
        assert [*map(short, history.names)] == [*map(short, other.names)] and history.steps == other.steps
        torch.testing.assert_close(history.tables(), other.tables(), rtol=0, atol=0, equal_nan=True)


def same_parameters(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True): assert torch.equal(p, q)


for_peers = [*peers, pytest.mark.parametrize("accumulate", [1, 3])]


def with_marks(*marks):
    def decorate(f):
        for mark in marks: f = mark(f)
        return f
    return decorate


@with_marks(*for_peers)
def test_one_row_for_each_step_as_in_a_loop_by_hand(run, accumulate):
    options = {"with_hist": True, "grads": True, "include_paramless": True}
    ours, theirs = ActivationStats(**options), ActivationStats(**options)
    ran = run(theirs, True, accumulate)()
    model = by_hand(ours, True, accumulate, exact_share=ran.model is ran.net)
    steps = getattr(ran.trainer, "global_step", None) or ran.trainer.state.global_step
    assert len(theirs.stats) == steps == 2*-(-n_batches//accumulate)
    same(ours, theirs)
    same_parameters(model, ran.net)
    assert not hooks_on(ran.model)


@with_marks(*for_peers)
def test_training_is_bit_identical_without_it(run, accumulate):
    with_it = run(ActivationStats(with_hist=True, grads=True), True, accumulate)()
    same_parameters(with_it.net, run(accumulate=accumulate)().net)


@with_marks(*peers)
def test_every(run):
    s = ActivationStats(every=3)
    run(s)()
    assert s.steps == [0, 3, 6, 9, 12]


@with_marks(*peers, pytest.mark.parametrize("error", [RuntimeError("on purpose"), KeyboardInterrupt()], ids=["error", "interrupt"]),
            pytest.mark.parametrize("where, n", [("train", 1), ("train", 5), ("validate", 4), ("data", 3)]))
def test_hooks_are_gone_after_a_failure_and_the_records_stay(run, where, n, error):
    s = ActivationStats(grads=True)
    ran = run(s, True, fault=Fault(where, error, n))
    # Lightning makes SystemExit of an interrupt
    with pytest.raises((RuntimeError, KeyboardInterrupt, SystemExit)): ran()
    assert not hooks_on(ran.model) and s.session is None
    if where == "train": assert len(s.stats) == n - 1
    if where == "validate": assert len(s.stats) in (0, n_batches)  # Lightning tries validation out before


@with_marks(*peers)
def test_a_scaler_is_found_and_gradients_are_recorded_without_it(run):
    ours, theirs = ActivationStats(grads=True), ActivationStats(grads=True)
    plain = by_hand(ActivationStats(), scale=None)
    by_hand(ours, scale=2.**10)
    autocast = {"scale": 2.**10}
    ran = run(theirs, **autocast)()
    assert theirs.scaled and theirs.gradients.values("mean").abs().max() < 10
    if ran.model is ran.net: same(ours, theirs)  # Lightning runs in float16 too, so its numbers are near
    else: torch.testing.assert_close(ours.stats_tensor, theirs.stats_tensor, rtol=0.02, atol=0.02)
    torch.testing.assert_close(plain.head.weight, ran.net.head.weight, rtol=0.02, atol=0.02)


@with_marks(*peers)
def test_steps_that_a_scaler_skips_are_named(tmp_path):
    s = ActivationStats(grads=True)
    in_transformers(s, scale=2.**127, folder=tmp_path)()
    assert s.skipped and s.skipped[0] == 0 and len(s.stats) == 2*n_batches


@with_marks(*peers)
def test_a_second_run_records_anew(run):
    s = ActivationStats()
    first = run(s, epochs=1)()
    before = copy.deepcopy(s.stats)
    assert len(before) == n_batches
    second = run(s, epochs=1)()
    assert s.stats == before and not hooks_on(first.model) and not hooks_on(second.model)


@with_marks(*peers)
def test_statistics_taken_off_in_the_middle_of_a_run(run):
    s = ActivationStats()
    class Stop:
        left = 3
        def __call__(self, where):
            self.left -= where == "train"
            if self.left == 0: s.remove()
    ran = run(s, fault=Stop())()
    assert len(s.stats) == 2 and not hooks_on(ran.model)


@with_marks(*peers)
def test_no_layer_is_an_error_before_training(run):
    seen = []
    with pytest.raises(LookupError): run(ActivationStats(modules="nothing.*"), fault=seen.append)()
    assert "train" not in seen


@with_marks(*peers)
def test_other_peoples_hooks_stay(run):
    ran = run(ActivationStats())
    handle = ran.net.head.register_forward_hook(lambda *_: None)
    ran()
    assert len(hooks_on(ran.model)) == 1
    handle.remove()


@with_marks(*peers)
def test_with_progress_bars(tmp_path, capsys):
    for ran, s in ((in_lightning, a := ActivationStats()), (in_transformers, b := ActivationStats())):
        if ran is in_lightning: ran(s, enable_progress_bar=True)()
        else: ran(s, disable_tqdm=False, folder=tmp_path)()
    same(a, b)


@with_marks(*peers)
def test_several_optimizers_in_one_batch_of_lightning():
    import lightning.pytorch as pl

    class Two(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.automatic_optimization = Net(), False

        def training_step(self, batch, i):
            for opt in self.optimizers():
                opt.zero_grad()
                self.manual_backward(self.net(**batch)["loss"])
                opt.step()

        def configure_optimizers(self): return [torch.optim.SGD(m.parameters(), lr=0.1) for m in (self.net.body, self.net.head)]

    s = ActivationStats(grads=True)
    ran = in_lightning(s, module=Two, epochs=1)()
    assert ran.trainer.global_step == 2*n_batches and len(s.stats) == n_batches and not hooks_on(ran.model)
    assert (s.history.values("n")[0] == 2*bs*8).all()  # both passes of a batch
    in_lightning(s, True, module=Two, epochs=1)()
    assert s.updates.names == ["net.body.0.weight", "net.body.0.bias", "net.head.weight", "net.head.bias"]
    assert len(s.updates) == n_batches and (s.updates.values("update") > 0).all()


def test_updates_of_a_run_without_an_optimizer():
    follower = hooklab.stats.trainers.Follower(ActivationStats(), updates=True)
    with pytest.raises(ValueError, match="this run has no optimizer; leave updates out"):
        follower.begin(Net(), 0, [], None)


def in_plain_loop(prepare, n=4):
    "Records of a loop in which `prepare` wraps the model, the optimizer and what calls `backward`."
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    called, outer, backward = prepare(model, opt)
    s, pace = ActivationStats(grads=True), []
    with s.on(called, optimizer=outer, auto=True), hooklab.hooks.occasions.step_hook(outer, lambda o, args, kwargs: pace.append(o)):
        for batch in list(DataLoader(samples(), bs))[:n]:
            backward(called(**batch)["loss"])
            outer.step()
            outer.zero_grad()
    assert pace == [opt]*n and not opt._optimizer_step_post_hooks and not hooks_on(called)
    return s


@with_marks(*peers, pytest.mark.parametrize("which", ["accelerate", "fabric", "lightning"]))
def test_optimizers_that_other_libraries_have_wrapped(which):
    if which == "accelerate":
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        def prepare(model, opt): return *accelerator.prepare(model, opt), accelerator.backward
    elif which == "fabric":
        from lightning.fabric import Fabric
        fabric = Fabric(accelerator="cpu", devices=1)
        def prepare(model, opt): return *fabric.setup(model, opt), fabric.backward
    else:
        from lightning.pytorch.core.optimizer import LightningOptimizer
        class Steps:  # a strategy, as far as this needs one
            def optimizer_step(self, optimizer, closure, **kwargs): return optimizer.step(closure)
        def prepare(model, opt):
            outer = LightningOptimizer(opt)
            outer._strategy = Steps()
            return model, outer, torch.Tensor.backward
    plain, wrapped = in_plain_loop(lambda model, opt: (model, opt, torch.Tensor.backward)), in_plain_loop(prepare)
    assert wrapped.steps == plain.steps == [0, 1, 2, 3]
    for kind, history in plain.histories.items(): assert torch.equal(history.tables(), wrapped.histories[kind].tables())


@with_marks(*peers)
def test_accumulation_of_accelerate_ends_no_step():
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    torch.manual_seed(0)
    model = Net()
    model, opt, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(samples(), bs))
    with ActivationStats().on(model, optimizer=opt, auto=True) as s:
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                opt.step()
                opt.zero_grad()
    assert len(s.stats) == -(-n_batches//3) and s.history.values("n")[0].tolist() == [3*bs*8, 3*bs*8, bs*8]


@with_marks(*peers, pytest.mark.parametrize("where", ["cpu", "disk"]))
def test_a_model_that_accelerate_has_offloaded(where, tmp_path):
    from accelerate import cpu_offload, disk_offload
    torch.manual_seed(0)
    model = Net().requires_grad_(False)
    twin, x = copy.deepcopy(model), samples()[0]["x"][None]
    cpu_offload(model, torch.device("cpu")) if where == "cpu" else disk_offload(model, str(tmp_path), torch.device("cpu"))
    assert all(p.is_meta for p in model.parameters())
    found = []
    for m in (model, twin):
        with ActivationStats(with_hist=True).on(m) as s:
            for i in range(3):
                m(x + i)
                s.step()
        found.append(s.history.tables())
    assert torch.equal(*found)


@with_marks(*peers)
def test_tensors_of_monai():
    MetaTensor = pytest.importorskip("monai.data").MetaTensor
    x = torch.randn(2, 1, 8, 8)
    found = []
    for batch in (x, MetaTensor(x)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4*36, 2))
        with ActivationStats(with_hist=True, grads=True, include_paramless=True).on(model) as s:
            for i in range(3):
                model(batch + i).sum().backward()
                s.step()
        found.append(s)
    for kind, history in found[0].histories.items(): assert torch.equal(history.tables(), found[1].histories[kind].tables())


@with_marks(*peers)
def test_a_compiled_module_in_lightning():
    ours, theirs = ActivationStats(), ActivationStats()
    by_hand(ours, epochs=1)
    ran = in_lightning(theirs, epochs=1, wrap=lambda module: torch.compile(module, backend="eager"))()
    assert not hooks_on(ran.model) and len(theirs.stats) == n_batches
    torch.testing.assert_close(ours.stats_tensor, theirs.stats_tensor)


@with_marks(*peers)
def test_a_run_that_is_resumed_goes_on_counting(tmp_path):
    s = ActivationStats(every=2)
    ran = in_lightning(s, epochs=1)()
    ran.trainer.save_checkpoint(tmp_path/"run.ckpt")
    again = in_lightning(s, epochs=2)
    again.begin = lambda: again.trainer.fit(again.model, DataLoader(samples(), bs), ckpt_path=tmp_path/"run.ckpt", weights_only=False)
    again()
    assert s.steps == [8, 10, 12]
    in_transformers(s, epochs=1, folder=tmp_path, save_strategy="epoch")()
    again = in_transformers(s, epochs=2, folder=tmp_path)
    again.trainer.train(resume_from_checkpoint=True)
    assert s.steps == [8, 10, 12]


@with_marks(*peers)
def test_a_record_goes_on_in_a_trainer_that_resumes_and_in_a_new_one(tmp_path, run):
    "The trainer says which step comes next; one that begins anew goes on where the record ended."
    file = tmp_path/"run.safetensors"
    first = run(ActivationStats(every=2).autosave(file), epochs=1)()
    s = ActivationStats.load(file).autosave(file).resume()
    run(s, epochs=1)()
    assert s.steps == [0, 2, 4, 6, 8, 10, 12] == ActivationStats.load(file).steps and s.log.steps == list(range(14))
    if run is not in_lightning: return
    first.trainer.save_checkpoint(tmp_path/"run.ckpt")
    s = ActivationStats.load(file).resume()
    again = run(s, epochs=2)
    given = {"ckpt_path": tmp_path/"run.ckpt", "weights_only": False}
    again.begin = lambda: again.trainer.fit(again.model, DataLoader(samples(), bs), **given)
    again()
    assert s.steps == [0, 2, 4, 6, 8, 10, 12] and s.log.steps == list(range(14))  # 7 to 13 were made again


@with_marks(*peers)
def test_trainers_without_our_callback_are_what_they_were(tmp_path):
    "`train` of Transformers ends our callbacks and no others, and keeps its name and its arguments."
    import inspect

    from transformers import Trainer
    ActivationStats().transformers()
    ActivationStats().transformers()
    assert not hasattr(Trainer.train.__wrapped__, "__wrapped__") and Trainer.train.__name__ == "train"
    assert "resume_from_checkpoint" in inspect.signature(Trainer.train).parameters
    s = ActivationStats()
    ran = in_transformers(folder=tmp_path)
    with s.on(ran.net):  # recorded by hand
        ran()
        assert s.session


@with_marks(*peers)
def test_what_is_made_is_of_the_librarys_kind():
    from lightning.pytorch import Callback
    from transformers import TrainerCallback
    assert isinstance(ActivationStats().lightning(), Callback) and isinstance(ActivationStats().transformers(), TrainerCallback)


@with_marks(*peers)
def test_pytorch_lightning_by_its_own_name(tmp_path):
    code = """if True:
        import sys, torch, pytorch_lightning as pl
        from hooklab.hooks.attached import hooks_on
        from hooklab.stats.activation_stats import ActivationStats
        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(3, 1)
            def training_step(self, x, i): return self.net(x).mean()
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
        s, module = ActivationStats(), Module()
        cb = s.lightning()
        assert isinstance(cb, pl.Callback) and "lightning.pytorch" not in sys.modules
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[cb])
        trainer.fit(module, torch.utils.data.DataLoader(torch.randn(8, 3), 2))
        assert len(s.stats) == 4 and not hooks_on(module)
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("method, names, install", [("lightning", ["lightning", "pytorch_lightning"], "pip install lightning"),
                                                    ("transformers", ["transformers"], "pip install transformers accelerate")])
def test_what_is_missing_is_said(monkeypatch, method, names, install):
    for module in [m for m in sys.modules if m.split(".")[0] in names]: monkeypatch.delitem(sys.modules, module)
    for name in names: monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(ImportError, match=f"not installed. Run: python -m {install}"): getattr(ActivationStats(), method)()


def test_a_library_that_is_broken_says_so_itself(monkeypatch, tmp_path):
    (tmp_path/"broken_trainer.py").write_text("import something_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_it_needs"): hooklab.stats.trainers.import_library("broken_trainer", install="nothing")


def test_a_learner_or_layers_in_the_first_place_are_an_error():
    "fastai v1 had the learner there; a histogram of everything would be a strange answer."
    for given in (nn.Linear(1, 1), "0.*", [nn.Linear(1, 1)], object()):
        with pytest.raises(TypeError, match=r"Learner\(…, cbs=ActivationStats\(\)\); select layers with modules="):
            ActivationStats(given)


@with_marks(*peers)
def test_a_trainer_that_replaces_train_needs_a_with(tmp_path):
    s = ActivationStats()
    ran = in_transformers(s, folder=tmp_path)
    def train():
        ran.trainer.callback_handler.on_train_begin(ran.trainer.args, ran.trainer.state, ran.trainer.control)
        assert hooks_on(ran.model)
        raise RuntimeError("on purpose")
    with pytest.raises(RuntimeError, match="on purpose"), s: train()
    assert not hooks_on(ran.model)
    with s: ran()
    assert len(s.stats) == 2*n_batches and not hooks_on(ran.model)


@with_marks(*peers)
def test_two_processes_of_lightning(tmp_path):
    "Each records its own batches, and after `fit` they can be merged."
    (tmp_path/"train.py").write_text("""
import lightning.pytorch as pl
import torch
from hooklab.hooks.attached import hooks_on
from hooklab.stats.activation_stats import ActivationStats

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 1)
    def training_step(self, x, i): return self.net(x).square().mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

torch.set_num_threads(1)
s, module = ActivationStats(grads=True), Module()
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     callbacks=[s.lightning(updates=True)])
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(16, 3), 2))
assert s.names == ["net"] and s.history.values("n").tolist() == [[2]*4] and not hooks_on(module)
s.combine()
assert s.history.values("n").tolist() == s.gradients.values("n").tolist() == [[4]*4]
torch.testing.assert_close(s.gradients.values("mean"), s.history.values("mean")/2)  # of the loss of all four samples
torch.distributed.destroy_process_group()
print("done")
""")
    done = subprocess.run([sys.executable, "-W", "ignore", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    # The words of both tell; the exit code does not, for gloo's threads sometimes abort a process that has come to its end.
    assert done.stdout.count("done") == 2, done.stderr[-3000:]

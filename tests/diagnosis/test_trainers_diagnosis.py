"""A model, its data and a fault, in a plain loop and in the trainers of four libraries: the same findings."""
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.measure.loop_watch import FIRST_LOOKS
from hooklab.training.callback import Callback
from support.portions import one_in

torch.set_num_threads(1)
n_batches, bs, n_epochs = 10, 16, 6
ignored = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@dataclass
class Case:
    "A fault, as it is planted in a model, its data and its loop."
    lr: float = .1
    decay: float = 0.
    momentum: float = 0.
    clip: float = 0.
    scale: float = 1.  # of the inputs
    data: Callable = lambda x: x
    prepare: Callable = lambda model: None
    last: type | None = None  # a layer that comes last
    sign: int = 1
    evaluates: bool = False
    clears: bool = True
    optimizer: type = torch.optim.SGD


CASES = {
    "healthy": Case(),
    "adam": Case(optimizer=torch.optim.Adam, lr=3e-3),
    "momentum": Case(lr=0.03, momentum=0.9),
    "no zero_grad": Case(lr=0.01, clears=False),
    "lr too large": Case(lr=300.0),
    "lr too small": Case(lr=1e-7),
    "raw inputs": Case(scale=3000.0, lr=0.01),
    "softmax": Case(last=partial(nn.Softmax, dim=1)),
    "eval mode": Case(evaluates=True),
    "decay": Case(decay=2.0),
    "sign": Case(sign=-1),
    "constant inputs": Case(data=torch.zeros_like),
    "dead ReLU": Case(prepare=lambda model: nn.init.constant_(model.body[0].bias, -100.0)),
    "clipping": Case(clip=1e-5),
    "frozen": Case(prepare=lambda model: model.body[0].requires_grad_(False)),
}


class Net(nn.Module):
    "A classifier that computes its loss itself where it gets labels, as those of Hugging Face do."
    def __init__(self, case):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.drop, self.head = (
            nn.Sequential(nn.Linear(20, 32), nn.ReLU()),
            nn.Dropout(0.1 if case.evaluates else 0),
            nn.Linear(32, 5),
        )
        self.last = case.last() if case.last else nn.Identity()
        self.case = case
        case.prepare(self)

    def train(self, mode=True): return super().train(mode and not self.case.evaluates)

    def forward(self, x, labels=None):
        logits = self.last(self.head(self.drop(self.body(x))))
        return logits if labels is None else {"loss": self.loss(logits, labels), "logits": logits}

    def loss(self, logits, labels): return self.case.sign*F.cross_entropy(logits, labels)


def rows(case):
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(n_batches*bs, 20, generator=generator), torch.randn(20, 5, generator=generator)
    return [{"x": case.data(row*case.scale), "labels": label} for row, label in zip(x, (x@w).argmax(1))]


def batches(case): return [(batch["x"], batch["labels"]) for batch in DataLoader(rows(case), bs)]


def pairs(case): return [(row["x"], row["labels"]) for row in rows(case)]


def optimizer_for(case, params):
    momentum = {"momentum": case.momentum} if case.momentum else {}
    return case.optimizer(params, lr=case.lr, weight_decay=case.decay, **momentum)


def keep_gradients(owner, case):
    if not case.clears: owner.zero_grad = lambda *args, **kwargs: None


def in_plain_loop(case, **options):
    model, stats = Net(case), hl.ActivationStats.for_diagnosis(**options)
    optimizer = optimizer_for(case, model.parameters())
    model.train()
    torch.manual_seed(2)
    with stats.on(model, optimizer=optimizer):
        for _ in range(n_epochs):
            for x, labels in batches(case):
                loss = model.loss(model(x), labels)
                if case.clears: optimizer.zero_grad()
                loss.backward()
                if case.clip: nn.utils.clip_grad_norm_(model.parameters(), case.clip)
                optimizer.step()
                stats.step(loss)
    return model, stats


class Clips(Callback):
    def __init__(self, length): self.length = length
    def before_step(self): nn.utils.clip_grad_norm_(self.model.parameters(), self.length)


def in_learner(case, **options):
    model, stats = Net(case), hl.ActivationStats.for_diagnosis(**options)
    def make(params, **_):
        optimizer = optimizer_for(case, params)
        keep_gradients(optimizer, case)
        return optimizer
    clips = [Clips(case.clip)] if case.clip else []
    learn = hl.Learner(
        (batches(case), batches(case)[:2]), model, model.loss, make, device="cpu", quiet=True, cbs=[stats, *clips]
    )
    torch.manual_seed(2)
    learn.fit(n_epochs)
    assert not hooks_on(model) and "step" not in vars(learn.opt)
    return model, stats


def in_fastai(case, **options):
    from fastai.callback.progress import ProgressCallback
    from fastai.callback.training import GradientClip
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import SGD, Adam
    model, stats = Net(case), hl.ActivationStats.for_diagnosis(**options)
    make = (
        partial(Adam, mom=0.9, sqr_mom=0.999, eps=1e-8)
        if case.optimizer is torch.optim.Adam
        else partial(SGD, mom=case.momentum)
    )
    loaders = DataLoaders(batches(case), batches(case)[:2], device=torch.device("cpu"))
    learn = Learner(
        loaders,
        model,
        loss_func=model.loss,
        opt_func=partial(make, wd=case.decay, decouple_wd=False),
        lr=case.lr,
        wd=case.decay,
        wd_bn_bias=True,
        cbs=[stats] + ([GradientClip(case.clip)] if case.clip else []),
    )
    learn.remove_cb(ProgressCallback)
    learn.logger = lambda *args: None
    learn.create_opt()
    keep_gradients(learn.opt, case)
    torch.manual_seed(2)
    learn.fit(n_epochs)
    assert not hooks_on(model) and "step" not in vars(learn.opt)
    return model, stats


def in_lightning(case, **options):
    import lightning.pytorch as pl
    stats = hl.ActivationStats.for_diagnosis(**options)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net(case)
            self.train()  # Lightning leaves modes as they are
        def train(self, mode=True): return super().train(mode and not case.evaluates)
        def training_step(self, batch, i): return self.net.loss(self.net(batch[0]), batch[1])
        def validation_step(self, batch, i): self.net(batch[0])
        def on_train_start(self): torch.manual_seed(2)
        def configure_optimizers(self): return optimizer_for(case, self.parameters())
        def optimizer_zero_grad(self, epoch, i, optimizer):
            if case.clears: optimizer.zero_grad()

    module = Module()
    trainer = pl.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        callbacks=[stats.lightning()],
        gradient_clip_val=case.clip or None,
    )
    trainer.fit(module, DataLoader(pairs(case), bs), DataLoader(pairs(case)[:2*bs], bs))
    assert not hooks_on(module)
    return module.net, stats


def in_hugging_face(case, **options):
    import tempfile

    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(DataLoader(self.train_dataset, bs, collate_fn=self.data_collator))

    model, stats = Net(case), hl.ActivationStats.for_diagnosis(**options)
    keep_gradients(model, case)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=n_epochs,
            use_cpu=True,
            report_to="none",
            lr_scheduler_type="constant",
            seed=2,
            max_grad_norm=case.clip,
            disable_tqdm=True,
            save_strategy="no",
            eval_strategy="epoch",
            logging_strategy="no",
        )
        trainer = InOrder(
            model,
            args,
            train_dataset=rows(case),
            eval_dataset=rows(case)[: 2 * bs],
            optimizers=(optimizer_for(case, model.parameters()), None),
        )
        trainer.add_callback(stats.transformers())
        trainer.train()
    assert not hooks_on(model) and "training_step" not in vars(trainer)
    return model, stats


def found_in(run, case, **options):
    "What is found, apart from the words, and the losses that were seen."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, stats = run(case, **options)
    return [(f.what, f.sure, f.follows) for f in hl.diagnose(stats)], stats.log.values("loss"), stats


def for_trainers(test):
    others = [
        pytest.param(run, marks=[pytest.mark.peers, ignored]) for run in (in_fastai, in_lightning, in_hugging_face)
    ]
    return pytest.mark.parametrize("run", [in_learner, *others])(test)


@for_trainers
@pytest.mark.parametrize("name", one_in(2, CASES))
def test_the_same_is_found(run, name):
    ours, losses, plain = found_in(in_plain_loop, CASES[name])
    theirs, their_losses, stats = found_in(run, CASES[name])
    assert ours == theirs
    if not (run is in_lightning and name == "no zero_grad"):  # it clears gradients before each validation
        tame = int((losses.abs() < 1e6).int().cummin(0).values.sum())  # what follows is a matter of rounding
        assert tame and len(losses) == len(their_losses)
        torch.testing.assert_close(losses[:tame], their_losses[:tame], rtol=1e-3, atol=1e-4)
    assert (stats.updates is None) == (plain.updates is None) and stats.steps == plain.steps


@for_trainers
def test_the_loop_is_watched_also_where_updates_are_not_recorded(run, monkeypatch):
    def loop_alone(cls, **options): return cls(**{"loop": True} | options)
    monkeypatch.setattr(hl.ActivationStats, "for_diagnosis", classmethod(loop_alone))
    found, losses, stats = found_in(run, CASES["no zero_grad"])
    assert stats.updates is None and ("no zero_grad", "certain", "") in found
    assert stats.facts.optimizers[0].type == "SGD" and losses.isfinite().all()


@for_trainers
def test_with_every(run):
    _, losses, stats = found_in(run, CASES["healthy"], every=4)
    assert (
        stats.steps == [4*step for step in range(n_batches * n_epochs//4) if step < 10 or step % 8 == 0]
        and len(stats.log) == n_batches * n_epochs
        and losses.isfinite().all()
    )
    assert (stats.log.values("updates") == 1).all()


def test_several_fits_of_a_learner_record_anew():
    model, stats = Net(CASES["healthy"]), hl.ActivationStats.for_diagnosis()
    learn = hl.Learner(
        (batches(CASES["healthy"]), None), model, model.loss, lr=0.01, device="cpu", quiet=True, cbs=stats
    )
    for n in (1, 2):
        learn.fit(n)
        assert (
            stats.log.steps == [*range(n * n_batches)]
            and stats.log.values("updates").eq(1).all()
        )
        assert stats.steps == stats.updates.steps == [i for i in range(n * n_batches) if i < 10 or i % 8 == 0]
        assert {one.step for one in stats.facts.inputs} == {*range(n * n_batches)} & {*FIRST_LOOKS, 20, 25}
    assert stats.log.values("loss")[0] < 1.5 and hl.diagnose(stats) is not None


@for_trainers
def test_gradient_norms_are_those_of_torch(run, monkeypatch):
    "The total before clipping is what `clip_grad_norm_` returns, and each norm is that of the gradient it leaves."
    totals, lengths, clip = [], [], nn.utils.clip_grad_norm_
    def watched(params, *args, **kwargs):
        params = list(params)
        totals.append(clip(params, *args, **kwargs))
        lengths.append(torch.stack([p.grad.norm() for p in params]))
        return totals[-1]
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", watched)
    _, stats = run(Case(clip=.05), turns=None)
    def same(found, wanted): torch.testing.assert_close(found.float(), torch.stack(wanted), rtol=1e-6, atol=0)
    assert len(totals) == n_batches*n_epochs == len(stats.updates) and min(totals) > .05
    same(stats.log.values("grad_norm_unclipped"), totals)
    assert stats.log.unclipped_is() == ["exact"]*len(totals)
    same(stats.log.values("grad_norm"), [each.norm() for each in lengths])
    same(stats.updates.values("grad_norm").T, lengths)


@pytest.mark.peers
@ignored
@pytest.mark.parametrize("which", ["lightning", "transformers"])
def test_the_loss_of_a_step_of_several_batches(which, tmp_path):
    "It is their mean, as in the loop by hand, and a row of the log is a step."
    from tests.stats.test_trainers import by_hand, in_lightning, in_transformers
    run = in_lightning if which == "lightning" else partial(in_transformers, folder=tmp_path)
    stats, ours = hl.ActivationStats(loop=True), hl.ActivationStats()
    run(stats, accumulate=7, epochs=3)()
    model = by_hand(ours, accumulate=7, epochs=0)
    from tests.stats.test_trainers import samples
    batch = next(iter(DataLoader(samples(), 28)))
    loss = model(**batch)["loss"].item()
    assert len(stats.log) == 3 and stats.log.values("loss")[0].item() == pytest.approx(loss, rel=1e-4)
    assert (stats.log.values("trained") == 7).all()

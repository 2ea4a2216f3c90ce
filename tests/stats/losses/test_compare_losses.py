"`compare_losses`: its numbers, that it leaves everything alone, and what it says."
import json
import math
import warnings
from functools import reduce
from operator import add

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.gradient import UNRECORDED
from hooklab.stats.losses import pulls
from hooklab.stats.losses.comparing_losses import findings_in
from hooklab.stats.records.loss_history import LossHistory, Pulls
from support.processes import failures_in_two


class Heads(nn.Module):
    "A trunk with batch norm and dropout, and two heads."
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout())
        self.one, self.two = nn.Linear(8, 3), nn.Linear(8, 1)

    def hidden(self, x): return self.trunk(x)

    def forward(self, x):
        h = self.hidden(x)
        return self.one(h), self.two(h)


class Checkpointed(Heads):
    def __init__(self, use_reentrant=False):
        super().__init__()
        self.use_reentrant = use_reentrant

    def hidden(self, x): return checkpoint(self.trunk, x, use_reentrant=self.use_reentrant)


def batch(): return torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.randn(6, 1)


def losses_of(model, x, y, z):
    a, b = model(x)
    return {"ce": F.cross_entropy(a, y), "mse": .1*F.mse_loss(b, z), "size": 1e-3*a.square().mean()}


def train(model, together=None, steps=8, losses_of=losses_of, optimizer=None, stats=None, scaler=None):
    "Train; `together` is given the losses, and returns what is trained on."
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=.1)
    for _ in range(steps):
        losses = losses_of(model, *batch())
        loss = together(**losses) if together else reduce(add, losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if stats is not None: stats.step(loss)


def are_same(a, b): return all(map(torch.equal, a.state_dict().values(), b.state_dict().values()))


# ---------------------------------------------------------------- the numbers


def test_rows_call_the_cosines_as_the_table_does():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with hl.compare_losses(model, every=1) as parts:
        out = model(torch.rand(5, 3))
        parts(rec=out.square().mean(), size=out.abs().mean(), kl=out.exp().mean())
    named = {name for row in parts.rows() for name in row if name.startswith("cosine")}
    assert named == {"cosine rec, size", "cosine rec, kl", "cosine size, kl"}
    assert all(name in str(parts) for name in named)
    both = {row["loss"]: row.get("cosine size, kl") for row in parts.rows() if row["layer"] == "0"}
    assert both["size"] == both["kl"] and both["size"] is not None and both["rec"] is None


def test_norms_and_cosines_are_those_of_autograd():
    model = Heads()
    losses = losses_of(model, *batch())
    params = dict(model.named_parameters())
    right = {}
    for name, loss in losses.items():
        found = torch.autograd.grad(loss, params.values(), retain_graph=True, allow_unused=True)
        right[name] = {of: g for of, g in zip(params, found) if g is not None}
    with hl.compare_losses(model) as parts: total = parts(**losses)
    assert torch.equal(total, losses["ce"] + losses["mse"] + losses["size"])
    for row in parts.rows():
        mine = [g for of, g in right[row["loss"]].items() if of.rpartition(".")[0] == row["layer"]]
        flat = torch.cat([g.flatten().double() for g in mine]) if mine else torch.zeros(1)
        assert row["norm"] == pytest.approx(flat.norm().item(), rel=1e-6, abs=1e-12)
        others = [g for of, g in right["ce"].items() if of.rpartition(".")[0] == row["layer"]]
        if row["loss"] == "ce" or not mine or not others: continue
        other = torch.cat([g.flatten().double() for g in others])
        assert row[f"cosine ce, {row['loss']}"] == pytest.approx(F.cosine_similarity(flat, other, 0).item(), abs=1e-6)
    total.backward()
    layers = {name: [p.grad for p in m.parameters(recurse=False)] for name, m in model.named_modules()}
    squares = parts.history.products[0].sum((1, 2))
    for name, square in zip(parts.history.names, squares.tolist()):
        whole = torch.cat([g.flatten().double() for g in layers[name]]).square().sum().item()
        assert square == pytest.approx(whole, rel=1e-6)


def test_parameters_in_several_parts_are_the_same(monkeypatch):
    "Copies in 64 bits are made of a few layers at a time."
    model = Heads()
    losses = losses_of(model, *batch())
    found = []
    for most in 1, 2**20:
        monkeypatch.setattr(pulls, "MAX_COPIED", most)
        with hl.compare_losses(model) as parts: parts(**losses)
        found.append(parts.rows())
    assert found[0] == found[1]


def test_sparse_gradients_and_shared_weights_are_measured():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 5, bias=False)
            self.out = nn.Linear(3, 5, bias=False)
            self.out.weight = self.head.weight

        def forward(self, x): return self.head(self.embedding(x)), self.out(self.embedding(x))

    model = Tied()
    a, b = model(torch.tensor([0, 1, 1]))
    with hl.compare_losses(model) as parts: parts(a=a.square().mean(), b=b.mean())
    assert parts.history.names == ["embedding", "head"] and parts.history.norms().gt(0).all()


def test_a_loss_may_come_later_and_a_number_is_a_loss():
    model = Heads()
    with hl.compare_losses(model, every=1) as parts:
        for step in range(3):
            losses = losses_of(model, *batch())
            if step < 2: losses.pop("size")
            parts(**losses, none=0.)
    values = parts.history.values
    assert parts.history.losses == ["ce", "mse", "none", "size"] and values[:2, 3].isnan().all()
    assert (values[:, 2] == 0).all() and values[2].isfinite().all()
    assert parts.rows()[3]["norm"] is None  # plain values, for JSON
    json.dumps(parts.rows())


def test_the_scale_of_a_scaler_is_divided_out():
    model = Heads().eval()
    losses = losses_of(model, *batch())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.**12)
    scaler.scale(torch.ones(()))  # it makes its scale when it is first asked
    found = []
    for given in None, scaler:
        with hl.compare_losses(model, scaler=given) as parts: parts(**losses)
        found.append(parts.history.norms())
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-12)


# ---------------------------------------------------------------- nothing is disturbed


@pytest.mark.parametrize("kind", [Heads, Checkpointed])
def test_training_is_the_same_bit_for_bit(kind):
    "Weights, running statistics, random numbers, gradients."
    with_it, without = kind(), kind()
    with hl.compare_losses(with_it, every=2) as parts: train(with_it, parts)
    after = torch.rand(1)
    train(without)
    assert torch.equal(after, torch.rand(1)) and are_same(with_it, without)
    assert all(map(torch.equal, [p.grad for p in with_it.parameters()], [p.grad for p in without.parameters()]))
    assert parts.steps == [0, 2, 4, 6] and not UNRECORDED and not hl.hooks_on(with_it)
    assert parts.history.reran == (kind is Checkpointed) == ("ran again once for each loss" in str(parts))


def test_gradients_are_asked_for_only_in_a_step_that_is_due(monkeypatch):
    asked = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kwargs: asked.append(1) or grad(*args, **kwargs))
    model = Heads()
    with hl.compare_losses(model, every=4) as parts: train(model, parts)
    assert len(asked) == 2*3
    train(model, parts)  # outside of the `with`
    with pytest.warns(hl.HookWarning, match="with gradients enabled"), hl.compare_losses(model, every=1) as parts:
        with torch.no_grad(): parts(**losses_of(model, *batch()))
    assert len(asked) == 2*3 and parts.calls == 0


def test_a_record_beside_it_hears_nothing_of_it():
    "Gradients of outputs, norms and events are those of the loop alone."
    tables = []
    for compares in True, False:
        model = Heads()
        optimizer = torch.optim.SGD(model.parameters(), lr=.1)
        stats = hl.ActivationStats.for_diagnosis()
        heard = []
        with stats.on(model, optimizer=optimizer), hl.Hook(
                model.one, lambda m, i, o, heard=heard: heard.append(m), is_forward=False):
            if compares:
                with hl.compare_losses(model, every=2) as parts: train(model, parts, optimizer=optimizer, stats=stats)
            else: train(model, optimizer=optimizer, stats=stats)
        tables.append((json.dumps(stats.table()), json.dumps(stats.log.table().tolist()), len(heard)))
    assert tables[0] == tables[1] and tables[0][2] == 8


def test_the_loop_may_keep_its_hooks_on_parameters():
    "Data parallel training waits for what is added to `.grad`, and that is not done here."
    model, called = Heads(), []
    for p in model.parameters(): p.register_post_accumulate_grad_hook(called.append)
    with hl.compare_losses(model) as parts: parts(**losses_of(model, *batch()))
    assert not called and all(p.grad is None for p in model.parameters())


# ---------------------------------------------------------------- what it says


def layers_by_name(findings): return {finding.what: finding for finding in findings}


class Opposed(nn.Module):
    "One loss wants the first features large and the other one small; both want the same of the last layer."
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x)
        return h, self.last(h.detach())


def test_losses_that_fight_in_one_layer_are_told():
    def both(model, x, y, z):
        h, out = model(x)
        return {"wide": F.cross_entropy(out, y) + (h - 3).square().mean(),
                "narrow": F.cross_entropy(out, y) + (h + 3).square().mean()}

    model = Opposed()
    with hl.compare_losses(model, every=2) as parts: train(model, parts, 40, both)
    finding = layers_by_name(parts.findings())["losses fight"]
    assert finding.layers == ["first"] and finding.losses == ("wide", "narrow") and finding.sure == "likely"
    assert "against it (cosine -" in finding.evidence
    assert "losses fight" in repr(parts) and finding.page == "lib/faults/losses.html#losses-fight"


def history_of(cosines, values=(1., 1.), ratio=1.):
    "Two losses in two layers that pull like this in each step; `ratio` is how much harder the second one pulls."
    history = LossHistory(["a", "b"], 1024)
    for step, cosine in enumerate(cosines):
        products = torch.tensor([[1., cosine*ratio], [cosine*ratio, ratio**2]]).double().expand(2, 2, 2)
        history.add(Pulls(("one", "other"), products, torch.ones(2, 2, dtype=torch.bool), torch.full((2, 2), math.nan),
                          torch.tensor(values)), step)
    return history


def test_losses_that_slow_each_other_are_a_note():
    g = torch.Generator().manual_seed(0)
    some = (-.36 + .1*torch.randn(24, generator=g)).tolist()
    (finding,) = findings_in(history_of(some))
    assert (finding.what, finding.sure, finding.layers) == ("losses fight", "note", ["a", "b"])
    assert "as a step along its own gradient would" in finding.evidence and "6" in finding.evidence
    some[3] = some[9] = .3  # batches differ
    assert [one.sure for one in findings_in(history_of(some))] == ["note"]
    by_chance = [x*(-1)**i for i, x in enumerate(some)]
    assert not findings_in(history_of(by_chance)) and not findings_in(history_of([-.36]*4))
    assert not findings_in(history_of([-.2]*24)) and not findings_in(history_of(some, ratio=5.))
    assert not findings_in(history_of(some, values=(1., .01)))  # a penalty gives way


def test_labels_that_contradict_each_other_in_one_head():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4))
    x, y = torch.randn(400, 6), torch.arange(400) % 4
    optimizer = torch.optim.SGD(model.parameters(), .2)
    with hl.compare_losses(model, every=5) as parts:
        for step in range(100):
            of = torch.arange(step*50, step*50 + 50) % 400
            out = model(x[of])
            loss = parts(right=F.cross_entropy(out, y[of]), shifted=F.cross_entropy(out, (y[of] + 1) % 4))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one for one in parts.findings() if one.what == "losses fight"]
    assert found and found[0].losses == ("right", "shifted")


def test_a_loss_that_outweighs_another_is_told_and_weight_decay_is_none():
    def weighted(model, x, y, z, of_ce=1000.):
        losses = losses_of(model, x, y, z)
        return {"ce": of_ce*losses["ce"], "mse": losses["mse"]}

    def decayed(model, x, y, z):
        penalty = sum(p.square().sum() for p in model.parameters())
        return {"ce": losses_of(model, x, y, z)["ce"], "decay": 1e-6*penalty}

    model = Heads()
    still = torch.optim.SGD(model.parameters(), lr=0.)
    with hl.compare_losses(model, every=2) as parts: train(model, parts, 20, weighted, still)
    finding = layers_by_name(parts.findings())["loss outweighs"]
    assert finding.losses == ("ce", "mse") and finding.sure == "likely" and "mse hardly counts" in finding.evidence
    model = Heads()
    with hl.compare_losses(model, every=2) as parts: train(model, parts, 20, decayed)
    assert layers_by_name(parts.findings())["loss outweighs"].sure == "note"


@pytest.mark.parametrize("dead, says", [
    (lambda loss: loss.detach(), "it requires no gradient"), (lambda loss: loss.item(), "it requires no gradient"),
    (lambda loss: loss.detach()*nn.Parameter(torch.ones(())), "aren't trainable parameters of this model")])
def test_a_loss_without_a_gradient_is_told(dead, says):
    model = Heads()
    losses = losses_of(model, *batch())
    losses["mse"] = dead(losses["mse"])
    with hl.compare_losses(model) as parts: parts(**losses)
    (finding,) = [f for f in parts.findings() if f.sure != "note"]
    assert finding.what == "loss without gradient" and finding.losses == ("mse",) and says in finding.evidence


def test_a_loss_that_is_rounded_has_a_gradient_of_zero():
    def rounded(model, x, y, z): return losses_of(model, x, y, z) | {"rounded": model(x)[0].round().mean()}

    model = Heads()
    with hl.compare_losses(model, every=1) as parts: train(model, parts, losses_of=rounded)
    finding = layers_by_name(parts.findings())["loss without gradient"]
    assert finding.losses == ("rounded",) and finding.sure == "likely"
    assert "although its value changes" in finding.evidence


def test_the_diagnosis_of_a_record_beside_it_has_the_findings(tmp_path):
    model = Heads()
    with hl.ActivationStats().on(model) as stats, hl.compare_losses(model, every=2) as parts:
        train(model, lambda ce, mse, size: parts(ce=ce, mse=mse.detach(), size=size), stats=stats)
    assert parts.steps == [0, 2, 4, 6]  # those of the record
    assert "loss without gradient" in hl.diagnose(stats)
    stats.save(tmp_path/"run.safetensors")
    again = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert [f.row for f in hl.diagnose(again)] == [f.row for f in hl.diagnose(stats)]
    assert again.losses.table() == parts.rows()


def test_usual_losses_are_not_accused():
    model = Heads()
    with hl.compare_losses(model, every=2) as parts: train(model, parts, 60)
    assert not [f for f in parts.findings() if f.sure != "note"]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_picture_can_be_drawn(n):
    model = Heads()
    with warnings.catch_warnings(), hl.compare_losses(model, every=1) as parts:
        warnings.simplefilter("ignore")
        if n: train(model, lambda **given: parts(**dict([*given.items()][:n])), 3)
    axes = parts.plot()
    assert len(axes) == 3
    axes[0].figure.canvas.draw()


# ---------------------------------------------------------------- bad input


def test_bad_losses_get_one_sentence():
    model = Heads()
    losses = losses_of(model, *batch())
    with hl.compare_losses(model) as parts:
        with pytest.raises(ValueError, match=r"ce has shape \(6,\), but a loss is one number: pass its mean"):
            parts(ce=torch.ones(6, requires_grad=True))
        with pytest.raises(TypeError, match="ce is a list; a loss must be a one-element tensor"): parts(ce=[1.])
        with pytest.raises(TypeError, match="pass each loss by name"): parts(losses["ce"])
        with pytest.raises(TypeError, match="pass each loss by name"): parts()
        with pytest.raises(TypeError, match="multiple values for keyword argument 'ce'"):
            parts(ce=losses["ce"], **losses)
        parts(**losses)
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got str"): hl.compare_losses("model")
    with pytest.raises(ValueError, match="every=0"): hl.compare_losses(model, every=0)


def test_nothing_to_compare_is_said():
    with pytest.warns(hl.HookWarning, match="gradients enabled; write loss = parts"):
        with hl.compare_losses(Heads()): pass
    with pytest.warns(hl.HookWarning, match="Did you call a copy, or another model"):
        with hl.compare_losses(Heads()) as parts: parts(**losses_of(Heads(), *batch()))
    assert "none of the losses reaches a trainable parameter" in repr(parts)


def test_a_graph_that_cannot_be_asked_says_what_to_set(monkeypatch):
    x, *targets = batch()
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        with hl.compare_losses(model := Checkpointed(use_reentrant=True)) as parts:
            parts(**losses_of(model, x.requires_grad_(), *targets))

    def donated(*args, **kwargs):
        raise RuntimeError("This backward function was compiled with non-empty donated buffers which requires …")

    model = Heads()
    losses = losses_of(model, *batch())
    monkeypatch.setattr(torch.autograd, "grad", donated)
    with pytest.raises(RuntimeError, match="donated_buffer = False"):
        with hl.compare_losses(model) as parts: parts(**losses)


# ---------------------------------------------------------------- compiled, several processes, trainers


def test_a_compiled_model_is_measured():
    model = Heads()
    compiled = torch.compile(model, backend="aot_eager")
    with hl.compare_losses(compiled, every=2) as parts: train(compiled, parts)
    assert parts.history.names == ["trunk.0", "trunk.1", "one", "two"]
    plain = Heads()
    train(plain)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(model.parameters(), plain.parameters()))


class Plain(Heads):
    "Without batch norm, so that copies stay the same in several processes."
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.ReLU())


def ddp_is_not_disturbed(rank):
    for options in {}, {"find_unused_parameters": True}, {"static_graph": True}:
        with_it, without = Plain(), Plain()
        wrapped = DistributedDataParallel(with_it, **options)
        with hl.compare_losses(wrapped, every=2) as parts: train(wrapped, parts)
        train(DistributedDataParallel(without, **options))
        assert are_same(with_it, without), options
        assert parts.steps[1:] == [2, 4, 6] and parts.history.names == ["trunk.0", "one", "two"]


def fsdp2_is_measured_or_says_what_to_set(rank):
    found = {}
    for compares in True, False:
        model = Plain()
        for part in model.trunk, model.one, model.two, model: fully_shard(part, reshard_after_forward=False)
        with hl.compare_losses(model, every=2) as parts: train(model, parts if compares else None)
        if compares: assert parts.history.norms()[0].gt(0).any(1).all()
        found[compares] = [p.full_tensor() for p in model.parameters()]
    assert all(map(torch.equal, found[True], found[False]))
    model = Plain()
    for part in model.trunk, model.one, model.two, model: fully_shard(part, reshard_after_forward=True)
    with pytest.raises(RuntimeError, match="reshard_after_forward=False"):
        with hl.compare_losses(model) as parts: train(model, parts)


def test_several_processes(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = failures_in_two([ddp_is_not_disturbed, fsdp2_is_measured_or_says_what_to_set], tmp_path)
    assert not found, "\n".join(found.values())


def test_lightning_numbers_the_steps(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Heads()

        def training_step(self, data, _): return parts(**losses_of(self.net, *data))
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=.1)

    module = Module()
    parts = hl.compare_losses(module, every=4)
    data = torch.utils.data.DataLoader([tuple(x[0] for x in batch()) for _ in range(32)], batch_size=4)
    trainer = lightning.Trainer(max_epochs=2, callbacks=[parts.lightning()], logger=False, accelerator="cpu",
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                                default_root_dir=tmp_path, accumulate_grad_batches=2)
    trainer.fit(module, data)
    assert parts.steps == [0, 2, 4, 6] and not parts.is_on and len(parts.history.losses) == 3


def test_hugging_face_numbers_the_steps(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Trainer(transformers.Trainer):
        def compute_loss(self, model, inputs, **_): return parts(**losses_of(model, *inputs.values()))

    model = Heads()
    parts = hl.compare_losses(model, every=4)
    rows = [dict(zip("xyz", (t[0] for t in batch()))) for _ in range(32)]
    options = transformers.TrainingArguments(
        output_dir=tmp_path, per_device_train_batch_size=4, num_train_epochs=2, report_to=[], save_strategy="no",
        logging_strategy="no", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        gradient_accumulation_steps=2)
    Trainer(model, options, train_dataset=rows, callbacks=[parts.transformers()]).train()
    assert parts.steps == [0, 2, 4, 6] and not parts.is_on

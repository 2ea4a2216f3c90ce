"""`from hooklab.fastai import *` in place of `from fastai.callback.hook import *`: exactly its names, and programs that run unchanged with equal numbers."""
import re

import matplotlib
import pytest
import torch
from torch import nn

import hooklab as hl
import hooklab.fastai
from hooklab.hooks.attached import hooks_on
from hooklab.training.learner import synth_learner

matplotlib.use("agg")
torch.set_num_threads(1)
old_hooks = pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning", "ignore::DeprecationWarning", "ignore::FutureWarning",
                                       "ignore:You are shadowing:UserWarning")

names = ["Hook", "hook_output", "Hooks", "hook_outputs", "dummy_eval", "model_sizes", "num_features_model", "has_params", "HookCallback",
         "total_params", "layer_info", "module_summary", "ActivationStats"]


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_figures():
    yield
    import matplotlib.pyplot as plt
    plt.close("all")


def star(module, *before):
    "What is there after a star import from each module."
    space = {}
    for name in (*before, module): exec(f"from {name} import *", space)
    del space["__builtins__"]
    return space


# The names

def test_a_star_brings_these_names_and_no_other(): assert sorted(star("hooklab.fastai")) == sorted(names) == sorted(hooklab.fastai.__all__)


def test_they_are_those_of_hooklab_but_for_two():
    differ = [name for name in names if getattr(hooklab.fastai, name) is not getattr(hl, name)]
    assert differ == ["layer_info", "module_summary"]


@pytest.mark.peers
def test_they_are_the_public_names_of_fastai():
    import fastai
    import fastai.callback.hook
    assert sorted(hooklab.fastai.__all__) == sorted(fastai.callback.hook.__all__) and fastai is not hooklab.fastai


@pytest.mark.peers
def test_whatever_else_fastai_has_stays():
    from fastai.learner import Learner
    summary = vars(Learner).get("summary")
    before, after = star("fastai.vision.all"), star("hooklab.fastai", "fastai.vision.all")
    assert {name for name in after if before.get(name) is not after[name]} == set(names) and vars(Learner).get("summary") is summary


# layer_info and module_summary

def mlp(): return nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 1))


def nested():
    return nn.Sequential(nn.Sequential(nn.Unflatten(1, (1, 1, 1)), nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, affine=False)), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(4, 1))


class Several(nn.Module):
    "Has tuples, a layer that is skipped, and one whose parameters are not called weight."
    def __init__(self):
        super().__init__()
        self.lstm, self.skipped, self.head = nn.LSTM(1, 3, batch_first=True), nn.Linear(1, 1), nn.Linear(3, 1)
    def forward(self, x): return self.head(self.lstm(x[:, None])[0][:, 0])


def test_rows_of_five(recwarn):
    x, learn = torch.randn(16, 1), synth_learner(model=mlp(), quiet=True, device="cpu")
    learn.model.train()
    rows = hooklab.fastai.layer_info(learn, x)
    assert rows == [("Linear", 100, True, torch.Size([1, 50]), False), ("ReLU", "", "", torch.Size([1, 50]), True),
                    ("BatchNorm1d", 100, True, torch.Size([1, 50]), True), ("Linear", 51, True, torch.Size([1, 1]), False)]
    assert rows == hooklab.fastai.layer_info(learn) and type(rows[0][3]) is torch.Size
    assert learn.model.training and learn.model[2].num_batches_tracked == 0 and not hooks_on(learn.model) and not recwarn.list


def test_rows_of_what_is_unusual(recwarn):
    learn = synth_learner(model=Several(), quiet=True, device="cpu")
    learn.model.head.requires_grad_(False)
    size = torch.Size
    assert hooklab.fastai.layer_info(learn, torch.randn(16, 1)) == [("LSTM", 72, True, (size([1, 1, 3]), (size([1, 1, 3]), size([1, 1, 3]))), False),
                                                                    ("Linear", 4, False, size([1, 1]), False)]
    assert not recwarn.list


def test_a_model_that_fails_has_no_hook_left():
    learn = synth_learner(model=mlp(), quiet=True, device="cpu")
    with pytest.raises(RuntimeError): hooklab.fastai.layer_info(learn, torch.randn(16, 7))
    assert not hooks_on(learn.model)


def test_a_summary_is_a_text_that_can_be_added_to():
    learn = synth_learner(model=mlp(), quiet=True, device="cpu")
    learn.model[0].requires_grad_(False)
    text = hooklab.fastai.module_summary(learn, torch.randn(16, 1))
    assert isinstance(text, str) and repr(text) == text and (text + "\nmore").endswith("more")
    assert totals(text) == {"params": 251, "trainable params": 151, "non-trainable params": 100} and "BatchNorm1d" in text


def totals(text): return {what: int(n.replace(",", "")) for what, n in re.findall(r"^Total (.*params): ([\d,]+)$", text, re.M)}


def fastai_learner(model, **options):
    from fastai.test_utils import synth_learner
    learn = synth_learner(model=model, **options)
    learn.logger = lambda *args: None
    return learn


@pytest.mark.peers
@old_hooks
@pytest.mark.parametrize("make", [mlp, nested])
def test_results_are_those_of_fastai(make):
    import fastai.callback.hook as theirs
    learn, x = fastai_learner(make()), torch.randn(16, 1)
    ours, their = hooklab.fastai.layer_info(learn, x), theirs.layer_info(learn, x)
    assert ours == list(their) and [[type(value) for value in row] for row in ours] == [[type(value) for value in row] for row in their]
    for row in ours: typ, params, trained, size, same = row
    ours, their = hooklab.fastai.module_summary(learn, x), theirs.module_summary(learn, x)
    assert isinstance(their, str) and isinstance(ours, str) and totals(ours) == totals(their) and len(totals(ours)) == 3


# Programs, written as those of fastai's course are, run with either import

def run(program, module, **more):
    space = star(module, "fastai.vision.all") | more
    space["set_seed"](0)
    exec(program, space)
    return space


def images(): # Which of three corners is bright
    g = torch.Generator().manual_seed(1)
    y = torch.randint(3, (96,), generator=g)
    x = torch.rand(96, 1, 16, 16, generator=g)*.3
    for image, kind in zip(x, y): image[0, 8*(kind // 2):8*(kind // 2) + 8, 8*(kind % 2):8*(kind % 2) + 8] += 1
    pairs = torch.utils.data.TensorDataset(x, y)
    return torch.utils.data.DataLoader(pairs, 16), torch.utils.data.DataLoader(pairs, 32)


network = """
def conv(ni, nf, act=True):
    layers = [nn.Conv2d(ni, nf, kernel_size=3, stride=2, padding=1)]
    if act: layers.append(nn.ReLU())
    return nn.Sequential(*layers)

dls = DataLoaders(*loaders)
body = nn.Sequential(conv(1, 8), conv(8, 16))
model = nn.Sequential(body, nn.Sequential(nn.AdaptiveAvgPool2d(1), Flatten(), nn.Linear(16, 3, bias=False)))
"""

training = network + """
learn = Learner(dls, model, loss_func=F.cross_entropy, metrics=accuracy, cbs=ActivationStats(with_hist=True))
with learn.no_bar(), learn.no_logging(): learn.fit_one_cycle(2, 0.02)
stats = learn.activation_stats
stats.plot_layer_stats(0)
stats.plot_layer_stats(-2)
stats.color_dim(-2)
losses = [loss.item() for loss in learn.recorder.losses]
series = [[list(map(float, numbers)) for numbers in stats.layer_stats(i)] for i in (0, 1, -1)]
hists = [stats.hist(i) for i in (0, 1, -1)]
rows = [[{**given, "hist": given["hist"].tolist()} for given in row] for row in stats.stats]
"""


def close(a, b): torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.peers
@old_hooks
def test_training_with_statistics():
    ours, theirs = (run(training, module, loaders=images()) for module in ("hooklab.fastai", "fastai.callback.hook"))
    assert type(ours["learn"]) is type(theirs["learn"]) and ours["losses"] == theirs["losses"]
    close(ours["series"], theirs["series"])
    assert all(map(torch.equal, ours["hists"], theirs["hists"])) and len(ours["rows"]) == len(theirs["rows"]) == 12
    for a, b in zip(ours["rows"], theirs["rows"]):
        close([{what: given[what] for what in ("mean", "std", "near_zero")} for given in a], [{what: given[what] for what in ("mean", "std", "near_zero")} for given in b])
        assert [given["hist"] for given in a] == [given["hist"] for given in b]


class_activation_map = network + """
learn = Learner(dls, model, loss_func=F.cross_entropy)
with learn.no_bar(), learn.no_logging(): learn.fit(3, 0.02)
x, y = first(dls.valid)

class Keep:
    def __init__(self, m): self.hook = m.register_forward_hook(self.keep)
    def keep(self, m, i, o): self.stored = o.detach().clone()
    def __enter__(self, *args): return self
    def __exit__(self, *args): self.hook.remove()

class KeepGrad(Keep):
    def __init__(self, m): self.hook = m.register_backward_hook(self.keep)
    def keep(self, m, gi, go): self.stored = go[0].detach().clone()

with hook_output(learn.model[0]) as hook, Keep(learn.model[0]) as own:
    with torch.no_grad(): output = learn.model.eval()(x)
    act, own_act = hook.stored, own.stored
cam = torch.einsum("ck,nkij->ncij", learn.model[1][-1].weight, act)

def grad_cam(layer, kind):
    with hook_output(layer, grad=True) as hookg, KeepGrad(layer) as owng:
        with hook_output(layer) as hook:
            output = learn.model.eval()(x)
            act = hook.stored
        output[:, kind].sum().backward()
        grad, own_grad = hookg.stored, owng.stored
    assert isinstance(grad, tuple) and torch.equal(grad[0], own_grad)
    weights = grad[0].mean(dim=[2, 3], keepdim=True)
    return (weights*act).sum(1)

maps = [grad_cam(layer, kind) for layer in (learn.model[0], learn.model[0][0]) for kind in range(3)]
"""


@pytest.mark.peers
@old_hooks
def test_class_activation_maps():
    ours, theirs = (run(class_activation_map, module, loaders=images()) for module in ("hooklab.fastai", "fastai.callback.hook"))
    assert torch.equal(ours["act"], ours["own_act"]) and torch.equal(ours["act"], theirs["act"])
    for a, b in zip([ours["cam"], *ours["maps"]], [theirs["cam"], *theirs["maps"]], strict=True): torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert not hooks_on(ours["model"]) and all(m.abs().sum() > 0 for m in ours["maps"])


after_with = """
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
x = torch.randn(5, 3)
with hook_output(model[0]) as one, hook_outputs(model) as several, Hook(model[2], lambda m, i, o: o.mean()) as mean: model(x)
h = hook_output(model[1])
model(x)
h.remove()
found = [one.stored, *several.stored, mean.stored, h.stored]
"""


@pytest.mark.peers
def test_stored_is_read_after_the_with_and_after_remove():
    ours, theirs = (run(after_with, module) for module in ("hooklab.fastai", "fastai.callback.hook"))
    torch.testing.assert_close(ours["found"], theirs["found"], rtol=0, atol=0)


loop = network + """
class Spread(HookCallback):
    order = place
    def before_fit(self):
        super().before_fit()
        self.stats = L()
    def hook(self, m, i, o): return {"mean": o.mean().item(), "std": o.std().item(), "hist": o.histc(40, 0, 10)}
    def after_batch(self):
        if self.training and (self.every is None or self.train_iter % self.every == 0): self.stats.append(self.hooks.stored)
        super().after_batch()

class Counted(Callback):
    order, run_valid = place - 1, False
    def before_fit(self): self.means = []
    def after_batch(self): self.means.append(self.pred.mean().item())

learn = Learner(dls, model, loss_func=F.cross_entropy, cbs=[Spread(every=every), Counted()])
with learn.no_bar(), learn.no_logging(): learn.fit(2)
rows = [[(given["mean"], given["std"], given["hist"].tolist()) for given in row] for row in learn.spread.stats]
means = learn.counted.means
"""


@pytest.mark.peers
@old_hooks
@pytest.mark.parametrize("every", [None, 1, 2, 4])
def test_a_loop_in_after_batch_where_fastais_own_has_its_place(every):
    ours, theirs = (run(loop, module, loaders=images(), every=every, place=-20) for module in ("hooklab.fastai", "fastai.callback.hook"))
    assert ours["rows"] == theirs["rows"] and len(ours["rows"]) == 12//(every or 1)


@pytest.mark.peers
@old_hooks
@pytest.mark.parametrize("every", [2, 3])
def test_a_loop_in_after_batch_after_the_batch_was_counted(every):
    "Both have a row for each batch in which the count can be divided. fastai leaves its hooks on until then, here the values are those of the batch that was due."
    ours, theirs = (run(loop, module, loaders=images(), every=every, place=0) for module in ("hooklab.fastai", "fastai.callback.hook"))
    assert len(ours["rows"]) == len(theirs["rows"]) == 12//every and ours["means"] == theirs["means"]
    assert [row[-1][0] for row in ours["rows"]] == ours["means"][::every] and [row[-1][0] for row in theirs["rows"]] == theirs["means"][every - 1::every]


statistics_of_ones_own = network + """
class Largest(ActivationStats):
    def hook(self, m, i, o): return {**super().hook(m, i, o), "largest": o.abs().max().item(), "kind": type(m).__name__}

learn = Learner(dls, model, loss_func=F.cross_entropy, cbs=Largest(every=2))
with learn.no_bar(), learn.no_logging(): learn.fit(1)
rows = [[(given["largest"], given["kind"]) for given in row] for row in learn.largest.stats]
series = [list(map(float, numbers)) for numbers in learn.largest.layer_stats(0)]
learn.largest.plot_layer_stats(0)
"""


@pytest.mark.peers
@old_hooks
def test_statistics_of_ones_own():
    ours, theirs = (run(statistics_of_ones_own, module, loaders=images()) for module in ("hooklab.fastai", "fastai.callback.hook"))
    assert ours["rows"] == theirs["rows"] and len(ours["rows"]) == 3
    close(ours["series"], theirs["series"])


rows_and_sizes = network + """
learn = Learner(dls, model, loss_func=F.cross_entropy)
x, y = first(dls.train)
with learn.no_bar(): rows = [(typ, np, trn, tuple(sz), chnged) for typ, np, trn, sz, chnged in layer_info(learn, x)]
sizes, features = [tuple(size) for size in model_sizes(model, (16, 16))], num_features_model(body)
counts, has = total_params(model), [has_params(m) for m in model.modules()]
output = tuple(dummy_eval(model, (16, 16)).shape)
"""


@pytest.mark.peers
@old_hooks
def test_rows_and_sizes():
    ours, theirs = (run(rows_and_sizes, module, loaders=images()) for module in ("hooklab.fastai", "fastai.callback.hook"))
    for what in ("rows", "sizes", "features", "counts", "has", "output"): assert ours[what] == theirs[what], what

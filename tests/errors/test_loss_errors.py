"""`hl.explain_errors` on errors of a loss: what it got and from which layer, and another call that was tried."""
import math
import re
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.errors import loss_errors
from hooklab.errors.loss_calls import WANTS

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size", "ignore:reduction. 'mean' divides")


def model_of(*shape): # The output has this shape for a batch of 6
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, math.prod(shape)), nn.Unflatten(1, shape or (1,)))


def explained(model, run, kind=Exception):
    with pytest.raises(kind) as raised, hl.explain_errors(model) as watch: run()
    found = watch.explanation
    if found is not None: assert raised.value.__notes__ == [f"\n{found}"]
    return found


def classes(*shape, n=3): return torch.arange(math.prod(shape)).reshape(shape) % n


def one_hot(n=3): return F.one_hot(classes(6, n=n), n)


BCE, CE = "F.binary_cross_entropy", "F.cross_entropy"
# what is called, the shape of the output without its batch, what else has a name, and the calls that are proposed
MENDED = {
    "probabilities and a double": (f"{BCE}(p, y)", (1,),
                                   lambda out: {"p": out.sigmoid(), "y": torch.ones(6, 1).double()},
                                   [f"{BCE}(p, y.float())"]),
    "scores for probabilities": (f"{BCE}(out, y)", (2,), lambda out: {"out": out*9, "y": torch.ones(6, 2)},
                                 [f"{BCE}(out.sigmoid(), y)"]),
    "flags": (f"{BCE}_with_logits(out, y, reduction='sum')", (3,), lambda out: {"y": one_hot().bool()},
              [f"{BCE}_with_logits(out, y.float(), reduction='sum')"]),
    "a dimension in between": (f"{BCE}_with_logits(out, y)", (1, 2), lambda out: {"y": torch.ones(6, 2)},
                               [f"{BCE}_with_logits(out.squeeze(1), y)", f"{BCE}_with_logits(out, y.unsqueeze(1))"]),
    "a weight for each sample": (f"{BCE}_with_logits(out, y, w)", (2,),
                                 lambda out: {"y": torch.ones(6, 2), "w": torch.rand(6)},
                                 [f"{BCE}_with_logits(out, y, w.unsqueeze(1))"]),
    "channels last": (f"{CE}(out, y)", (4, 5, 3), lambda out: {"y": classes(6, 4, 5)},
                      [f"{CE}(out.movedim(-1, 1), y)"]),
    "a mask with a channel": (f"{CE}(out, y)", (3, 4, 5), lambda out: {"y": classes(6, 1, 4, 5)},
                              [f"{CE}(out, y.squeeze(1))"]),
    "length first": (f"{CE}(out, y, ignore_index=1)", (7, 3), lambda out: {"y": classes(7, 6)},
                     [f"{CE}(out.permute(1, 2, 0), y, ignore_index=1)"]),
    "flat scores": (f"{CE}(out, y)", (3,), lambda out: {"y": classes(2, 3)}, [f"{CE}(out, y.flatten())"]),
    "short integers": (f"{CE}(out, y)", (3,), lambda out: {"y": classes(6).short()}, [f"{CE}(out, y.long())"]),
    "booleans": (f"{CE}(out, y)", (2,), lambda out: {"y": classes(6, n=2).bool()}, [f"{CE}(out, y.long())"]),
    "a column of doubles": (f"{CE}(out, y)", (3,), lambda out: {"y": classes(6, 1).double()},
                            [f"{CE}(out, y.squeeze(1).long())"]),
    "one sample": (f"{CE}(one, y)", (3,), lambda out: {"y": torch.tensor(2), "one": out[:1]},
                   [f"{CE}(one.squeeze(0), y)", f"{CE}(one, y.unsqueeze(0))"]),
    "one hot": (f"{CE}(out, y)", (3,), lambda out: {"y": one_hot().int()},
                [f"{CE}(out, y.float())", f"{CE}(out, y.argmax(1))"]),
    "a pair": (f"{CE}(pair, y)", (3,), lambda out: {"pair": (out, None), "y": classes(6)}, [f"{CE}(pair[0], y)"]),
    "a dict": (f"{CE}(found, y)", (3,), lambda out: {"found": {"logits": out, "state": torch.ones(2)}, "y": classes(6)},
               [f"{CE}(found['logits'], y)"]),
    "a list": (f"{CE}(out, y)", (3,), lambda out: {"y": [0, 1, 2, 0, 1, 2]}, [f"{CE}(out, torch.tensor(y))"]),
    "likelihood of one hot": ("F.nll_loss(out, y)", (3,), lambda out: {"y": one_hot()},
                              ["F.nll_loss(out, y.argmax(1))"]),
    "margins": ("F.multi_margin_loss(out, y, p=2)", (3,), lambda out: {"y": classes(6).int()},
                ["F.multi_margin_loss(out, y.long(), 2)"]),
    "margins of several": ("F.multilabel_margin_loss(out, y)", (3,), lambda out: {"y": (one_hot() - 1).float()},
                           ["F.multilabel_margin_loss(out, y.long())"]),
    "soft margins of several": ("F.multilabel_soft_margin_loss(out, y)", (9,), lambda out: {"y": torch.ones(6, 3, 3)},
                                ["F.multilabel_soft_margin_loss(out, y.flatten(1))"]),
    "squares": ("F.mse_loss(out, y)", (2, 5), lambda out: {"y": torch.rand(6, 10)}, ["F.mse_loss(out.flatten(1), y)"]),
    "distances": ("F.l1_loss(out, y)", (2, 5), lambda out: {"y": torch.rand(12, 5)},
                  ["F.l1_loss(out.flatten(0, 1), y)"]),
    "smooth": ("F.smooth_l1_loss(out, y, beta=.5)", (10,), lambda out: {"y": torch.rand(6, 5, 2)},
               ["F.smooth_l1_loss(out, y.flatten(1), beta=0.5)"]),
    "huber": ("F.huber_loss(out, y, delta=.5)", (2, 3, 2), lambda out: {"y": torch.rand(6, 12)},
              ["F.huber_loss(out.flatten(1), y, delta=0.5)"]),
    "counts": ("F.poisson_nll_loss(out, y)", (4, 3), lambda out: {"y": torch.ones(6, 12)},
               ["F.poisson_nll_loss(out.flatten(1), y)"]),
    "divergence": ("F.kl_div(out, y)", (3,), lambda out: {"y": one_hot()}, ["F.kl_div(out, y.float())"]),
    "two sides": ("F.soft_margin_loss(out, y)", (2, 5), lambda out: {"y": torch.ones(6, 10)},
                  ["F.soft_margin_loss(out.flatten(1), y)"]),
    "near or far": ("F.hinge_embedding_loss(out, y)", (2, 5), lambda out: {"y": torch.ones(6, 10)},
                    ["F.hinge_embedding_loss(out.flatten(1), y)"]),
    "variances": ("F.gaussian_nll_loss(out, y, v)", (4, 2), lambda out: {"y": torch.ones(6, 8), "v": torch.ones(6, 8)},
                  ["F.gaussian_nll_loss(out.flatten(1), y, v)"]),
    "angles": ("F.cosine_embedding_loss(out, b, y)", (5,), lambda out: {"b": torch.rand(6, 5), "y": torch.ones(6, 1)},
               ["F.cosine_embedding_loss(out, b, y.squeeze(1))"]),
    "ranks": ("F.margin_ranking_loss(out, b, y)", (1,), lambda out: {"b": torch.rand(6, 1), "y": torch.ones(6)},
              ["F.margin_ranking_loss(out, b, y.unsqueeze(1))"]),
    "three": ("F.triplet_margin_loss(out, b, c)", (5,), lambda out: {"b": torch.rand(6, 1, 5), "c": torch.rand(6, 5)},
              ["F.triplet_margin_loss(out, b.squeeze(1), c)"]),
    "batch first": ("F.ctc_loss(out, y, n, k)", (7, 3),
                    lambda out: {"y": torch.ones(6, 2).long(), "n": torch.full((6,), 7), "k": torch.full((6,), 2)},
                    ["F.ctc_loss(out.transpose(0, 1), y, n, k)"]),
    "a class of a loss": ("nn.L1Loss(out, y)", (2,), lambda out: {"y": torch.rand(6, 2)}, ["nn.L1Loss()(out, y)"]),
    "a module": ("lossy(out, y)", (4, 3),
                 lambda out: {"lossy": nn.CrossEntropyLoss(label_smoothing=.1), "y": classes(6, 4)},
                 ["lossy(out.transpose(1, 2), y)"]),
}


@pytest.mark.parametrize("what", MENDED)
def test_the_call_that_is_printed_runs_and_is_the_one_that_was_tried(what):
    code, shape, more, wanted = MENDED[what]
    model, known = model_of(*shape), {"F": F, "nn": nn, "torch": torch}
    def run():
        known["out"] = model(torch.rand(6, 4))
        known.update(more(known["out"]))
        before.update({name: (x, x.clone(), x._version) for name, x in known.items() if torch.is_tensor(x)})
        return eval(code, known)
    before = {}
    found = explained(model, run)
    printed = [re.match("`(.*)`", repair.text)[1] for repair in found.repairs]
    assert printed == wanted, str(found)
    if not code.startswith("nn."): assert "from" in str(found) and (found.layer, found.kind) == ("3", "loss")
    for text, repair in zip(printed, found.repairs):
        torch.testing.assert_close(repair.run(), eval(text, known).detach())
    assert all(torch.equal(x, copy) and x._version == version for x, copy, version in before.values())
    assert not hl.hooks_on(model)


def test_no_loss_of_the_table_is_left_out_here():
    named = {name for code, *_ in MENDED.values() for name in WANTS if f"F.{name}(" in code}
    assert named == WANTS.keys()


def test_calls_that_give_another_loss_are_told_apart():
    model = model_of(2)
    found = explained(model, lambda: F.l1_loss((model(torch.rand(6, 4)), torch.zeros(6, 2)), torch.ones(6, 2)))
    texts = [repair.text for repair in found.repairs]
    assert texts == ["`F.l1_loss(input[0], target)`", "`F.l1_loss(input[1], target)`, another loss"]
    model = model_of(1, 2)
    found = explained(model, lambda: F.binary_cross_entropy_with_logits(model(torch.rand(6, 4)), torch.ones(6, 2)))
    assert str(found).endswith("`F.binary_cross_entropy_with_logits(input, target.unsqueeze(1))`, the same loss.")


# ---- no repair

def test_batches_that_differ_are_not_mended_and_the_note_says_where_each_comes_from():
    model, x, y = model_of(3), torch.rand(6, 4), classes(5)
    for loss in F.cross_entropy, F.nll_loss, nn.CrossEntropyLoss(), F.multi_margin_loss:
        found = explained(model, lambda loss=loss: loss(model(x), y))
        assert not found.repairs and found.layer == "3"
        assert "The batches differ: 6 of `input` and 5 of `y`." in str(found)
        assert "The model was last called with 6 in its input `input`; `y` does not come from it." in str(found)
    found = explained(model, lambda: F.huber_loss(model(x), torch.rand(4, 3)))
    assert not found.repairs and "The batches differ: 6 of `input` and 4 of `target`." in str(found)


class Flattens(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 24), nn.Linear(8, 5)
    def forward(self, x): return self.head(self.body(x).reshape(-1, 8))


def test_who_changed_the_batch_inside_of_the_model():
    model = Flattens()
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), classes(6)))
    assert not found.repairs
    assert str(found).endswith("called with 6 in its input `x`, and `reshape` in its forward made 18 of 6.")


def test_columns_that_differ_are_those_of_a_layer():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for loss, y in (F.smooth_l1_loss, torch.rand(6, 5)), (F.cross_entropy, torch.rand(6, 5).softmax(1)):
        found = explained(model, lambda loss=loss, y=y: loss(model(torch.rand(6, 4)), y))
        assert "They differ in dimension 1: 2 of `input` and 5 of `y`." in str(found)
        assert [repair.text for repair in found.repairs] == ["`Linear(8, 5)` as `2`"]
        assert found.repairs[0].run(model, (torch.rand(6, 4),), {}).shape == (6, 5) and model[2].out_features == 2


def test_numbers_that_are_no_classes_are_not_rounded():
    model, y = model_of(3), torch.tensor([0., 1.25, 2., 0., 1., 2.])
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), y))
    assert not found.repairs and "`y` holds 1.25" in str(found)
    many = torch.ones(6, 3, dtype=torch.long)  # several classes at once, and no probabilities
    assert not explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), many)).repairs


def test_a_class_out_of_range_is_told_as_before():
    model = model_of(3)
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), classes(6, n=5)))
    assert (found.kind, str(found)) == ("index", "The output has 3 classes, 0 to 2, but the target contains class 3.")
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), classes(6, n=5).float()))
    assert not found.repairs  # whole numbers, and still no classes of this output


def test_a_weight_for_another_number_of_classes():
    model, w = model_of(3), torch.ones(5)
    for name, loss in ("w", lambda out, y: F.nll_loss(out, y, w)), ("weight", nn.CrossEntropyLoss(w)):
        found = explained(model, lambda loss=loss: loss(model(torch.rand(6, 4)), classes(6)))
        assert not found.repairs and f"`{name}` has 5 values for 3 classes." in str(found)


def test_a_weight_in_double():
    model, loss = model_of(3), nn.CrossEntropyLoss(torch.ones(3).double(), ignore_index=1)
    found = explained(model, lambda: loss(model(torch.rand(6, 4)), classes(6)))
    assert [repair.text for repair in found.repairs] == ["`CrossEntropyLoss(weight=weight.float(), …)(input, target)`"]


# ---- where the prediction comes from

class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 3)
    def forward(self, x): return {"sizes": self.a(x), "kinds": self.b(x).relu()}


def test_of_two_outputs_the_right_layer_is_named():
    model = TwoHeads()
    def run(use): return lambda: use(model(torch.rand(6, 4)))
    for wrap in (lambda t: t), (lambda t: t[:, :]), (lambda t: (2*t).flatten(1)):
        found = explained(model, run(lambda out, wrap=wrap: F.mse_loss(wrap(out["sizes"]), torch.rand(6, 5))))
        assert found.layer == "a" and "from `a` (Linear)" in str(found)
        found = explained(model, run(lambda out, wrap=wrap: F.cross_entropy(wrap(out["kinds"]), classes(6, 1))))
        assert found.layer == "b" and "from relu of the output of `b` (Linear)" in str(found)


def test_a_view_is_known_without_a_graph():
    model = TwoHeads()
    with torch.no_grad():
        out = None
        def run():
            nonlocal out
            out = model(torch.rand(6, 4))
            return F.nll_loss(out["kinds"][:5], classes(6))
        found = explained(model, run)
    assert found.layer == "b" and "computed from a tensor from" in str(found)


def test_the_model_may_have_been_called_several_times():
    model = model_of(5)
    def run():
        a, b, c = (model(torch.rand(n, 4)) for n in (6, 6, 4))
        return F.triplet_margin_loss(a, b, c)
    found = explained(model, run)
    assert str(found).count("from `3` (Unflatten)") == 3 and "The batches differ: 6 of `a` and 4 of `c`." in str(found)
    assert "does not come from" not in str(found)


def test_a_prediction_that_is_not_of_the_model():
    found = explained(model_of(3), lambda: F.cross_entropy(torch.rand(6, 3), classes(6, 1)))
    assert "from" not in str(found) and found.layer == "" and len(found.repairs) == 1


class Trainer:
    def __init__(self, model): self.model, self.criterion = model, nn.SmoothL1Loss()
    def step(self, x, labels):
        scores = self.model(x)
        return self.criterion(scores, labels)


def test_names_are_those_of_the_innermost_code_of_the_user():
    trainer = Trainer(model_of(2, 5))
    found = explained(trainer.model, lambda: trainer.step(torch.rand(6, 4), torch.rand(6, 10)))
    assert [repair.text for repair in found.repairs] == ["`self.criterion(scores.flatten(1), labels)`"]


class OwnLoss(nn.Module):
    def __init__(self, loss=None):
        super().__init__()
        self.head, self.loss = nn.Linear(4, 3), loss
        self.register_buffer("labels", classes(6).int())
    def forward(self, x): return (self.loss or F.cross_entropy)(self.head(x), self.labels)


def test_a_loss_inside_of_the_model():
    model = OwnLoss()
    found = explained(model, lambda: model(torch.rand(6, 4)))
    assert [repair.text for repair in found.repairs] == ["`F.cross_entropy(input, self.labels.long())`"]
    assert "from `head` (Linear)" in str(found) and ", the parameter `labels`" in str(found)
    model = OwnLoss(nn.CrossEntropyLoss())
    found = explained(model, lambda: model(torch.rand(6, 4)))
    assert (found.layer, found.repairs[0].text) == ("loss", "`self.loss(input, self.labels.long())`")


# ---- odd ones

def test_what_is_no_error_of_what_the_loss_got_has_no_note(monkeypatch):
    model, real, errors = model_of(3), torch._C._nn.cross_entropy_loss, [RuntimeError("of a kernel")]
    def run(): return F.cross_entropy(model(torch.rand(6, 4)), classes(6))
    def fails_once(*args):
        if errors: raise errors.pop()
        return real(*args)
    monkeypatch.setattr(torch._C._nn, "cross_entropy_loss", fails_once)
    assert explained(model, run) is None and not errors
    def is_short(*_): raise torch.OutOfMemoryError("of the test")
    monkeypatch.setattr(torch._C._nn, "cross_entropy_loss", is_short)
    assert explained(model, run) is None


def test_two_devices():
    model = model_of(3)
    found = explained(model, lambda: F.mse_loss(model(torch.rand(6, 4)), torch.rand(6, 3, device="meta")))
    assert found.kind == "device" and "on cpu" in str(found) and "on meta" in str(found) and not found.repairs


def test_all_on_the_meta_device():
    model = model_of(4, 3).to("meta")
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4, device="meta")), classes(6, 4).to("meta")))
    assert [repair.text for repair in found.repairs] == ["`F.cross_entropy(input.transpose(1, 2), target)`"]


def test_numbers_that_are_not_finite_and_other_dtypes():
    model = model_of(2).bfloat16()
    def run():
        out = model(torch.rand(6, 4).bfloat16())
        return F.binary_cross_entropy(out*float("nan"), torch.ones(6, 2).bfloat16())
    found = explained(model, run)
    assert not found.repairs and "of 6×2 (bfloat16) with NaN or Inf" in str(found)
    def run(): return F.binary_cross_entropy(model(torch.rand(6, 4).bfloat16()).sigmoid(), torch.ones(6, 2))
    found = explained(model, run)
    assert [repair.text for repair in found.repairs] == ["`F.binary_cross_entropy(input, target.to(torch.bfloat16))`"]


def test_large_tensors_are_not_copied(monkeypatch):
    monkeypatch.setattr(loss_errors, "LARGEST", 10)
    model = model_of(3)
    found = explained(model, lambda: F.cross_entropy(model(torch.rand(6, 4)), classes(6, 1)))
    assert not found.repairs and "It expects a score for each class" in str(found)


def test_random_numbers_and_modes_stay():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.BatchNorm1d(3))
    def run(): return F.cross_entropy(model(torch.rand(6, 4)), classes(6, 1))
    torch.manual_seed(1)
    with pytest.raises(RuntimeError): run()
    after, mean = torch.get_rng_state(), model[2].running_mean.clone()
    model[2].reset_running_stats()
    torch.manual_seed(1)
    assert explained(model, run).repairs
    assert torch.equal(torch.get_rng_state(), after) and model.training and torch.equal(model[2].running_mean, mean)


def test_outputs_are_not_held():
    model = nn.Linear(4, 3)
    with hl.explain_errors(model) as watch:
        out = model(torch.rand(6, 4))
        gone = weakref.ref(out)
        del out
        assert gone() is None and watch.group.outputs
        for _ in range(50): model(torch.rand(6, 4))
        assert len(watch.group.outputs) <= 8
    assert watch.group.outputs is None

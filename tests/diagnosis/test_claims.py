"""Each sentence of a finding is held against the run that it speaks of, by a witness that used nothing of hooklab."""
import math
import re
from functools import cache

import pytest
import torch
from torch import nn

import hooklab as hl
from support.portions import sweep
from support.witness import Witness
from tests.bench.diagnose_cases import faults

pytestmark = pytest.mark.usefixtures("one_thread")
LATE = 5  # the last steps: what a finding says of a run is so there, if it lasts
CHECKS = {}


def claims(what):
    "Makes a function the check of a kind of finding: it gets the finding and the witness, and is true if it is so."
    def enter(check):
        CHECKS[what] = check
        return check
    return enter


def numbers(text) -> list[float]:
    "All numbers of a sentence, in their order."
    return [float(n.replace(",", "")) for n in re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?(?!\w)", text)]


def close(a, b, part=.1): return abs(a - b) <= part*max(abs(a), abs(b)) + 1e-6
def at_end(seen): return seen[-LATE:]


@claims("not in the optimizer")
def not_in_optimizer(f, w):
    own = dict(w.model.named_parameters())
    n_had, n = (int(x) for x in re.search(r"has (\d+) of (\d+)", f.evidence).groups())
    n_ever = len([name for name in own if id(own[name]) in w.ever])
    lacks = all(id(own[name]) not in w.ever and name in w.came and name not in w.moved for name in f.layers)
    return lacks and n == n_had + len(f.layers) and n_had == n_ever


@claims("other parameters in the optimizer")
def others_in_optimizer(f, w):
    own = {*map(id, w.model.parameters())}
    return int(numbers(f.evidence)[0]) in [sum(id(p) not in own for g in o.param_groups for p in g["params"])
                                           for o in w.optimizers]


@claims("no zero_grad")
def never_cleared(f, w):
    "A gradient holds more than what came since the last step."
    return sum(w.kept) >= numbers(f.evidence)[0]


@claims("step before backward")
def no_gradients_at_steps(f, w):
    empty = [not any(norm for norm in norms if norm is not None) for norms in w.gradients]
    return sum(empty) >= numbers(f.evidence)[0] - 1 and bool(w.came)


@claims("eval mode")
def in_eval_mode(f, w): return sum(not training for training in w.modes) >= numbers(f.evidence)[0]


@claims("frozen part")
def frozen(f, w):
    own = [*w.model.parameters()]
    n_frozen, n = map(int, re.search(r"(\d+) of (\d+)", f.evidence).groups())
    return n == len(own) and n_frozen == sum(not p.requires_grad for p in own)


@claims("no step")
def no_step(f, w): return not w.gradients and not w.moved


@claims("lost in rounding")
def rounded(f, w):
    own = dict(w.model.named_parameters())
    return not w.moved & {*f.layers} and all(own[name].dtype == torch.bfloat16 for name in f.layers)


@claims("not trained")
def rests(f, w):
    if "No parameter moves" in f.evidence: return not w.moved
    if "These parameters don't move" in f.evidence: return not w.moved & {*f.layers} and bool(w.moved)
    if "biases" in f.evidence: return not w.moved & {*f.layers}
    if "never had" in f.evidence or "ever had" in f.evidence: return not w.came
    inside = [name for name in w.first if name.startswith(tuple(f"{layer}." for layer in f.layers))]
    return not w.moved & {*inside} or "zero" in f.evidence


@claims("dead units")
def mostly_below(f, w):
    return all((torch.cat([t.flatten() for t in at_end(w.outputs[name])]) < .051).float().mean() > .9
               for name in f.layers if name in w.outputs)


@claims("constant output")
def constant(f, w): return all(float(t.max() - t.min()) <= 1e-5*float(t.abs().max()) for name in f.layers
                               for t in at_end(w.outputs[name]))


@claims("samples alike")
@claims("input unused")
def rows_alike(f, w):
    "Some steps are looked at: one is as near as it says, and most of the last are near."
    apart = [float((x - x[:1]).abs().max()/x.square().mean().sqrt()) for x in w.results if len(x) > 1]
    up_to = numbers(f.evidence.split("up to")[1])[0]
    return min(apart) <= 1.1*up_to + 1e-7 and sorted(at_end(apart))[LATE//2] <= .2


@claims("units alike")
def columns_alike(f, w):
    first = [w.outputs[name][0] for name in f.layers]
    return all(float(t.std(1).max()) <= 1e-4*float(t.abs().max()) for t in first if t.dim() == 2)


@claims("constant inputs")
def inputs_alike(f, w): return all(torch.equal(x, x[:1].expand_as(x)) for x in at_end(w.inputs))


@claims("inputs not scaled")
def inputs_so(f, w):
    low, high, mean, std = numbers(f.evidence.split("ranges from")[1])[:4]
    of_all = torch.cat([x.float().flatten() for x in w.inputs])
    tight = of_all.abs().max()
    return (of_all.min() <= low + .06*tight and of_all.max() >= high - .06*tight and close(std, float(of_all.std()), .5)
            and abs(mean - abs(float(of_all.mean()))) <= .5*std + .1*mean)


@claims("targets not scaled")
def targets_so(f, w):
    y = torch.cat([y.double().flatten() for name, _, y in w.calls.seen if name == "mse_loss"])
    mean, std = numbers(f.evidence)[:2]
    return abs(mean - float(y.mean())) <= .5*float(y.std()) and close(std, float(y.std()), .5)


@claims("activation before the loss")
def activated(f, w):
    given = [(name, o, y) for name, o, y in w.calls.seen]
    def all_given(holds): return bool(given) and all(holds(o.double(), y) for _, o, y in given)
    if "sum to 1" in f.evidence or "gets probabilities" in f.evidence:
        return all_given(lambda o, y: torch.allclose(o.sum(1), torch.ones_like(o.sum(1)), atol=2e-2))
    if "between 0 and 1" in f.evidence: return all_given(lambda o, y: o.min() >= 0 and o.max() <= 1)
    if "never negative" in f.evidence: return all_given(lambda o, y: o.min() >= 0)
    if "between -1 and 1" in f.evidence: return all_given(lambda o, y: o.abs().max() <= 1)
    if "outside the range" in f.evidence:
        return any(y.min() < o.min() - .01 or y.max() > o.max() + .01 for _, o, y in given)
    return "aren't log-probabilities" in f.evidence and all_given(lambda o, y: (o.logsumexp(1).abs() > .01).any())


@claims("loss does not fall")
def stays(f, w):
    losses = [x for x in w.losses if math.isfinite(x)]
    third = max(len(losses)//3, 1)
    first, last = sorted(losses[:third])[third//2], sorted(losses[-third:])[third//2]
    return last > .6*first


@claims("loss rises")
def rises(f, w):
    losses = [abs(x) if math.isfinite(x) else math.inf for x in w.losses]
    third = max(len(losses)//3, 1)
    return sorted(losses[-third:])[third//2] > min(losses[:3])


@claims("NaN or Inf")
def not_finite(f, w):
    if "input" in f.evidence: return any(not x.float().isfinite().all() for x in w.inputs)
    if f.evidence.startswith("The loss is"): return any(not math.isfinite(x) for x in w.losses)
    bad = [not math.isfinite(n) for norms in w.gradients for n in norms if n is not None]
    if "radients" in f.evidence: return any(bad)
    return all(any(not t.isfinite().all() for t in w.outputs[name]) for name in f.layers)


@claims("learning rate too large")
def long_steps(f, w):
    if "recorded steps move" not in f.evidence: return True
    longest = numbers(f.evidence)[3]
    return longest <= 1.1*max(max(moved, default=0) for moved in w.lengths)


@claims("learning rate too small")
def short_steps(f, w):
    middles = [sorted(moved)[len(moved)//2] for moved in w.lengths if moved]
    return not middles or sorted(middles)[len(middles)//2] < 2e-3


@claims("scheduler each batch")
def rate_falls(f, w):
    most, last = numbers(f.evidence)[:2]
    return close(most, max(w.rates)) and close(last, w.rates[-1])


@claims("weight decay too strong")
def shrinks(f, w):
    first, last = numbers(f.evidence)[-2:]
    def length(of): return math.sqrt(sum(float(p.double().square().sum()) for p in of.values()))
    return (last < first) == (length(w.last) < length(w.first))


@claims("dropout too strong")
def drops(f, w): return any(close(m.p*100, numbers(f.evidence)[0]) for m in w.types(nn.modules.dropout._DropoutNd))


@claims("batch norm")
def norms(f, w): return bool(w.types(nn.modules.batchnorm._NormBase))


# ---- the runs

def case_of(what): return next((c for c in faults if c.reach and c.causes == {what}), None)


@cache
def looked_at(what):
    "The first planted run whose only cause this is, with its findings and its witness."
    stats = hl.ActivationStats.for_diagnosis()
    witness = Witness(stats)
    with torch.random.fork_rng(devices=[]): case_of(what).run(witness, 0)
    return list(hl.diagnose(stats)), witness


def false_claims(what) -> list[str]:
    found, witness = looked_at(what)
    return [str(f) for f in found if f.what in CHECKS and not CHECKS[f.what](f, witness)]


PLANTED = [what for what in CHECKS if case_of(what)]
QUICK = ["not in the optimizer", "step before backward", "activation before the loss", "no step", "no zero_grad",
         "inputs not scaled", "scheduler each batch", "constant inputs"]


@pytest.mark.parametrize("what", [what for what in PLANTED if what in QUICK])
def test_what_is_said_is_so(what): assert not false_claims(what)


@sweep
@pytest.mark.parametrize("what", [what for what in PLANTED if what not in QUICK])
def test_what_is_said_of_other_runs_is_so(what): assert not false_claims(what)


def test_a_false_sentence_is_noticed():
    "Each of these findings is true of its run; of the run of another fault it is not."
    def own(what): return next(f for f in looked_at(what)[0] if f.what == what)
    rest, moved = own("no step"), own("scheduler each batch")
    assert not CHECKS["scheduler each batch"](moved, looked_at("not in the optimizer")[1])
    other = looked_at("inputs not scaled")[1]
    assert not CHECKS["no step"](rest, other) and not CHECKS["constant inputs"](rest, other)
    assert not CHECKS["step before backward"](looked_at("step before backward")[0][0], other)

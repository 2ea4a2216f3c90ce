"The norm before clipping is the one that the call saw; where no call was seen, it is an estimate, or unknown."
import copy
import gc
import math
import threading
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

import hooklab as hl
from hooklab.hooks import clip_calls
from hooklab.stats.measure.gradient_norms import is_round, nan_if_scaled
from hooklab.stats.records.run_log import LOG_COLUMNS
from support.interrupts import torchs_state

torch.set_num_threads(1)
CLOSE = {"rtol": 2e-6, "atol": 1e-9}
OPTIONS = [{}, {"turns": 2}, {"loop": True, "turns": 2, "every": 3}]
each_way = pytest.mark.parametrize("options", OPTIONS, ids=str)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 5))


def loss_of(model, i):
    g = torch.Generator().manual_seed(i)
    return F.mse_loss(model(torch.randn(7, 2, 8, generator=g)), 3*torch.randn(7, 5, generator=g))


def total(params): return torch.stack([p.grad.detach().float().norm() for p in params if p.grad is not None]).norm()


def train(body, steps=14, model=None, optimizer=None, scaler=None, **options):
    "A record of steps, and what `body(model, params, optimizer, i)` returned in each."
    model = model or net()
    optimizer = optimizer or torch.optim.Adam(model.parameters(), .01)
    found, params = [], list(model.parameters())
    with hl.ActivationStats(**options).on(model, optimizer=optimizer, scaler=scaler) as stats:
        for i in range(steps):
            for p in params: p.grad = None
            found.append(body(model, params, optimizer, i))
            stats.step()
    return stats, torch.stack(found).float() if isinstance(found[0], torch.Tensor) else found


def same(stats, wanted, words="exact"):
    torch.testing.assert_close(stats.log.values("grad_norm_unclipped").float(), wanted, equal_nan=True, **CLOSE)
    of_parameters = stats.updates.values("grad_norm_unclipped").square().sum(0).sqrt()
    torch.testing.assert_close(of_parameters, wanted[stats.updates.steps], equal_nan=True, **CLOSE)
    assert stats.log.unclipped_is() == ([words]*len(stats.log) if isinstance(words, str) else words)


# What happens before the call

def divide_by_hand(model, params, optimizer, i):
    scale = 256. if i < 5 else 2048.
    (loss_of(model, i)*scale).backward()
    torch._foreach_div_([p.grad for p in params], scale)
    returned = clip_grad_norm_(model.parameters(), .3)
    optimizer.step()
    return returned


def add_up(model, params, optimizer, i):
    for j in range(3): loss_of(model, 10*i + j).backward()
    for p in params: p.grad = p.grad/3
    returned = clip_grad_norm_(params, .3, foreach=False)
    optimizer.step()
    return returned


def with_noise(model, params, optimizer, i):
    loss_of(model, i).backward()
    for p in params: p.grad.data.add_(torch.randn_like(p), alpha=.2)
    returned = nn.utils.clip_grad_norm_(params, 1e-2, foreach=True)
    optimizer.step()
    return returned


def by_value(model, params, optimizer, i):
    loss_of(model, i).backward()
    for p in params: p.grad.mul_(7).sub_(.1)
    before = total(params)
    clip_grad_value_(model.parameters(), .02)
    optimizer.step()
    return before


def in_two_halves(model, params, optimizer, i):
    loss_of(model, i).backward()
    for p in params: p.grad.mul_(3)
    before = total(params)
    clip_grad_norm_(params[:2], .1)
    clip_grad_norm_(params[2:], .2)
    optimizer.step()
    return before


def with_its_own_total(model, params, optimizer, i):
    loss_of(model, i).backward()
    grads = [p.grad for p in params]
    torch._foreach_mul_(grads, 5.)
    of_all = get_total_norm(grads)
    clip_grads_with_norm_(params, .1, of_all)
    optimizer.step()
    return of_all


def by_the_largest(model, params, optimizer, i):
    loss_of(model, i).backward()
    for p in params: p.grad.neg_()
    before = total(params)
    clip_grad_norm_(params, .01, norm_type=math.inf)
    optimizer.step()
    return before


def a_single_tensor(model, params, optimizer, i):
    loss_of(model, i).backward()
    for p in params: p.grad.mul_(2)
    before = total(params)
    clip_grad_norm_(params[-1], .01)
    clip_grad_value_(params[-1], .001)
    optimizer.step()
    return before


def twice(model, params, optimizer, i):
    loss_of(model, i).backward()
    returned = clip_grad_norm_(params, .5)
    for p in params: p.grad.add_(.3)
    clip_grad_norm_(params, .1)
    optimizer.step()
    return returned


def after_each_pass(model, params, optimizer, i):
    "Of several passes, the last one adds to what was clipped before."
    for j in range(3):
        loss_of(model, 10*i + j).backward()
        returned = clip_grad_norm_(params, .2)
    optimizer.step()
    return returned


def some_rest(model, params, optimizer, i):
    "Clipping is skipped while nothing is above the limit; then nobody writes to the gradients at all."
    loss_of(model, i).backward()
    before = total(params)
    if i % 4 == 3: clip_grad_norm_(params, .1)
    optimizer.step()
    return before


BODIES = [divide_by_hand, add_up, with_noise, by_value, in_two_halves, with_its_own_total, by_the_largest,
          a_single_tensor, twice, after_each_pass, some_rest]


@each_way
@pytest.mark.parametrize("body", BODIES)
def test_the_norm_is_what_the_call_saw(body, options):
    stats, wanted = train(body, **options)
    same(stats, wanted)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_optimizers_of_all_kinds(kind, options):
    model = net()
    stats, wanted = train(divide_by_hand, model=model, optimizer=kind(model.parameters(), .01, **options))
    same(stats, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_numbers(dtype):
    def body(model, params, optimizer, i):
        model(torch.ones(2, 2, 8, dtype=dtype)).square().sum().mul(64).backward()
        for p in params: p.grad /= 64
        before = total(params)
        clip_grad_norm_(params, .25)
        optimizer.step()
        return before
    stats, wanted = train(body, model=net().to(dtype))
    same(stats, wanted)


def test_sparse_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
    optimizers = [torch.optim.SparseAdam(model[0].parameters()), torch.optim.SGD(model[2].parameters(), .1)]
    def body(model, params, optimizers, i):
        model(torch.randint(20, (6, 3))).square().mean().backward()
        for p in params: p.grad = p.grad*6
        norms = [p.grad.coalesce().values().norm() if p.grad.is_sparse else p.grad.norm() for p in params]
        clip_grad_norm_(params[1:], .01)
        for one in optimizers: one.step()
        return torch.stack(norms).norm() if i else torch.tensor(math.nan)
    stats, wanted = train(body, model=model, optimizer=optimizers, steps=4)
    # The embedding's was written to by hand, by a round number: unknown; and so is the total.
    assert stats.log.unclipped_is() == ["unknown"]*4
    linear = stats.updates.values("grad_norm_unclipped")[1:]
    assert linear.isfinite().all() and (linear.square().sum(0).sqrt()[1:] < wanted[1:]).all()


def test_two_optimizers_whose_gradients_are_clipped_before_both_steps():
    "A pass for one of them leaves the gradients of the other as they are: that was clipped already."
    torch.manual_seed(0)
    model = nn.ModuleDict({"actor": nn.Linear(4, 3), "critic": nn.Linear(4, 1)})
    optimizers = [torch.optim.SGD(model[name].parameters(), .1) for name in model]
    def body(model, params, optimizers, i):
        squares = 0.
        for part in model.values():
            (part(torch.randn(6, 4)).square().mean()*32).backward()
            own = list(part.parameters())
            for p in own: p.grad /= 32
            squares = squares + clip_grad_norm_(own, .05)**2
        for optimizer in optimizers: optimizer.step()
        return squares.sqrt()
    stats, wanted = train(body, model=model, optimizer=optimizers, turns=2)
    same(stats, wanted)


def test_an_optimizer_that_rests_in_some_steps():
    torch.manual_seed(0)
    model = nn.ModuleDict({"often": nn.Linear(4, 3), "seldom": nn.Linear(4, 1)})
    optimizers = [torch.optim.SGD(model[name].parameters(), .1) for name in model]
    def body(model, params, optimizers, i):
        squares = 0.
        for part, optimizer in zip(model.values(), optimizers):
            if part is model["seldom"] and i % 3: continue
            part(torch.randn(6, 4)).square().mean().backward()
            squares = squares + clip_grad_norm_(part.parameters(), .05)**2
            optimizer.step()
        return squares.sqrt()
    stats, wanted = train(body, model=model, optimizer=optimizers, turns=2)
    torch.testing.assert_close(stats.log.values("grad_norm_unclipped").float(), wanted, **CLOSE)
    assert stats.log.unclipped_is() == ["exact"]*14


def test_frozen_parameters_and_those_without_gradients():
    model = net()
    model[0].requires_grad_(False)
    stats, wanted = train(divide_by_hand_where_there_is_one, model=model,
                          optimizer=torch.optim.SGD(model.parameters(), .1))
    same(stats, wanted)


def divide_by_hand_where_there_is_one(model, params, optimizer, i):
    (loss_of(model, i)*1000).backward()
    for p in params:
        if p.grad is not None: p.grad /= 1000
    returned = clip_grad_norm_(params, .3)
    optimizer.step()
    return returned


def test_no_gradients_at_all():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats().on(model, optimizer=optimizer) as stats:
        loss_of(model, 0)
        assert clip_grad_norm_(model.parameters(), 1.) == 0 and clip_grad_norm_([], 1.) == 0
        optimizer.step()
        stats.step()
    assert stats.log.unclipped_is() == ["unknown"]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("by", ["norm", "value"])
def test_accelerate(by):
    "Its calls lead to torch's, also where it gathers several batches."
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.GradientState._reset_state()  # an interrupted Trainer leaves its loader there
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = net()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), .05))
    wanted = []
    with hl.ActivationStats(turns=2).on(model, optimizer=optimizer) as stats:
        for i in range(12):
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, i))
                if accelerator.sync_gradients:
                    for p in model.parameters(): p.grad.mul_(2.5)
                    wanted.append(total(model.parameters()))
                    if by == "norm": accelerator.clip_grad_norm_(model.parameters(), .1)
                    else: accelerator.clip_grad_value_(model.parameters(), .01)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients: stats.step()
    torch.testing.assert_close(stats.log.values("grad_norm_unclipped").float(), torch.stack(wanted), **CLOSE)
    assert stats.log.unclipped_is() == ["exact"]*6


# Scalers

@each_way
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("order", ["unscale, clip", "clip, unscale", "unscale", "clip", "neither"])
def test_a_scaler(order, given, fused, options):
    "Without the scale, wherever it is taken out, and whether the record knows the scaler or not."
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .05, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=512., growth_interval=3)
    def body(model, params, optimizer, i):
        scaler.scale(loss_of(model, i)).backward()
        before = total(params)/scaler.get_scale()
        for what in order.split(", "):
            if what == "unscale": scaler.unscale_(optimizer)
            if what == "clip": clip_grad_norm_(params, .1)
        scaler.step(optimizer)
        scaler.update()
        return before
    stats, wanted = train(body, model=model, optimizer=optimizer, scaler=scaler if given else None, **options)
    same(stats, wanted)


@pytest.mark.parametrize("turns", [None, 1])
@pytest.mark.parametrize("given", [True, False])
def test_a_step_that_a_scaler_skips(given, turns):
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), .05), torch.amp.GradScaler("cpu", init_scale=64.)
    def body(model, params, optimizer, i):
        scaler.scale(loss_of(model, i)*(math.inf if i == 7 else 1)).backward()
        before = total(params)/scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        return before
    known = scaler if given else None
    stats, wanted = train(body, model=model, optimizer=optimizer, scaler=known, turns=turns, steps=9)
    now, before = (stats.log.values(what).float() for what in ("grad_norm", "grad_norm_unclipped"))
    assert now.isnan().tolist() == [i == 7 for i in range(9)] and not before[7].isfinite()
    torch.testing.assert_close(before[:7], wanted[:7], **CLOSE)


def test_a_scaler_that_is_off():
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), .05), torch.amp.GradScaler("cpu", enabled=False)
    def body(model, params, optimizer, i):
        scaler.scale(loss_of(model, i)).backward()
        scaler.unscale_(optimizer)
        returned = clip_grad_norm_(params, .1)
        scaler.step(optimizer)
        scaler.update()
        return returned
    stats, wanted = train(body, model=model, optimizer=optimizer, scaler=scaler)
    same(stats, wanted)


class OwnScaler(torch.amp.GradScaler):
    "Takes the scale out in a way of its own."
    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]: p.grad.mul_(1/self.get_scale())
        state = self._per_optimizer_states[id(optimizer)]
        state["stage"] = torch.amp.grad_scaler.OptState.UNSCALED
        state["found_inf_per_device"] = {torch.device("cpu"): torch.zeros(())}


def test_a_scaler_of_another_class_and_gradients_that_are_changed_by_hand_behind_it():
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), .05), OwnScaler("cpu", init_scale=128.)
    def body(model, params, optimizer, i):
        scaler.scale(loss_of(model, i)).backward()
        scaler.unscale_(optimizer)
        before = total(params)
        for p in params: p.grad.clamp_(-.01, .01)
        scaler.step(optimizer)
        scaler.update()
        return before
    stats, wanted = train(body, model=model, optimizer=optimizer, scaler=scaler)
    same(stats, wanted, "estimate")
    assert torch.amp.GradScaler.unscale_.__code__.co_filename.endswith("grad_scaler.py")
    assert OwnScaler.unscale_.__code__.co_filename == __file__


@each_way
@pytest.mark.parametrize("given", [True, False])
def test_gradients_that_are_changed_by_hand_before_the_scaler_takes_its_scale_out(given, options):
    "It is the norm after the pass, without the scale."
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), .05), torch.amp.GradScaler("cpu", init_scale=128.)
    def body(model, params, optimizer, i):
        scaler.scale(loss_of(model, i)).backward()
        before = total(params)/scaler.get_scale()
        for p in params: p.grad.clamp_(-.3, .3)
        scaler.step(optimizer)
        scaler.update()
        return before
    stats, wanted = train(body, model=model, optimizer=optimizer, scaler=scaler if given else None, **options)
    same(stats, wanted, "estimate")


# No call

def hand_clipped(model, params, optimizer, i, write):
    loss_of(model, i).backward()
    before = total(params)
    for p in params: write(p)
    optimizer.step()
    return before


def anew(p): p.grad = p.grad*.37
def at_random(p): p.grad.mul_(.2 + .1*p.numel() % 1)


BY_HAND = {"clamp": lambda p: p.grad.clamp_(-.01, .01), "a factor": lambda p: p.grad.mul_(.37), "new ones": anew,
           "through .data": lambda p: p.grad.data.clamp_(-.01, .01), "each by its own": at_random,
           "noise": lambda p: p.grad.add_(torch.randn_like(p))}


@pytest.mark.parametrize("write", BY_HAND)
def test_by_hand_it_is_an_estimate(write):
    stats, wanted = train(partial(hand_clipped, write=BY_HAND[write]))
    same(stats, wanted, "estimate")


@pytest.mark.parametrize("write", [name for name in BY_HAND if name != "through .data"])
def test_by_hand_in_steps_that_are_not_measured(write):
    "It is known from the first measured steps on that the loop writes."
    stats, wanted = train(partial(hand_clipped, write=BY_HAND[write]), turns=2)
    same(stats, wanted, "estimate")


def scaled_down(p, i, by):
    if by == "new ones": p.grad = p.grad/64
    else: p.grad /= by


@each_way
@pytest.mark.parametrize("by", [4., 3., 1024., 1000., "new ones"])
def test_a_scale_that_is_taken_out_by_hand_is_no_clipping(by, options):
    "The norm after the pass is not that before clipping, and nobody can say which one is."
    def body(model, params, optimizer, i):
        loss_of(model, i).backward()
        for p in params: scaled_down(p, i, by)
        optimizer.step()
        return total(params)
    stats, at_step = train(body, **options)
    assert stats.log.unclipped_is() == ["unknown"]*14
    torch.testing.assert_close(stats.log.values("grad_norm").float(), at_step, **CLOSE)
    assert not stats.spikes() and "before clipping" not in repr(stats.grad_norms())


@each_way
def test_a_scale_that_is_taken_out_by_hand_before_clipping_by_hand(options):
    "Two writes: what was between them is unknown."
    def body(model, params, optimizer, i):
        scale = 2.**(8 + i)
        (loss_of(model, i)*scale).backward()
        for p in params: p.grad /= scale
        now = total(params)
        for p in params: p.grad.mul_(min(1., .1/now.item()))
        optimizer.step()
        return now
    stats, _ = train(body, **options)
    assert stats.log.unclipped_is() == ["unknown"]*14


def test_round_numbers():
    before, now = torch.tensor([8., 24., 0.]), torch.tensor([2., 6., 0.])
    assert nan_if_scaled(before, now).isnan().all() and nan_if_scaled(before[0], now[0]).isnan()
    assert nan_if_scaled(now, before).isnan().all()  # multiplied
    for other in (before, now*1.1, torch.tensor([2., 6.001, 0.]), torch.tensor([8., 23., 0.])):
        assert torch.equal(nan_if_scaled(before, other), before)
    alone = torch.tensor([8., 24., 3.])
    assert nan_if_scaled(alone, torch.tensor([8., 24., .03])).isnan().all()  # one of them alone, by a hundred
    bad = torch.tensor([math.inf, math.nan])
    torch.testing.assert_close(nan_if_scaled(bad, bad), bad, equal_nan=True)
    assert nan_if_scaled(torch.tensor(2.**20), torch.tensor(1.)).isnan()
    assert nan_if_scaled(torch.tensor(2.**20*1.001), torch.tensor(1.)) == 2.**20*1.001
    numbers = [1., 2.5, 3., 97., 128., 129., 1000., 1001., 4096., 65536., 7e4, 1e6]
    round_ones = [is_round(x, math) for x in numbers]
    assert [x for x, is_one in zip(numbers, round_ones) if is_one] == [1., 3., 97., 128., 1000., 4096., 65536., 1e6]
    assert is_round(torch.tensor(numbers)).tolist() == round_ones


def test_gradients_that_are_not_numbers_are_not_taken_for_writes():
    def body(model, params, optimizer, i):
        (loss_of(model, i)*(math.nan if i > 2 else 1)).backward()
        optimizer.step()
        return total(params)
    stats, wanted = train(body, steps=6)
    torch.testing.assert_close(stats.log.values("grad_norm").float(), wanted, equal_nan=True, **CLOSE)
    assert stats.log.unclipped_is()[:3] == ["exact"]*3 and not stats.session


def test_where_a_call_takes_turns_with_a_clip_by_hand():
    def body(model, params, optimizer, i):
        loss_of(model, i).backward()
        before = total(params)
        if i % 2: clip_grad_norm_(params, .05)
        else: torch._foreach_mul_([p.grad for p in params], .05)
        optimizer.step()
        return before
    stats, wanted = train(body)
    words = stats.log.unclipped_is()
    found = stats.log.values("grad_norm_unclipped").float()
    assert words[1::2] == ["exact"]*7 and {*words[::2]} <= {"estimate", "unknown"}
    known = ~found.isnan()
    torch.testing.assert_close(found[known], wanted[known], **CLOSE)


# What is not heard

def test_a_clip_that_is_compiled():
    "There is no break in its graph, and the norm is that after the pass, as an estimate."
    clip = torch.compile(lambda params: clip_grad_norm_(params, .05), backend="eager", fullgraph=True)
    def body(model, params, optimizer, i):
        loss_of(model, i).backward()
        returned = clip(params)
        optimizer.step()
        return returned
    stats, wanted = train(body, steps=5)
    same(stats, wanted, "estimate")
    train(body, steps=5)  # the same function is in the same place, so nothing is compiled anew
    model = net()
    loss_of(model, 0).backward()
    assert clip(list(model.parameters())) > .05


def test_clips_of_other_models():
    other = net()
    def body(model, params, optimizer, i):
        loss_of(other, i).backward()
        loss_of(model, i).backward()
        clip_grad_norm_(other.parameters(), .01)
        before = total(params)
        for p in params: p.grad.clamp_(-.02, .02)
        clip_grad_value_(other.parameters(), .001)
        optimizer.step()
        return before
    stats, wanted = train(body)
    same(stats, wanted, "estimate")


def test_threads_that_train_models_of_their_own():
    found = {}
    def run(name): found[name] = train(BODIES[name], steps=6)
    threads = [threading.Thread(target=run, args=(name,)) for name in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 3
    for stats, wanted in found.values(): same(stats, wanted)


# torch's functions

def contents():
    names = "_clip_grads_with_norm_", "clip_grad_value_"
    return {name: clip_calls.cell_of(getattr(clip_grad, name)) for name in names}


FUNCTIONS = clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
CODES = [(f, f.__code__, f.__wrapped__, f.__wrapped__.__code__) for f in FUNCTIONS]


def as_torch_has_them() -> bool:
    "Do torch's functions call torch's own code alone?"
    now = nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_, nn.utils.clip_grads_with_norm_, nn.utils.get_total_norm
    same_ones = all(f is one for f, one in zip(now, FUNCTIONS, strict=True))
    same_codes = all(f.__code__ is a and f.__wrapped__ is b and b.__code__ is c for f, a, b, c in CODES)
    inside = all(cell is not None and "hooklab" not in cell.cell_contents.__code__.co_filename
                 for cell in contents().values())
    unscale = torch.amp.GradScaler.unscale_.__code__.co_filename.endswith("grad_scaler.py")
    return same_ones and same_codes and inside and unscale


@pytest.fixture
def steps():
    "A model with its optimizer, and steps that clip."
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    def step(stats):
        optimizer.zero_grad()
        loss_of(model, 1).backward()
        returned = clip_grad_norm_(model.parameters(), .1)
        optimizer.step()
        if stats is not None: stats.step()
        return returned
    def on(): return hl.ActivationStats().on(model, optimizer=optimizer)
    return SimpleNamespace(step=step, on=on, model=model, optimizer=optimizer)


def test_functions_keep_their_identity_and_code_while_they_are_heard(steps):
    before = torchs_state()
    stats = steps.on()
    assert not as_torch_has_them()
    assert all(f.__code__ is code and f.__wrapped__ is inner for f, code, inner, _ in CODES)
    steps.step(stats)
    stats.remove()
    stats.remove()
    assert as_torch_has_them() and torchs_state() == before


def test_after_an_error(steps):
    with pytest.raises(ZeroDivisionError), steps.on() as stats:
        steps.step(stats)
        1/0
    assert as_torch_has_them()
    class Bad(torch.optim.SGD):
        def register_step_pre_hook(self, hook): raise OSError("none of these")
    with pytest.raises(OSError, match="none"):
        hl.ActivationStats().on(steps.model, optimizer=Bad(steps.model.parameters(), .1))
    assert as_torch_has_them()


def test_several_records_in_any_order(steps):
    one, two = steps.on(), steps.on()
    returned = steps.step(None)
    one.step()
    two.step()
    one.remove()
    assert not as_torch_has_them()
    three = steps.on()
    two.remove()
    again = steps.step(three)
    three.remove()
    assert as_torch_has_them()
    for stats, wanted in (one, returned), (two, returned), (three, again):
        assert stats.log.values("grad_norm_unclipped")[0].item() == pytest.approx(wanted.item(), rel=1e-6)
        assert stats.log.unclipped_is()[0] == "exact"


def test_a_record_that_is_dropped(steps):
    stats = steps.on()
    steps.step(stats)
    for hooked in steps.model, steps.optimizer:
        assert not as_torch_has_them()
        hl.remove_hooks(hooked)
    assert as_torch_has_them()


def test_a_listener_that_is_dropped():
    class Listener: is_on = True
    one, two = Listener(), Listener()
    for listener in one, two: clip_calls.add_listener(listener)
    del one, listener
    gc.collect()
    assert not as_torch_has_them()
    del two
    gc.collect()
    assert as_torch_has_them()


@pytest.mark.filterwarnings("ignore:Nothing was recorded")
def test_other_code_in_the_same_place(steps):
    "What took the place during the record stays, and still leads to torch's function."
    plain = torch.amp.GradScaler.unscale_
    stats, seen = steps.on(), []
    ours = torch.amp.GradScaler.unscale_
    def theirs(self, optimizer):
        seen.append(optimizer)
        return ours(self, optimizer)
    torch.amp.GradScaler.unscale_ = theirs
    try:
        stats.remove()
        assert torch.amp.GradScaler.unscale_ is theirs
        scaler = torch.amp.GradScaler("cpu", init_scale=4.)
        scaler.scale(loss_of(steps.model, 0)).backward()
        before = total(steps.model.parameters())
        with steps.on(): scaler.unscale_(steps.optimizer)
        torch.testing.assert_close(total(steps.model.parameters()), before/4)
        assert seen == [steps.optimizer] and torch.amp.GradScaler.unscale_ is theirs
    finally: torch.amp.GradScaler.unscale_ = plain
    with steps.on(): assert torch.amp.GradScaler.unscale_.__wrapped__ is plain
    assert as_torch_has_them()


def test_copies_have_torchs_functions(steps):
    stats = steps.on()
    steps.step(stats)
    twin = copy.deepcopy(steps.model)
    n = len([*clip_calls.LISTENING])
    assert n == 1 and copy.deepcopy(clip_grad_norm_) is clip_grad_norm_
    stats.remove()
    loss_of(twin, 0).backward()
    assert clip_grad_norm_(twin.parameters(), .1) > .1 and as_torch_has_them()


@pytest.mark.parametrize("foreach", [None, True, False])
def test_looking_changes_nothing(foreach):
    def run(recorded):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), .01)
        stats = hl.ActivationStats().on(model, optimizer=optimizer) if recorded else None
        found = []
        for i in range(5):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            found.append(clip_grad_norm_(model.parameters(), .1, foreach=foreach))
            clip_grad_value_((p for p in model.parameters()), .01, foreach=foreach)
            optimizer.step()
            if stats: stats.step()
        if stats: stats.remove()
        return found + list(model.parameters()), torch.get_rng_state()
    (plain, chance), (looked_at, chance_then) = run(False), run(True)
    assert all(map(torch.equal, plain, looked_at)) and torch.equal(chance, chance_then)


def test_errors_and_warnings_are_torchs(steps):
    def of(call):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try: call()
            except Exception as error: return type(error), str(error), [(str(w.message), w.filename) for w in seen]
        return [(str(w.message), w.filename, w.lineno) for w in seen]
    def infinite():
        for p in steps.model.parameters(): p.grad = torch.full_like(p, math.inf)
        clip_grad_norm_(steps.model.parameters(), 1., error_if_nonfinite=True)
    calls = [infinite, lambda: clip_grad_norm_(iter(()), 1.), lambda: clip_grad_norm_((p for p in ()), 1.),
             lambda: clip_grad_value_(steps.model.parameters(), "much"), lambda: clip_grad_value_(7, 1.),
             lambda: nn.utils.clip_grad_norm(steps.model.parameters(), 1.),
             lambda: clip_grad_value_(steps.model.parameters())]
    plain = [of(call) for call in calls]
    with steps.on() as stats:
        looked_at = [of(call) for call in calls]
        steps.step(stats)  # and the loop goes on
    assert plain == looked_at and plain[0][0] is RuntimeError and stats.log.unclipped_is() == ["exact"]


def test_a_torch_whose_functions_are_no_wrappers(monkeypatch):
    "Nothing is heard there, and the norm is an estimate."
    def plain(): pass
    def in_a_wrapper(inner):
        def wrapper(): return inner(), never
        if inner is plain: wrapper.__wrapped__ = inner
        return wrapper
        never = None
    assert clip_calls.cell_of(plain) is clip_calls.cell_of(None) is clip_calls.cell_of(in_a_wrapper(len)) is None
    assert clip_calls.cell_of(in_a_wrapper(plain)).cell_contents is plain
    monkeypatch.setattr(clip_calls, "PLACES", {})
    monkeypatch.setattr(clip_calls, "cell_of", lambda f: None)
    def body(model, params, optimizer, i):
        loss_of(model, i).backward()
        returned = clip_grad_norm_(params, .05)
        optimizer.step()
        return returned
    stats, wanted = train(body)
    same(stats, wanted, "estimate")


# What is kept

def test_a_file_keeps_how_it_is_known(tmp_path, steps):
    def body(model, params, optimizer, i):
        loss_of(model, i).backward()
        if i < 3: clip_grad_norm_(params, .1)
        else: torch._foreach_mul_([p.grad for p in params], .123)
        optimizer.step()
        return i
    stats, _ = train(body, steps=6)
    words = stats.log.unclipped_is()
    assert words[:3] == ["exact"]*3 and words[4:] == ["estimate"]*2
    stats.save(tmp_path/"run.safetensors")
    found = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert found.log.unclipped_is() == words
    first, last = (repr(found.grad_norms(step)).splitlines()[2:] for step in (0, -1))
    assert not any("≈" in line for line in first) and all("  ≈" in line for line in last)


def test_files_of_earlier_versions_have_estimates(tmp_path, monkeypatch):
    stats, wanted = train(divide_by_hand, steps=4)
    monkeypatch.delitem(LOG_COLUMNS, "unclipped_exact")
    stats.log.names = [*LOG_COLUMNS]
    for row in stats.log.kept: del row[11]
    stats.save(tmp_path/"run.safetensors")
    monkeypatch.undo()
    found = hl.ActivationStats.load(tmp_path/"run.safetensors")
    torch.testing.assert_close(found.log.values("grad_norm_unclipped").float(), wanted, **CLOSE)
    assert found.log.unclipped_is() == ["estimate"]*4


# Spikes

def spiked(clip, at=45, steps=60):
    "Gradients are multiplied in one step, and then clipped."
    def body(model, params, optimizer, i):
        loss_of(model, i % 3).backward()
        if i == at: torch._foreach_mul_([p.grad for p in params], 777.)
        returned = clip(params)
        optimizer.step()
        return returned
    model = net()
    return train(body, steps=steps, model=model, optimizer=torch.optim.SGD(model.parameters(), 1e-4), turns=3)


def test_a_spike_that_was_clipped_away():
    stats, returned = spiked(lambda params: clip_grad_norm_(params, 1.))
    (spike,) = stats.spikes()
    assert spike.step == 45 and spike.loss is None and spike.norm.value == pytest.approx(returned[45].item(), rel=1e-6)
    assert spike.norm.value > 100 > 1 >= stats.log.values("grad_norm")[45] and "≈" not in str(spike)


def test_a_spike_of_an_estimate_says_so():
    def clip(params):
        norm = total(params)
        for p in params: p.grad.mul_(.9/norm.item())
        return norm
    def body(model, params, optimizer, i):
        (loss_of(model, i % 3)*(500 if i == 45 else 1)).backward()
        returned = clip(params)
        optimizer.step()
        return returned
    model = net()
    stats, _ = train(body, steps=60, model=model, optimizer=torch.optim.SGD(model.parameters(), 1e-4))
    (spike,) = stats.spikes()
    assert spike.step == 45 and " to ≈" in str(spike)

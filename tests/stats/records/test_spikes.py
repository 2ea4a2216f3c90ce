"Spikes: the steps in which a loss or a gradient norm jumps, and what is none."
import math

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.records.run_log import RunLog
from hooklab.stats.records.spikes import RECENT_STEPS

torch.set_num_threads(1)


def log_of(losses=None, norms=None, clipped=None):
    "A log with these losses, None where none was given, and norms; `clipped` are those at the optimizer."
    log = RunLog()
    for i in range(len(losses or norms)):
        row = {}
        if losses and losses[i] is not None: row |= {"loss": losses[i], "given": 1}
        if norms: row |= {"grad_norm": (clipped or norms)[i], "grad_norm_unclipped": norms[i], "updates": 1}
        log.add(row, i)
    return log


def noise(n, size=.1, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.exp(size*torch.randn(n, generator=g)).tolist()


def steps_of(log): return [spike.step for spike in log.spikes()]


@pytest.mark.parametrize("at", [25, 60, 99])
@pytest.mark.parametrize("times", [5, 100, math.inf, math.nan])
@pytest.mark.parametrize("what", ["loss", "norm", "both"])
def test_a_jump_is_reported_in_its_step(what, times, at):
    usual, jumps = noise(100), noise(100, seed=1)
    jumps[at] *= times
    if what == "norm" and times != times: jumps[at] = math.nan
    log = log_of(usual if what == "norm" else jumps, usual if what == "loss" else jumps)
    (spike,) = log.spikes()
    assert spike.step == at and spike.first == what and spike.back == (at + 1 if at < 99 else None)
    assert (spike.loss is not None) == (what != "norm") and (spike.norm is not None) == (what != "loss")


def test_losses_that_fall_below_zero():
    losses = [-3 - i/50 + x for i, x in enumerate(noise(120))]
    losses[90] += 4
    assert steps_of(log_of(losses)) == [90]


HEALTHY = {
    "steady": noise(300),
    "noisy": noise(300, 1.),
    "falls": [3*math.exp(-i/60)*x for i, x in enumerate(noise(300, .3))],
    "rises slowly": [math.exp(i/60)*x for i, x in enumerate(noise(300, .2))],
    "a warm-up": [min(i/100, 1)*x + .01 for i, x in enumerate(noise(300, .2))],
    "ten times as much in the first steps": [(10 if i < 10 else 1)*x for i, x in enumerate(noise(300))],
    "always zero": [0.]*300,
    "all the same": [1.]*300,
    "below zero": [-x for x in noise(300, .5)],
    "half of it zero": [x*(i % 2) for i, x in enumerate(noise(300))],
    "too short": [1.]*10 + [100.],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_no_spike(name):
    series = HEALTHY[name]
    assert not steps_of(log_of(series))
    if min(series) >= 0: assert not steps_of(log_of(norms=series))


def test_a_norm_that_is_tiny_beside_earlier_ones_is_no_spike():
    "The run begins slowly, learns, and has converged: a norm of 30 times as much as rounding is still nothing."
    slopes = [.05*i for i in range(300)] + [.05*(300 - i) for i in range(300)] + [0.]*100
    norms = [1e-6*math.exp(x)*more for x, more in zip(slopes, noise(700))]
    at = 640, 680
    for step in at: norms[step] = 3e-5
    assert steps_of(log_of(norms=norms[-100:])) == [step - 600 for step in at]  # without what was before
    assert steps_of(log_of(norms=norms)) == []
    norms[690] = .2  # a twentieth of the largest
    assert steps_of(log_of(norms=norms)) == [690]
    losses = noise(700)
    losses[680] = 9
    spikes = log_of(losses, norms).spikes()
    assert [(spike.step, spike.norm is None) for spike in spikes] == [(680, True), (690, False)]


def test_a_jump_that_stays_is_one_spike_and_usual_later():
    losses = [x*(10 if i >= 100 else 1) for i, x in enumerate(noise(300))]
    (spike,) = log_of(losses).spikes()
    assert spike.step == 100 and spike.back is None and "didn't return" in str(spike)
    losses[250] *= 20
    assert steps_of(log_of(losses)) == [100, 250]


def test_jumps_that_return_become_usual():
    norms = [x*(30 if i % 20 == 19 else 1) for i, x in enumerate(noise(400))]
    assert len(steps_of(log_of(norms=norms))) <= 3


def test_the_first_of_the_two_is_named():
    losses, norms = noise(100), noise(100, seed=1)
    norms[60] *= 30
    norms[61] *= 30
    losses[61] *= 30
    (spike,) = log_of(losses, norms).spikes()
    assert (spike.step, spike.first, spike.back) == (60, "norm", 62)
    assert "; the norm jumps first" in str(spike) and "after 2 steps" in str(spike)


def test_a_norm_that_is_too_large_for_its_loss():
    losses = noise(100, .5)
    norms = [x*y for x, y in zip(losses, noise(100, seed=1))]
    losses[70], norms[70] = 1., 10.
    assert not steps_of(log_of(norms=norms)), "alone, it is not far enough outside"
    (spike,) = log_of(losses, norms).spikes()
    assert spike.step == 70 and spike.loss is None and spike.norm.value == 10
    losses[70] = 10.
    assert not steps_of(log_of(losses, norms)), "a large loss has large gradients"


def test_a_step_after_gradients_that_grew_on_their_way_to_the_optimizer():
    losses, norms = noise(100), noise(100, seed=1)
    norms[61] = 1.2*max(norms[21:61])
    scaled = [*norms]
    assert not steps_of(log_of(losses, norms, scaled))
    scaled[60] *= 1024
    (spike,) = log_of(losses, norms, scaled).spikes()
    assert spike.step == 61 and spike.norm and spike.update.times > 500
    assert "; in the step before, the optimizer got gradients with a norm of" in str(spike)
    losses[61] = norms[61] = scaled[61] = 1.
    assert not steps_of(log_of(losses, norms, scaled)), "they did nothing"


@pytest.mark.parametrize("limit", [lambda i: .5, lambda i: .1 if i < 100 else 2., lambda i: 1 + i/100], ids=[
    "the same", "raised in step 100", "rises"])
def test_clipping_is_no_spike(limit):
    losses, norms = noise(300, .3), noise(300, .3, seed=1)
    assert not steps_of(log_of(losses, norms, [min(x, limit(i)) for i, x in enumerate(norms)]))


def test_norms_at_the_optimizer_that_are_unknown_say_nothing():
    norms = noise(100)
    assert not steps_of(log_of(noise(100, seed=1), norms, [math.nan if i % 7 == 0 else x for i, x in enumerate(norms)]))


def test_losses_that_were_not_given_are_left_out():
    losses = [x if i % 2 else None for i, x in enumerate(noise(100))]
    losses[61] = 50.
    assert steps_of(log_of(losses)) == [61] and steps_of(log_of(norms=noise(100))) == [] == RunLog().spikes()


def test_a_step_that_was_skipped_is_no_spike():
    log = log_of(norms=noise(60))
    log.add({"grad_norm_unclipped": math.inf}, 60)  # a scaler made no step
    assert not steps_of(log)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def trained(spoil=None, told=lambda loss: loss, **options):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    batches = [batch for _ in range(4) for batch in hl.digits().train]
    with hl.ActivationStats(**options).on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches):
            x = x.flatten(1)
            if spoil is not None and i == 60: x, y = spoil(x, y)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.step(told(loss))
    return stats


def larger(x, y): return 300*x, y


@pytest.mark.parametrize("options", [{}, {"turns": 5}, {"loop": True, "turns": 5}, {"every": 7}], ids=str)
@pytest.mark.parametrize("given", ["a tensor", "a number", "nothing"])
def test_spikes_of_a_run(given, options):
    told = {"a tensor": lambda loss: loss, "a number": torch.Tensor.item, "nothing": lambda loss: None}[given]
    stats = trained(larger, told, **options)
    (spike,) = stats.spikes()
    assert spike.step == 60 and spike.norm.times > 20 and (spike.loss is None) == (given == "nothing")
    assert bool(spike.layers) == (60 in stats.steps) and not trained(told=told, **options).spikes()


def test_the_parameters_in_which_the_norm_rose():
    (spike,) = trained(larger).spikes()
    assert {*spike.layers} <= {"0.weight", "0.bias", "2.weight", "2.bias"} and [*spike.layers][0] == "2.weight"
    times = [*spike.layers.values()]
    assert times == sorted(times, reverse=True) and times[0] > 20 and "2.weight (" in spike.text


def test_pictures_have_a_mark(tmp_path):
    stats = trained(larger, grads=True, with_hist=True)
    def marks(ax): return [line for line in ax.lines if line.get_marker() == "v" and 60 in line.get_xdata()]
    for draw in stats.history.plot, stats.gradients.plot, stats.updates.plot, stats.dead_chart:
        ax = draw()
        assert marks(ax) and "triangle: a spike" in ax.get_xlabel()
        plt.close("all")
    assert marks(stats.color_dim(1)) and all(map(marks, stats.plot_all().flat[:len(stats.names)]))
    plt.close("all")
    stats.save(tmp_path/"run.safetensors")
    found = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert marks(found.history.plot()) and [s.step for s in found.spikes()] == [60]
    assert not marks(trained().history.plot())
    plt.close("all")


def test_the_diagnosis_has_it_with_its_step():
    stats = trained(larger, loop=True, grads=True, samples=True)
    (found,) = [finding for finding in hl.diagnose(stats) if finding.what == "spike"]
    assert found.sure == "likely" and "In step 60 the loss jumps" in found.evidence
    assert "the batch of step 60" in found.advice
    healthy = hl.diagnose(trained(loop=True, grads=True, samples=True))
    assert not [finding for finding in healthy if finding.what == "spike"]


def test_a_rate_that_leaps_is_named():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batch for _ in range(4) for batch in hl.digits().train):
            for group in optimizer.param_groups: group["lr"] = .5 if i == 60 else 1e-3
            loss = F.cross_entropy(model(x.flatten(1)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.step(loss)
    (found,) = [finding for finding in hl.diagnose(stats) if finding.what == "spike"]
    assert "In step 61 the loss jumps" in found.evidence
    assert found.advice == "The learning rate was 0.5 in step 60, and is usually 0.001: check the schedule."


def test_a_record_without_losses_and_norms_says_what_is_missing():
    model = net()
    with hl.ActivationStats().on(model) as stats:
        for _ in range(2):
            model(torch.randn(3, 64))
            stats.step()
    with pytest.raises(LookupError, match=r"none were recorded: pass the loss to step\(loss\), or the optimizer to"):
        stats.spikes()
    assert hl.diagnose(stats) is not None and stats.history.plot()
    plt.close("all")


def test_a_long_record_is_read_in_little_time():
    log = log_of(noise(4096), noise(4096, seed=1))
    assert len(log) == 4096 and steps_of(log) == [] and RECENT_STEPS < 4096

"Which backward passes are in the gradients of a step: those of another loss, and those that are cleared before it."
from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")
MIXED, VAIN = "gradients of another loss", "gradients thrown away"


class Pair(nn.Module):
    "A maker of samples and a judge of them, or an actor and a critic."
    def __init__(self, noise=4, size=3):
        super().__init__()
        torch.manual_seed(0)
        self.maker = nn.Sequential(nn.Linear(noise, 16), nn.Tanh(), nn.Linear(16, size))
        self.judge = nn.Sequential(nn.Linear(size, 16), nn.LeakyReLU(), nn.Linear(16, 1))


def judge_loss(pair, x):
    made = pair.maker(torch.randn(len(x), 4)).detach()
    return F.softplus(pair.judge(made)).mean() + F.softplus(-pair.judge(x)).mean()


def maker_loss(pair, n=16): return F.softplus(-pair.judge(pair.maker(torch.randn(n, 4)))).mean()


def sure_of(what, stats): return next((f.sure for f in hl.diagnose(stats) if f.what == what), "")


def of_pair(turn, n=30):
    "How sure it is said of a loop that makes this turn with each batch."
    pair = Pair()
    both = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (pair.judge, pair.maker)]
    with hl.ActivationStats.for_diagnosis().on(pair, optimizer=both) as stats:
        for i in range(n):
            turn(pair, *both, torch.randn(16, 3) + 1, i)
            stats.step()
    return sure_of(MIXED, stats)


def cleared_behind_the_step(pair, judge, maker, x, i):
    for optimizer, loss in ((judge, judge_loss(pair, x)), (maker, None)):
        (maker_loss(pair) if loss is None else loss).backward()
        optimizer.step()
        optimizer.zero_grad()


def cleared_to_zeros(pair, judge, maker, x, i):
    judge_loss(pair, x).backward()
    nn.utils.clip_grad_norm_(pair.judge.parameters(), 1.)
    judge.step()
    judge.zero_grad(set_to_none=False)
    maker_loss(pair).backward()
    maker.step()
    maker.zero_grad(set_to_none=False)


def other_one_cleared(pair, judge, maker, x, i):
    maker.zero_grad()
    judge_loss(pair, x).backward()
    judge.step()
    if i % 2 == 0: judge.zero_grad()
    maker.zero_grad()
    maker_loss(pair).backward()
    maker.step()


def both_steps_last(pair, judge, maker, x, i):
    judge.zero_grad()
    judge_loss(pair, x).backward()
    maker.zero_grad()
    maker_loss(pair).backward()
    maker.step()
    judge.step()


def several_of_the_judge(pair, judge, maker, x, i):
    for _ in range(3):
        judge_loss(pair, x).backward()
        judge.step()
        judge.zero_grad()
    maker.zero_grad()
    maker_loss(pair).backward()
    maker.step()


def cleared_at_the_top(pair, judge, maker, x, i):
    for optimizer in (judge, maker): optimizer.zero_grad()
    judge_loss(pair, x).backward()
    maker_loss(pair).backward()
    for optimizer in (judge, maker): optimizer.step()


MIXING = {cleared_behind_the_step: "likely", cleared_to_zeros: "likely", other_one_cleared: "likely",
          both_steps_last: "likely", several_of_the_judge: "likely", cleared_at_the_top: "note"}


@pytest.mark.parametrize("turn", MIXING)
def test_gradients_that_another_loss_left(turn): assert of_pair(turn) == MIXING[turn]


def cleared_before(pair, judge, maker, x, i):
    judge.zero_grad()
    judge_loss(pair, x).backward()
    judge.step()
    maker.zero_grad()
    maker_loss(pair).backward()
    maker.step()


def cleared_through_data(pair, judge, maker, x, i):
    judge_loss(pair, x).backward()
    judge.step()
    maker_loss(pair).backward()
    maker.step()
    for p in pair.parameters(): p.grad.data.zero_()


def judge_rests(pair, judge, maker, x, i):
    judge_loss(pair, x).backward()
    pair.judge.requires_grad_(False)
    maker_loss(pair).backward()
    pair.judge.requires_grad_(True)
    for optimizer in (judge, maker):
        optimizer.step()
        optimizer.zero_grad()


def real_and_made_apart(pair, judge, maker, x, i):
    judge.zero_grad()
    F.softplus(-pair.judge(x)).mean().backward()
    F.softplus(pair.judge(pair.maker(torch.randn(16, 4)))).mean().backward()
    judge.step()
    maker.zero_grad()
    maker_loss(pair).backward()
    maker.step()


def one_loss_for_both(pair, judge, maker, x, i):
    for _ in range(2): F.mse_loss(pair.judge(pair.maker(torch.randn(16, 4))), x[:, :1]).backward()
    for optimizer in (judge, maker):
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("turn", [
    cleared_before, cleared_through_data, judge_rests, real_and_made_apart, one_loss_for_both])
def test_two_optimizers_that_share_nothing_by_mistake(turn): assert not of_pair(turn)


class Tasks(nn.Module):
    "A trunk that learns from the losses of two heads."
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Linear(3, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(2))


def test_a_trunk_may_have_the_gradients_of_several_heads():
    model = Tasks()
    optimizers = [torch.optim.SGD(part.parameters(), lr=.01) for part in (model.trunk, *model.heads)]
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizers) as stats:
        for _ in range(20):
            x = torch.randn(16, 3)
            for head in model.heads: F.mse_loss(head(model.trunk(x)), x[:, :1]).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            stats.step()
    assert not sure_of(MIXED, stats)


def of_one(turn, n=24, kind=torch.optim.SGD):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = kind(model.parameters(), lr=.05)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i in range(n):
            if turn(model, optimizer, torch.randn(16, 6), i): stats.step()
    return sure_of(VAIN, stats)


def loss_of(model, x): return F.cross_entropy(model(x), x[:, :3].argmax(1))


def cleared_before_the_last(model, optimizer, x, i):
    due = i % 4 == 3
    if due: optimizer.zero_grad()
    loss_of(model, x).backward()
    if due: optimizer.step()
    return due


def cleared_for_each(model, optimizer, x, i):
    for part in x.split(4):
        model.zero_grad()
        loss_of(model, part).backward()
    optimizer.step()
    return True


def cleared_by_hand(model, optimizer, x, i):
    for part in x.split(4):
        for p in model.parameters(): p.grad = None
        loss_of(model, part).backward()
    optimizer.step()
    return True


def every_batch_a_record(model, optimizer, x, i):
    cleared_before_the_last(model, optimizer, x, i)
    return True


def halves_of_a_loss(model, optimizer, x, i):
    output = model(x)
    F.cross_entropy(output, x[:, :3].argmax(1)).backward(retain_graph=True)
    optimizer.zero_grad()
    output.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return True


@pytest.mark.parametrize("turn, sure", [
    (cleared_before_the_last, "likely"), (cleared_for_each, "likely"), (cleared_by_hand, "likely"),
    (every_batch_a_record, "likely"), (halves_of_a_loss, "note")])
def test_gradients_that_are_cleared_between_the_passes_of_a_step(turn, sure):
    assert of_one(turn, 48) == sure


def gathers(model, optimizer, x, i):
    for part in x.split(4): (loss_of(model, part)/4).backward()
    optimizer.step()
    optimizer.zero_grad()
    return True


def attacks_first(model, optimizer, x, i):
    x.requires_grad_()
    for _ in range(2):
        loss = loss_of(model, x)
        x.data += .01*torch.autograd.grad(loss, x, retain_graph=True)[0].sign()
        loss.backward()
    optimizer.zero_grad()
    loss_of(model, x.detach()).backward()
    optimizer.step()
    return True


def climbs_first(model, optimizer, x, i):
    "As sharpness-aware steps do."
    optimizer.zero_grad()
    loss_of(model, x).backward()
    climbs = [.01*p.grad/p.grad.norm() for p in model.parameters()]
    with torch.no_grad():
        for p, climb in zip(model.parameters(), climbs): p += climb
    optimizer.zero_grad()
    loss_of(model, x).backward()
    with torch.no_grad():
        for p, climb in zip(model.parameters(), climbs): p -= climb
    optimizer.step()
    return True


def puts_together(model, optimizer, x, i):
    "Gradients of parts, clipped one by one."
    parts = []
    for part in x.split(4):
        optimizer.zero_grad()
        loss_of(model, part).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.)
        parts.append([p.grad for p in model.parameters()])
    for p, *grads in zip(model.parameters(), *parts): p.grad = torch.stack(grads).mean(0)
    optimizer.step()
    return True


def left_over_in_each_epoch(model, optimizer, x, i):
    if i % 9 == 0: optimizer.zero_grad()
    (loss_of(model, x)/4).backward()
    if i % 9 % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    return True


@pytest.mark.parametrize("turn", [gathers, attacks_first, climbs_first, puts_together, left_over_in_each_epoch])
def test_gradients_that_are_used_or_read(turn): assert not of_one(turn, 45)


def test_passes_of_a_closure_are_no_waste():
    torch.manual_seed(0)
    model, x = nn.Linear(6, 3), torch.randn(64, 6)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        return loss

    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for _ in range(8):
            optimizer.step(closure)
            stats.step()
    assert not sure_of(VAIN, stats)


def test_the_facts_of_passes_are_saved_and_read(tmp_path):
    pair = Pair()
    both = [torch.optim.SGD(part.parameters(), lr=.01) for part in (pair.judge, pair.maker)]
    with hl.ActivationStats.for_diagnosis().on(pair, optimizer=both) as stats:
        for i in range(12):
            cleared_behind_the_step(pair, *both, torch.randn(16, 3), i)
            stats.step()
    stats.save(tmp_path/"run.safetensors")
    assert sure_of(MIXED, hl.ActivationStats.load(tmp_path/"run.safetensors")) == "likely"
    assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in chain(pair.parameters()))


def steps_again(model, optimizer, x, i):
    optimizer.zero_grad()
    loss_of(model, x).backward()
    for _ in range(2): optimizer.step()
    return True


def what_is_found(model, optimizer, turn, n=24, scaler=None):
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer, scaler=scaler) as stats:
        for i in range(n):
            if turn(model, optimizer, torch.randn(16, 6), i): stats.step()
    return {f.what: f for f in hl.diagnose(stats) if f.sure != "note"}


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def with_scaler(kind):
    "A loop with a scaler, in which the scale is taken out, or a step is made, in one of these ways."
    model, scaler = small_net(), torch.amp.GradScaler("cpu", init_scale=2.**12)

    def turn(model, optimizer, x, i):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, x)).backward()
        if kind == "divided":
            for p in model.parameters(): p.grad.div_(scaler.get_scale())
        if kind in ("unscaled", "behind"): scaler.unscale_(optimizer)
        if kind == "clipped": nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if kind == "own step": optimizer.step()
        else: scaler.step(optimizer)
        if kind == "behind": optimizer.step()
        if kind != "own step": scaler.update()
        return True

    return what_is_found(model, torch.optim.Adam(model.parameters(), lr=1e-3), turn, scaler=scaler)


@pytest.mark.parametrize("kind, what, words", [
    ("divided", "clipping before unscaling", "divided by the scale twice"),
    ("own step", "clipping before unscaling", "still multiplied by the scale"),
    ("behind", "stepped twice", "still makes it"), ("unscaled", "", ""), ("clipped", "", ""), ("right", "", "")])
def test_steps_with_a_scaler(kind, what, words):
    found = {name: f for name, f in with_scaler(kind).items() if name in ("clipping before unscaling", "stepped twice")}
    assert [*found] == ([what] if what else [])
    if what: assert words in found[what].evidence


def test_two_steps_for_one_pass():
    model = small_net()
    assert "stepped twice" in what_is_found(model, torch.optim.SGD(model.parameters(), lr=.01), steps_again)
    assert "stepped twice" not in what_is_found(model, torch.optim.SGD(model.parameters(), lr=.01), gathers)


class Counts(torch.optim.SGD):
    "Counts its steps in a number of this type."
    def __init__(self, params, kind):
        super().__init__(params, lr=.01, momentum=.9)
        self.kind = kind

    def step(self):
        super().step()
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["step"] = state.get("step", torch.zeros((), dtype=self.kind)) + 1


def one_step(model, optimizer, x, i):
    optimizer.zero_grad()
    loss_of(model, x).backward()
    optimizer.step()
    return True


@pytest.mark.parametrize("kind, n, is_found", [
    (torch.bfloat16, 300, True), (torch.bfloat16, 30, False), (torch.float32, 300, False)])
def test_a_count_that_stops(kind, n, is_found):
    model = small_net()
    assert ("lost in rounding" in what_is_found(model, Counts(model.parameters(), kind), one_step, n)) == is_found


def at_rates(rate_of, n=90):
    "What is found where the rate of each step is what the function gives."
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i in range(n):
            optimizer.param_groups[0]["lr"] = rate_of(i/n)
            x = torch.randn(16, 6)
            loss = loss_of(model, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.step(loss)
    return any(f.what == "schedule does not fit" and "gets worse" in f.evidence for f in hl.diagnose(stats))


@pytest.mark.parametrize("rate_of, is_found", [
    (lambda t: .05*10**(3*int(3*t)/2), True), (lambda t: .1 if t < .7 else 60., True), (lambda t: .1 + .4*t, False),
    (lambda t: .01*10**(2*t), False), (lambda t: .1*10**-int(3*t), False), (lambda t: .01 if t < .7 else .1, False)])
def test_a_rate_that_rises_to_harm(rate_of, is_found): assert at_rates(rate_of) == is_found

"What is beside the layers: schedules, optimizers that a loop makes, modes, copies. Each fault has a healthy twin."
import math
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

import hooklab as hl
from hooklab.stats.records.facts import RunFacts, facts_from, plain_facts

pytestmark = pytest.mark.usefixtures("one_thread")
IDS = {"schedule never moves", "schedule does not fit", "optimizer made anew", "gradients thrown away", "train mode",
       "part in eval mode", "copy does not follow", "statistics stay behind", "scheduler each batch",
       "steps while gathering", "no zero_grad", "epsilon is lost", "no step", "step before backward",
       "lost in rounding", "learning rate too small"}


def net(norm=False, p=0.):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.Tanh(), nn.Dropout(p), nn.Linear(16, 3))


def batches(n, size=16):
    torch.manual_seed(1)
    x = torch.randn(n, size, 6)
    return zip(x, x[..., :3].argmax(2))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def found(stats) -> dict: return {f.what: f for f in hl.diagnose(stats) if f.what in IDS and f.sure != "note"}


def notes(stats) -> set: return {f.what for f in hl.diagnose(stats) if f.what in IDS and f.sure == "note"}


def scheduled(make, every=1, n=60, value=None, lr=.05):
    "Trains, and calls a schedule after each so many steps; with `value(losses)`, it gets that."
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    schedule, losses, rates = make(optimizer), [], []
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(n), 1):
            rates.append(optimizer.param_groups[0]["lr"])
            losses.append(step(model, optimizer, x, y).item())
            if i % every == 0: schedule.step(*([] if value is None else [value(losses)]))
            stats.step(losses[-1])
    return found(stats), rates


one_cycle = partial(schedules.OneCycleLR, max_lr=.05, total_steps=61)
FIT = {
    "one cycle": (one_cycle, 1), "for epochs": (lambda o: schedules.StepLR(o, 2, .5), 10),
    "cosine": (lambda o: schedules.CosineAnnealingLR(o, 60), 1),
    "cosine for epochs": (lambda o: schedules.CosineAnnealingLR(o, 6), 10),
    "warm-up": (lambda o: schedules.LinearLR(o, .1, total_iters=20), 1),
    "two": (lambda o: schedules.SequentialLR(o, [schedules.LinearLR(o, .1, total_iters=5),
                                                 schedules.CosineAnnealingLR(o, 55)], [5]), 1),
    "a factor": (lambda o: schedules.LambdaLR(o, lambda i: min(1., (i + 1)/10)), 1),
    "a long run for epochs": (lambda o: schedules.CosineAnnealingLR(o, 500), 10)}


QUICK = "one cycle", "two"
LONGER = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FIT]


@pytest.mark.parametrize("name", LONGER)
def test_schedules_that_fit(name):
    make, every = FIT[name]
    assert not scheduled(make, every)[0]


def test_a_cycle_of_batches_is_called_once_an_epoch():
    said, rates = scheduled(one_cycle, 15)
    assert set(said) == {"schedule never moves"}
    text = said["schedule never moves"].evidence
    assert "61 calls and was called 4 times in 60" in text and f"{rates[0]:.2g} to {rates[-1]:.2g}" in text


def test_a_warm_up_that_never_ends():
    said, _ = scheduled(lambda o: schedules.LinearLR(o, .01, total_iters=300), 12)
    assert "set up for 300 calls and was called 5 times" in said["schedule never moves"].evidence


@pytest.mark.parametrize("factor, lr", [(lambda i: .05, .05), (lambda i: 1e-3, .02)])
def test_a_rate_in_the_place_of_a_factor(factor, lr):
    said, rates = scheduled(lambda o: schedules.LambdaLR(o, factor), lr=lr)
    text = said["schedule does not fit"].evidence
    assert f"{max(rates):.2g}" in text and ("rate squared" in text) == (lr == .05)


def test_the_rate_becomes_zero():
    said, rates = scheduled(lambda o: schedules.StepLR(o, 1, gamma=0), 20)
    assert set(said) == {"schedule does not fit"} and said["schedule does not fit"].sure == "certain"
    assert "from step 20 on: 40 of 60" in said["schedule does not fit"].evidence and rates[20:] == [0.]*40


@pytest.mark.slow
def test_a_rate_that_dies_between_epochs_is_no_schedule_for_each_batch():
    said, _ = scheduled(lambda o: schedules.StepLR(o, 1, gamma=.05), 5)
    assert set(said) == {"schedule does not fit"}
    said, _ = scheduled(lambda o: schedules.StepLR(o, 1, gamma=.5), 1)
    assert [*said] == ["scheduler each batch", "learning rate too small"]
    assert said["learning rate too small"].follows == "scheduler each batch"


def test_a_cosine_that_comes_back():
    said, _ = scheduled(lambda o: schedules.CosineAnnealingLR(o, 10))
    assert "set up for 10 calls" in said["scheduler each batch"].evidence


def mean_of_last(losses): return sum(losses[-10:])/10


@pytest.mark.parametrize("mode, fits", [("max", False), ("min", True)])
def test_a_plateau_schedule(mode, fits):
    plateau = partial(schedules.ReduceLROnPlateau, mode=mode, patience=1, factor=.5)
    said, rates = scheduled(plateau, 10, 200, mean_of_last, lr=.1)
    assert (not said) == fits
    if not fits: assert "mode='max'" in said["schedule does not fit"].evidence and rates[-1] < .5*rates[0]


def test_only_schedules_of_the_given_optimizer_are_seen():
    model = net()
    other = schedules.StepLR(torch.optim.SGD(model.parameters(), lr=.1), 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    class Holder: pass
    holder = Holder()
    holder.of = {"plan": [schedules.StepLR(optimizer, 40)]}  # wherever it is
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(30):
            stats.step(step(model, optimizer, x, y))
            other.step()
            holder.of["plan"][0].step()
    known, = stats.facts.schedules.values()
    assert known.type == "StepLR" and known.calls == 30 and known.before == 0 and not found(stats)


def test_schedules_that_are_made_in_the_loop_are_seen():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        schedule = one_cycle(optimizer)
        for i, (x, y) in enumerate(batches(60), 1):
            stats.step(step(model, optimizer, x, y))
            if i % 15 == 0: schedule.step()
    assert "was called 4 times in 60" in found(stats)["schedule never moves"].evidence


def wave(o, length, warm=1):
    return schedules.LambdaLR(o, lambda i: min(1, (i + 1)/warm)*(1 + math.cos(math.pi*i/length))/2)


def restarts(o): return schedules.LambdaLR(o, lambda i: min(1, (i % 15 + 1)/4)*(1 + math.cos(math.pi*(i % 15)/15))/2)


@pytest.mark.parametrize("make, is_found", [
    (partial(wave, length=10), True), (partial(wave, length=10, warm=10), True), (partial(wave, length=61), False),
    (restarts, False),                                                         # begins anew on purpose
    (lambda o: schedules.CosineAnnealingWarmRestarts(o, 12), False),
    (lambda o: schedules.CyclicLR(o, 1e-4, .05, 6), False)])
def test_a_rate_that_swings(make, is_found):
    said, _ = scheduled(make)
    assert set(said) == ({"schedule does not fit"} if is_found else set())
    if is_found: assert "continues past its end" in said["schedule does not fit"].evidence


class WarmUp:
    "A schedule by hand, which holds the rate down at first."
    def __init__(self, optimizer, steps=20):
        self.groups, self.steps, self.n, self.full = optimizer.param_groups, steps, 0, optimizer.param_groups[0]["lr"]
        self.step()

    def step(self, full=None):
        self.n += 1
        self.full = full or self.full
        for group in self.groups: group["lr"] = self.full*min(1, self.n/self.steps)


class Both:
    "A warm-up, and a schedule that is made before or after it."
    def __init__(self, optimizer, first):
        parts = {}
        for name in ("schedule", "warmup") if first else ("warmup", "schedule"):
            parts[name] = WarmUp(optimizer) if name == "warmup" else schedules.CosineAnnealingLR(optimizer, 80)
        self.warmup, self.schedule = parts["warmup"], parts["schedule"]

    def step(self):
        self.schedule.step()
        self.warmup.step(self.schedule.base_lrs[0])


@pytest.mark.parametrize("first", [False, True])
def test_a_schedule_that_is_made_while_a_warm_up_holds_the_rate_down(first):
    said, rates = scheduled(partial(Both, first=first))
    assert ("schedule does not fit" in said) == (not first)
    if said: assert "treats 0.0025 as the full rate" in said["schedule does not fit"].evidence and max(rates) < .01


def test_groups_with_small_rates_of_their_own_are_no_warm_up():
    model = net()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "lr": 1e-3}], lr=.1)
    schedule = schedules.LambdaLR(optimizer, lambda i: 1.)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(30):
            stats.step(step(model, optimizer, x, y))
            schedule.step()
    assert "schedule does not fit" not in found(stats)


def test_a_smaller_rate_that_was_set_by_hand_is_no_warm_up():
    def make(optimizer):
        optimizer.param_groups[0]["lr"] = 1e-3
        return schedules.LinearLR(optimizer, .1, total_iters=20)
    assert "schedule does not fit" not in scheduled(make)[0]
    assert "schedule does not fit" not in scheduled(partial(schedules.OneCycleLR, max_lr=2e-3, total_steps=61))[0]


def test_a_rate_that_stays_behind_its_warm_up_is_a_note():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    warm = WarmUp(optimizer, 10)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(60):
            stats.step(step(model, optimizer, x, y))
            warm.step()
    assert notes(stats) == {"schedule never moves"} and not found(stats)


def epochs(make, n=6, each=8, lr=1e-2, falls=1.):
    "Each epoch has a record of its own, and an optimizer that `make` may change."
    model, stats = net(), hl.ActivationStats.for_diagnosis()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=.9)
    for _ in range(n):
        optimizer = make(model, optimizer)
        for group in optimizer.param_groups: group["lr"] *= falls
        with stats.on(model, optimizer=optimizer):
            for x, y in batches(each): stats.step(step(model, optimizer, x, y))
    return found(stats)


def new_sgd(model, optimizer): return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=.9)


def with_memory(model, optimizer):
    new = new_sgd(model, optimizer)
    new.load_state_dict(optimizer.state_dict())
    return new


def test_a_record_in_each_epoch():
    text = epochs(new_sgd)["optimizer made anew"].evidence
    assert "6 different SGD" in text and "8 steps" in text
    assert not epochs(lambda model, optimizer: optimizer)
    assert "optimizer made anew" not in epochs(with_memory)
    assert "optimizer made anew" not in epochs(lambda model, _: torch.optim.SGD(model.parameters(), lr=1e-2))
    assert "optimizer made anew" not in epochs(new_sgd, n=3)  # parts are thawed
    assert not epochs(lambda model, optimizer: optimizer, falls=.1)  # a schedule has made the last steps small


def made_anew(kind, every, n=60):
    model = net()
    optimizer = first = kind(model.parameters(), 1e-2)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=first) as stats:
        for i, (x, y) in enumerate(batches(n)):
            if i % every == 0 and i: optimizer = kind(model.parameters(), 1e-2)
            stats.step(step(model, optimizer, x, y))
    return found(stats)


def test_an_optimizer_that_is_made_anew():
    text = made_anew(torch.optim.Adam, 10)["optimizer made anew"].evidence
    assert "5 different Adam" in text and "10 steps" in text
    assert not made_anew(torch.optim.Adam, 25)  # parts are thawed
    assert not made_anew(torch.optim.SGD, 10)  # it has nothing to forget


@pytest.mark.parametrize("clears", ["each batch", "after the step"])
def test_steps_that_come_too_seldom(clears):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(60), 1):
            if clears == "each batch": optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if i % 5 == 0:
                optimizer.step()
                optimizer.zero_grad()
            stats.step(loss)
    said = found(stats)
    assert ("gradients thrown away" in said) == (clears == "each batch")
    if said: assert "only 12 had" in said["gradients thrown away"].evidence


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("clears", ["each batch", "after the step"])
def test_gathered_gradients_that_are_cleared_behind_each_batch(clears, to_none):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(60), 1):
            loss = F.cross_entropy(model(x), y)/4
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            if i % 4 == 0: optimizer.step()
            if i % 4 == 0 or clears == "each batch": optimizer.zero_grad(set_to_none=to_none)
            stats.step(loss.item())
    said = found(stats)
    assert set(said) == ({"gradients thrown away"} if clears == "each batch" else set())
    if said: assert "only 15 had" in said["gradients thrown away"].evidence


def two_players(steps, loss_of_d=lambda model, x: (model["d"](x)**2).mean(), n=40):
    "A generator and a judge with an optimizer each; `steps` of these make their step."
    torch.manual_seed(0)
    model = nn.ModuleDict({"g": nn.Linear(6, 6), "d": nn.Linear(6, 1)})
    both = of_g, of_d = [torch.optim.Adam(part.parameters(), lr=.01) for part in model.values()]
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=both) as stats:
        for x, _ in batches(n):
            for name, optimizer, loss in (("g", of_g, -model["d"](model["g"](x)).mean()),
                                          ("d", of_d, loss_of_d(model, x))):
                for one in both: one.zero_grad()
                loss.backward()
                {"g": of_g, "d": optimizer if "d" in steps else of_g}[name].step()
            stats.step()
    return found(stats)


def test_one_of_two_optimizers_makes_no_step():
    text = two_players("g")["no step"].evidence
    assert "Optimizer 2 of 2, the Adam of d.weight, d.bias, made no step" in text and "another one made 40." in text
    assert "no step" not in two_players("gd")


@pytest.mark.parametrize("gives", ["loss", "number"])
@pytest.mark.parametrize("calls", [False, True])
def test_backward_is_never_called(calls, gives):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if calls: loss.backward()
            optimizer.step()
            stats.step(loss if gives == "loss" else loss.item())
    said = found(stats)
    assert ("step before backward" in said) == (gives == "loss" and not calls)
    if said: assert "20 steps" in said["step before backward"].evidence


def test_a_loss_of_another_model_does_not_lead_back():
    model, other = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(10): stats.step(step(lambda x: other(x) + 0*model(x).detach(), optimizer, x, y))
    assert "step before backward" not in found(stats) and stats.facts.loss_leads is False


@pytest.mark.parametrize("steps", ["each", "once more", "with the others", "and is never cleared"])
def test_steps_while_gathering(steps):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.02)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(40), 1):
            loss = F.cross_entropy(model(x), y)/4
            loss.backward()
            if i % 4 == 0 or steps in ("each", "and is never cleared"): optimizer.step()
            if i % 4 == 0 and steps != "and is never cleared": optimizer.zero_grad()
            if steps == "once more": optimizer.step()
            stats.step(loss)
    said = found(stats)
    names = {"with the others": set(), "and is never cleared": {"no zero_grad"}}
    assert set(said) == names.get(steps, {"steps while gathering"})
    if steps == "each": assert "In 29 of 40" in (text := said["steps while gathering"].evidence) and "every 4th" in text


@pytest.mark.parametrize("dtype, eps, is_lost", [
    (torch.float16, 1e-8, True), (torch.float16, 1e-4, False), (torch.bfloat16, 1e-8, False),
    (torch.float32, 1e-8, False)])
def test_the_eps_of_an_optimizer(dtype, eps, is_lost):
    model = net().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(6): stats.step(step(model, optimizer, x.to(dtype), y))
    assert ("epsilon is lost" in found(stats)) == is_lost


def guarded(x, y, small, dtype): return (x.relu().to(dtype) + small).log().float().square().mean()


def limited(x, y, small, dtype): return -(1 - x.sign().to(dtype).clamp(small, 1 - small)).log().float().mean()


@pytest.mark.parametrize("loss, small, dtype, is_lost", [
    (guarded, 1e-8, torch.float16, True), (guarded, 1e-6, torch.float16, False),
    (guarded, 1e-8, torch.float32, False), (limited, 1e-8, torch.float32, True), (limited, 1e-6, torch.float32, False)])
def test_preflight_sees_a_guard_that_is_lost(loss, small, dtype, is_lost):
    data = [*batches(2)]
    found = hl.preflight(net(), partial(loss, small=small, dtype=dtype), data, overfit=False)
    assert ("epsilon is lost" in found) == is_lost


def test_two_players_throw_nothing_away():
    "The gradients that the first loss gives the second player are cleared before its own."
    torch.manual_seed(0)
    model = nn.ModuleDict({"g": nn.Linear(6, 6), "d": nn.Linear(6, 1)})
    of_g, of_d = (torch.optim.SGD(part.parameters(), lr=.01) for part in model.values())
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=[of_g, of_d]) as stats:
        for x, _ in batches(40):
            for optimizer, loss in (of_g, lambda x=x: -model["d"](model["g"](x)).mean()), (of_d, lambda x=x:
                                    (model["d"](x)**2).mean()):
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
                stats.step()
    assert "gradients thrown away" not in found(stats)


def validated(mode, batches_of_validation=4, every=10, p=.5):
    model = net(p=p)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(60)):
            if i % every == 5:
                model.train(mode == "train")
                with torch.no_grad(): _ = [model(x) for _ in range(batches_of_validation)]
                model.train()
            stats.step(step(model, optimizer, x, y))
    return stats


def test_validation_in_train_mode():
    assert "In 6 of 60 steps" in (said := found(validated("train"))["train mode"].evidence) and "24 times" in said
    assert not found(validated("eval"))
    assert not found(validated("train", every=1, batches_of_validation=2))  # a player, or a target
    assert notes(validated("train", 1)) == {"train mode"} and not found(validated("train", 1))
    assert not found(validated("train", p=0.))


class Writer(nn.Module):
    "A model that is tested by a method, and not by its forward."
    def __init__(self, p):
        super().__init__()
        self.body, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(p), nn.Linear(16, 3)

    def forward(self, x): return self.last(self.drop(self.body(x).tanh()))
    def write(self, x): return self.last(self.drop(self.body(x).tanh())).argmax(1)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_method_that_is_called_in_train_mode(mode):
    model = Writer(.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(60)):
            if i % 10 == 5:
                model.train(mode == "train")
                with torch.inference_mode(): _ = [model.write(x) for _ in range(4)]
                model.train()
            stats.step(step(model, optimizer, x, y))
    assert ("train mode" in found(stats)) == (mode == "train")
    if mode == "train": assert "24 times" in found(stats)["train mode"].evidence


def after_training(then, norm=False, p=.5, others=()):
    model = net(norm, p)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    stats = hl.ActivationStats.for_diagnosis()
    with stats.on(model, optimizer=[optimizer, *others]):
        for x, y in batches(30): stats.step(step(model, optimizer, x, y))
    then(model, optimizer)
    return stats, model


def test_a_test_behind_the_record():
    x, y = next(batches(1))
    @torch.no_grad()
    def test(model, _): model(x)
    def in_eval(model, _): test(model.eval(), _)
    def goes_on(model, optimizer): step(model, optimizer, x, y)
    stats, model = after_training(test, norm=True)
    assert "have changed" in found(stats)["train mode"].evidence
    assert model.training
    for then in in_eval, goes_on:
        stats, model = after_training(then, norm=True)
        assert not found(stats) and "train mode" not in notes(stats)
    stats, model = after_training(test)  # a layer of dropout has no memory of it
    assert "train mode" not in notes(stats)


@pytest.mark.filterwarnings("ignore::hooklab.HookWarning")
@pytest.mark.parametrize("several", [False, True])
def test_a_generator_is_used_in_train_mode(several):
    "Of two players that have optimizers of their own, one may make samples behind the record as it did in training."
    x, _ = next(batches(1))
    @torch.no_grad()
    def makes(model, _): model(x)
    others = [torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=.1)]*several
    stats, _ = after_training(makes, norm=True, others=others)
    assert ("train mode" in found(stats)) != several and ("train mode" in notes(stats)) == several


@pytest.mark.parametrize("part, says", [("dropout", "likely"), ("norm", "note"), ("frozen", None)])
def test_a_part_that_rests_in_eval_mode(part, says):
    model = nn.ModuleDict({"body": net(norm=part == "norm", p=0. if part == "norm" else .5), "head": nn.Linear(3, 3)})
    model["body"].eval()
    if part == "frozen": model["body"].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=.1)
    def both(x): return model["head"](model["body"](x))
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(30): stats.step(step(both, optimizer, x, y))
    said = [f.sure for f in hl.diagnose(stats) if f.what == "part in eval mode"]
    assert said == ([says] if says else [])


def parameters(copy, model):
    for old, new in zip(copy.parameters(), model.parameters()): old.lerp_(new, .1)


def everything(copy, model):
    parameters(copy, model)
    for old, new in zip(copy.buffers(), model.buffers()): old.copy_(new)


def with_average(net, average):
    "A model that holds the network that is trained and its average."
    return nn.ModuleDict({"net": net, "average": average})


def followed(update, norm=True):
    trained = net(norm)
    average, optimizer = deepcopy(trained).eval(), torch.optim.SGD(trained.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(with_average(trained, average), optimizer=optimizer) as stats:
        for x, y in batches(30):
            stats.step(step(trained, optimizer, x, y))
            with torch.no_grad(): update(average, trained)
    return stats


def test_copies():
    assert not found(followed(everything)) and not notes(followed(everything))
    text = found(followed(parameters))["statistics stay behind"].evidence
    assert "`average`, a copy of `net`, gets new" in text and "average.1.running_mean" in text
    assert not found(followed(parameters, norm=False))
    first = followed(lambda copy, model: parameters(copy[0], model[0]), norm=False)
    text = found(first)["copy does not follow"].evidence
    assert "2 of its 4" in text and "average.3.weight, average.3.bias haven't" in text
    itself = followed(lambda copy, model: copy.load_state_dict(copy.state_dict()), norm=False)
    assert not found(itself) and notes(itself) == {"copy does not follow"}


def test_a_copy_that_the_record_was_not_given_is_not_looked_for():
    model = net(norm=True)
    optimizer, average = torch.optim.SGD(model.parameters(), lr=.1), deepcopy(model)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(30):
            stats.step(step(model, optimizer, x, y))
            with torch.no_grad(): parameters(average, model)
    assert not stats.facts.copies and not found(stats)


@pytest.mark.parametrize("copy, model, share, is_found", [
    (torch.bfloat16, torch.bfloat16, .001, True), (torch.float16, torch.float32, 1e-4, True),
    (torch.float32, torch.bfloat16, .005, False), (torch.float32, torch.float32, 1e-4, False),
    (torch.bfloat16, torch.float32, 1., False)])                                # a copy in each step
@pytest.mark.parametrize("counted", [True, False])
def test_an_average_in_16_bits(copy, model, share, is_found, counted):
    trained = net().to(model)
    optimizer, average = torch.optim.Adam(trained.parameters(), lr=.02), deepcopy(trained).to(copy)
    with hl.ActivationStats.for_diagnosis().on(with_average(trained, average), optimizer=optimizer) as stats:
        for x, y in batches(40):
            stats.step(step(trained, optimizer, x.to(model), y))
            with torch.no_grad():
                for old, new in zip(average.parameters(), trained.parameters()):
                    (old if counted else old.data).lerp_(new.to(old.dtype), share)
    said = [f.evidence for f in hl.diagnose(stats) if f.what == "lost in rounding"]
    assert bool(said) == is_found
    if said: assert ("was updated 40 times" in said[0]) == counted


@pytest.mark.slow
def test_an_average_of_torch_is_a_note():
    model = net(norm=True)
    optimizer, average = torch.optim.SGD(model.parameters(), lr=.1), torch.optim.swa_utils.AveragedModel(model)
    average.eval()
    with hl.ActivationStats.for_diagnosis().on(with_average(model, average), optimizer=optimizer) as stats:
        for x, y in batches(30):
            stats.step(step(model, optimizer, x, y))
            average.update_parameters(model)
    assert not found(stats) and not notes(stats)  # it takes the statistics of the model with each update


def in_one_model(rival, trained_too):
    model = with_average(net(), rival)
    given = model if trained_too else model["net"]
    optimizer = torch.optim.SGD(given.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for x, y in batches(25):
            loss = step(model["net"], optimizer, x, y) + 0*rival(x).sum().detach()
            stats.step(loss)
    return found(stats), notes(stats), stats.facts.copies


def test_parts_that_are_no_copies():
    rival = net()
    nn.init.normal_(rival[0].weight)
    assert in_one_model(rival, trained_too=False)[2] == {}
    assert in_one_model(net(), trained_too=True)[2] == {}  # layers of a transformer begin as copies, too


def test_copies_of_older_records_are_judged_as_before():
    stats = followed(everything, norm=False)
    before = {"part": "", "type": "Sequential", "training": False, "averaged": False, "got": False, "dtype": "float32",
              "writes": 0, "stays": None, "moved": {"0.weight": True, "3.weight": False},
              "model_moved": {"0.weight": True, "3.weight": True}}
    older = {"copies": {"0": before}, "kept": {"best": {"kind": "a state dict", "n": 2}},
             "schedules": {"0": {"type": "StepLR", "mine": False, "calls": 9, "before": 0, "planned": None,
                                 "base": .1}},
             "rates_beside": {"copy": [.2], "places": {}},
             "own_schedules": {"0": {"type": "Noam", "steps": True, "rests": True}}}
    stats._facts = facts_from(RunFacts, plain_facts(stats.facts) | older)
    assert "A copy of the model is only partly updated" in found(stats)["copy does not follow"].evidence
    assert found(stats).keys() == {"copy does not follow"} and "kept without a copy" not in hl.diagnose(stats)

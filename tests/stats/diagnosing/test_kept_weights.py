"Weights that a loop keeps for later and that are those of the model, and what it may hold of the model."
from collections import deque
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.measure.kept import of_an_earlier_time

pytestmark = pytest.mark.usefixtures("one_thread")
KEPT = "kept without a copy"


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, torch.optim.SGD(model.parameters(), lr=.05)


def one_epoch(model, optimizer, stats, n=5):
    for _ in range(n):
        x = torch.randn(8, 6)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stats.step(loss)
    return loss.item()


def sure_of(stats): return {f.evidence.split("`")[1]: f.sure for f in hl.diagnose(stats) if f.what == KEPT}


def record(model, optimizer): return hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer)


def in_a_variable(model, optimizer, keep):
    least, best = 9., None
    with record(model, optimizer) as stats:
        for _ in range(4):
            loss = one_epoch(model, optimizer, stats)
            if best is None or loss < least: least, best = loss, keep(model)
    return stats


class Trainer:
    def __init__(self, model, optimizer, keep):
        self.model, self.optimizer, self.keep, self.best = model, optimizer, keep, {"loss": 9.}

    def validate(self, loss):
        if loss < self.best["loss"]: self.best = {"loss": loss, "weights": self.keep(self.model)}

    def fit(self):
        with record(self.model, self.optimizer) as stats:
            for _ in range(4): self.validate(one_epoch(self.model, self.optimizer, stats))
        return stats


def in_a_trainer(model, optimizer, keep): return Trainer(model, optimizer, keep).fit()


def of_the_last_ones(model, optimizer, keep):
    states = deque(maxlen=3)
    with record(model, optimizer) as stats:
        for _ in range(5):
            one_epoch(model, optimizer, stats)
            states.append(keep(model))
    return stats


def epochs(model, optimizer, stats, keep):
    for _ in range(4):
        old_weights = keep(model)
        one_epoch(model, optimizer, stats)
        yield old_weights


def in_a_generator(model, optimizer, keep):
    with record(model, optimizer) as stats:
        for _ in epochs(model, optimizer, stats, keep): pass
    return stats


def state(model): return model.state_dict()


def listed(model): return list(model.parameters())


def data(model): return [p.data for p in model.parameters()]


def named(model): return dict(model.named_parameters())


@pytest.mark.parametrize("way, keep, where", [
    (in_a_variable, state, "best"), (in_a_variable, data, "best"), (in_a_trainer, state, "self.best['weights']"),
    (in_a_trainer, named, "self.best['weights']"), (of_the_last_ones, state, "states"),
    (in_a_generator, listed, "old_weights"), (in_a_generator, named, "old_weights")])
def test_weights_that_are_kept_without_a_copy(way, keep, where):
    assert sure_of(way(*parts(), keep)) == {where: "likely"}


def test_the_model_itself_may_be_the_best_by_name():
    assert sure_of(in_a_variable(*parts(), lambda model: model)) == {"best": "note"}


def cloned(model): return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("keep", [lambda m: deepcopy(m.state_dict()), deepcopy, cloned,
                                  lambda m: {name: x.clone() for name, x in m.state_dict().items()}])
@pytest.mark.parametrize("way", [in_a_variable, in_a_trainer, of_the_last_ones, in_a_generator])
def test_copies_are_fine(way, keep):
    assert not sure_of(way(*parts(), keep))


def test_a_loop_may_hold_the_parameters(tmp_path):
    model, optimizer = parts()
    params, old_part, moving = list(model.parameters()), list(model[0].parameters()), state(model)
    average = [p.detach().clone() for p in params]
    with record(model, optimizer) as stats:
        for _ in range(4):
            loss = one_epoch(model, optimizer, stats)
            checkpoint = {"model": state(model), "loss": loss}
            torch.save(checkpoint, tmp_path/"last.pt")
            for mean, p in zip(average, params): mean.lerp_(p.detach(), .1)
    assert not sure_of(stats) and len(old_part) == 2 and moving


@pytest.mark.parametrize("name, is_one", [
    ("best", True), ("self.bestState", True), ("theta_star", True), ("run['old_params']", True), ("params", False),
    ("restart", False), ("shadow", False), ("last_layer", False)])
def test_names_of_an_earlier_time(name, is_one): assert of_an_earlier_time(name) == is_one

"A generator that yields losses, as fast as they are asked for; what it needs is in a state beside it."
from types import SimpleNamespace

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 6, 7
STATES = {"model": ("model",), "optimizer": ("optimizer",), "order": ("order", "batches"), "at": ("at", *ORDER),
          "shuffle": ("shuffle", "generator", *ORDER)}
CONSEQUENCES = {"order": ORDER}


def losses(state):
    while True:
        if state.at >= len(state.order):
            state.order, state.at = torch.randperm(len(state.x), generator=state.shuffle).tolist(), 0
        rows = state.order[state.at:state.at + 6]
        state.optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(state.model(state.x[rows]), state.x[rows].cumsum(1))
        loss.backward()
        nn.utils.clip_grad_norm_(state.model.parameters(), 1.)
        state.optimizer.step()
        state.at += 6
        yield loss.item()


def make():
    made = torch.Generator().manual_seed(8)
    model = nn.Linear(7, 7)
    state = SimpleNamespace(model=model, optimizer=torch.optim.Adagrad(model.parameters(), .1), at=0, order=[],
                            x=torch.randn(24, 7, generator=made), shuffle=torch.Generator().manual_seed(9))
    return SimpleNamespace(state=state, losses=losses(state))


def step(run): return next(run.losses)


def save(run, without=()):
    s = run.state
    return but({"model": s.model.state_dict(), "optimizer": s.optimizer.state_dict(), "order": s.order, "at": s.at,
                "shuffle": s.shuffle.get_state()}, without)


def load(run, saved):
    s = run.state
    if "model" in saved: s.model.load_state_dict(saved["model"])
    if "optimizer" in saved: s.optimizer.load_state_dict(saved["optimizer"])
    if "shuffle" in saved: s.shuffle.set_state(saved["shuffle"])
    s.order, s.at = saved.get("order", s.order), saved.get("at", s.at)
    return run

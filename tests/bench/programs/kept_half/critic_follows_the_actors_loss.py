"""The losses of an actor and a critic are added, so the critic learns to praise the actor's actions.

The report, by the maintainer: one sequence model feeds both, and as the actor's loss goes through the critic, one
backward pass of the sum also raises the critic's outputs, whatever the action is worth. The merged change goes back
through the actor's loss first and clears the critic's gradients before it goes through the critic's own."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "UT-Austin-RPL/amago#27", 2024
AREA, CAUSE = "loop", "gradient where none is meant"
TRUE = {"saturated", "constant output", "outputs blow up"}
PLACE = ("critic",)


class Agent(nn.Module):
    "A short history becomes a state, the state an action, and both a value."
    def __init__(self):
        super().__init__()
        self.history = nn.GRU(3, 32, batch_first=True)
        self.actor = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(34, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def state(self, seen): return self.history(seen)[1][0]

    def value(self, state, action): return self.critic(torch.cat([state, action], 1)).squeeze(1)


def best(seen): return torch.stack([seen[:, 0, 0], seen[:, :, 1].mean(1)], 1).mul(1.5).tanh()


def plays(n: int):
    "What was seen, an action at random, and its reward: higher the nearer it is to the best one."
    seen, action = torch.randn(n, 5, 3), 2*torch.rand(n, 2) - 1
    return seen, action, 1 - ((action - best(seen))**2).sum(1)


def losses(model, batch):
    seen, action, reward = batch
    state = model.state(seen)
    return -model.value(state, model.actor(state)).mean(), F.mse_loss(model.value(state, action), reward)


def build(repaired: bool) -> Parts:
    model = Agent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, [plays(64) for _ in range(400)], call=lambda model, batch: sum(losses(model, batch)),
                 valid=[plays(1024)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for batch in parts.data:
            of_actor, of_critic = losses(model, batch)
            optimizer.zero_grad()
            if parts.repaired:
                of_actor.backward(retain_graph=True)
                model.critic.zero_grad()
                of_critic.backward()
            else: (of_actor + of_critic).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.)
            optimizer.step()
            record.step(of_actor + of_critic)
    seen = parts.valid[0][0]
    with torch.no_grad(): return (F.mse_loss(model.actor(model.state(seen)), best(seen))/best(seen).var()).item()

"""The optimizer for the value of a state is made with the parameters of the world model, copied from two lines above.

The report is a change that the author merged, surprised to have missed it: the list of modules of the value is made and
used for clipping, but the optimizer gets the list of the model. So the value never moves, and as this optimizer clears
its gradients after the backward pass of the model, the model does not move either."""
import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "juliusfrost/dreamer-pytorch#79", 2020
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"not in the optimizer", "twice in the optimizers", "not trained", "gradients thrown away"}
PLACE = ("value", "transition", "reward")

horizon, discount = 4, .85


def network(before: int, after: int, size: int = 48):
    return nn.Sequential(nn.Linear(before, size), nn.ELU(), nn.Linear(size, size), nn.ELU(), nn.Linear(size, after))


class Agent(nn.Module):
    "A model of the world, which says where an action leads and what is paid there; an actor; a value."
    def __init__(self):
        super().__init__()
        self.transition, self.reward, self.actor, self.value = (network(*n) for n in [(3, 2), (2, 1), (2, 1), (2, 1)])

    def after(self, state, action): return state + self.transition(torch.cat([state, action], 1))


@contextlib.contextmanager
def frozen(*parts):
    for part in parts: part.requires_grad_(False)
    yield
    for part in parts: part.requires_grad_(True)


def after(state, action):
    "A cart on a line, which is paid for being at one place."
    where, speed = state.unbind(1)
    speed = .8*speed + .3*action[:, 0]
    return torch.stack([(where + speed).clamp(-2, 2), speed], 1)


def paid(state): return (-3*(state[:, :1] - 1)**2).exp()


def starts(n: int): return torch.stack([torch.rand(n)*4 - 2, .5*torch.randn(n)], 1)


def losses(agent, batch):
    "The loss of the model on what happened; those of actor and value on what the model imagines from there."
    state, action, following, reward = batch
    model_loss = F.mse_loss(agent.after(state, action), following) + F.mse_loss(agent.reward(following), reward)
    states, returns = [state], []
    with frozen(agent.transition, agent.reward, agent.value):
        for _ in range(horizon): states.append(agent.after(states[-1], agent.actor(states[-1]).tanh()))
        reached = agent.value(states[-1])
        for s in states[:0:-1]:
            reached = agent.reward(s) + discount*reached
            returns.insert(0, reached)
    value_loss = F.mse_loss(agent.value(torch.cat(states[:-1]).detach()), torch.cat(returns).detach())
    return model_loss, -torch.cat(returns).mean(), value_loss


def build(repaired: bool) -> Parts:
    agent, data = Agent(), []
    for _ in range(250):
        state, action = starts(64), torch.rand(64, 1)*2 - 1
        data.append((state, action, after(state, action), paid(after(state, action))))
    model, value = nn.ModuleList([agent.transition, agent.reward]).parameters, agent.value.parameters
    groups = (model, 4e-3), (agent.actor.parameters, 3e-4), (value if repaired else model, 1e-3)
    optimizers = [torch.optim.Adam(parameters(), lr) for parameters, lr in groups]
    return Parts(agent, optimizers, data, call=lambda agent, batch: sum(losses(agent, batch)))


def train(parts: Parts, record) -> float:
    agent = parts.model
    with record.on(agent, parts.optimizer):
        for batch in parts.data:
            found = losses(agent, batch)
            for loss, optimizer in zip(found, parts.optimizer):
                optimizer.zero_grad()
                loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 100.)
            for optimizer in parts.optimizer: optimizer.step()
            record.step(sum(found))
    state, total = starts(500), 0.
    with torch.no_grad():
        for _ in range(20):
            state = after(state, agent.actor(state).tanh())
            total += paid(state).mean().item()
    return 1 - total/20

"""A policy and its value function are trained by clipped ratios on a pole that stands on a cart.

Habits of the source: orthogonal weights, those of the policy's last layer almost zero; the rate falls in a straight
line to almost zero, written into the optimizer; Adam with a large epsilon; four epochs over each rollout in mixed
order; advantages normalized in each small batch; clipped values; an entropy bonus; gradients clipped at 0.5.
Score: the part of 100 steps that the pole does not stand. About 0; .9 for the untrained policy."""
import torch
from torch import nn
from torch.distributions import Categorical

from tests.bench.programs import Parts

SOURCE, YEAR = "vwxyzjn/cleanrl cleanrl/ppo.py", 2022
POLES, STEPS, UPDATES, RATE = 16, 32, 40, 2e-3


def layer(wide_in: int, wide_out: int, gain: float = 2**.5):
    made = nn.Linear(wide_in, wide_out)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.))
        self.actor = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, .01))


def start(n: int): return .1*torch.rand(n, 4) - .05


def push(state, right):
    "The state 0.02 s later, and whether the pole fell or the cart left the track."
    x, v, angle, turn = state.unbind(1)
    sine, cosine = angle.sin(), angle.cos()
    pressed = (20*right - 10 + .05*turn**2*sine)/1.1
    twist = (9.8*sine - cosine*pressed)/(.5*(4/3 - .1*cosine**2/1.1))
    state = torch.stack([x + .02*v, v + .02*(pressed - .05*twist*cosine/1.1), angle + .02*turn, turn + .02*twist], 1)
    return state, (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > .2095)


@torch.no_grad()
def rollout(agent, state, steps: int = STEPS):
    "What was seen and done, with advantages that do not go on after an end; and the states to go on from."
    kept = []
    for _ in range(steps):
        policy = Categorical(logits=agent.actor(state))
        action = policy.sample()
        after, ended = push(state, action)
        kept.append((state, action, policy.log_prob(action), agent.critic(state)[:, 0], (~ended).float()))
        state = torch.where(ended[:, None], start(len(state)), after)
    worth, gain, gains = agent.critic(state)[:, 0], 0, []
    for _, _, _, value, goes_on in reversed(kept):
        gain = 1 + .99*worth*goes_on - value + .99*.95*goes_on*gain
        worth = value
        gains.insert(0, gain)
    seen, action, chance, value, _ = (torch.cat(column) for column in zip(*kept))
    return (seen, action, chance, value, torch.cat(gains)), state


def clipped_loss(agent, batch):
    seen, action, chance, value, gain = batch
    policy, now = Categorical(logits=agent.actor(seen)), agent.critic(seen)[:, 0]
    ratio = (policy.log_prob(action) - chance).exp()
    scaled = (gain - gain.mean())/(gain.std() + 1e-8)
    of_policy = torch.max(-scaled*ratio, -scaled*ratio.clamp(.8, 1.2)).mean()
    sums = gain + value
    near = value + (now - value).clamp(-.2, .2)
    of_value = .5*torch.max((now - sums)**2, (near - sums)**2).mean()
    return of_policy - .01*policy.entropy().mean() + .5*of_value


def build(repaired: bool) -> Parts:
    agent = Agent()
    data = [rollout(agent, start(POLES))[0] for _ in range(4)]
    return Parts(agent, torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5), data, call=clipped_loss)


def train(parts: Parts, record) -> float:
    agent, optimizer, state = parts.model, parts.optimizer, start(POLES)
    with record.on(agent, optimizer):
        for update in range(UPDATES):
            optimizer.param_groups[0]["lr"] = RATE*(1 - update/UPDATES)
            batch, state = rollout(agent, state)
            for _ in range(4):
                for rows in torch.randperm(POLES*STEPS).chunk(4):
                    loss = parts.call(agent, [column[rows] for column in batch])
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), .5)
                    optimizer.step()
                    record.step(loss)
    state, stands, lasted = start(128), torch.ones(128, dtype=torch.bool), 0
    for _ in range(100):
        with torch.no_grad(): state, down = push(state, agent.actor(state).argmax(1))
        stands &= ~down
        lasted += stands.float().mean().item()
    return 1 - lasted/100

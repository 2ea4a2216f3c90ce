"""Rollouts are joined end to end and viewed as (steps, rollouts), so the memory of a policy jumps between them.

The report, on a recurrent policy: a batch is made by `cat` of whole rollouts, and `view` puts the first steps of one
rollout beside each other as if they were several rollouts. It should be stacked along the second dimension. The author
confirmed it. While acting, the policy sees one step at a time, and all is right."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ikostrikov/pytorch-a2c-ppo-acktr-gail#97", 2018
AREA, CAUSE = "structure", "samples leak"
TRUE = {"places mixed up"}
PLACE = ("gru",)

cues, steps, envs = 4, 5, 32


class Policy(nn.Module):
    "A memory, the odds of the actions and the value of the state. All steps come flat, step by step."
    def __init__(self, size: int):
        super().__init__()
        self.gru, self.actor, self.critic = nn.GRU(cues, size), nn.Linear(size, cues), nn.Linear(size, 1)

    def forward(self, x, state):
        x, state = self.gru(x.view(-1, state.shape[1], cues), state)
        x = x.flatten(0, 1)
        return self.actor(x), self.critic(x)[:, 0], state

    def start(self, n: int): return torch.zeros(1, n, self.gru.hidden_size)


def collect(policy):
    "Each place shows a cue in its first step, and pays 1 for each step in which the action is that cue."
    cue, state = torch.randint(0, cues, (envs,)), policy.start(envs)
    kept = []
    for step in range(steps):
        x = .2*torch.randn(envs, cues) + (F.one_hot(cue, cues) if step == 0 else 0)
        with torch.no_grad(): logits, value, state = policy(x, state)
        choice = torch.distributions.Categorical(logits=logits)
        action = choice.sample()
        kept.append((x, action, choice.log_prob(action), value))
    seen, actions, odds, values = (torch.stack(one) for one in zip(*kept))
    rewards = (actions == cue).float()
    returns = rewards.flip(0).cumsum(0).flip(0)
    gain = returns - values
    gain = (gain - gain.mean())/(gain.std() + 1e-5)
    return [seen, actions, odds, returns, gain], rewards.mean().item()


def batches(rollouts, repaired: bool, size: int = 8):
    "Some whole rollouts at a time, flat."
    for chosen in torch.randperm(envs).split(size):
        parts = [[tensor[:, i] for i in chosen.tolist()] for tensor in rollouts]
        yield tuple(torch.stack(p, 1).flatten(0, 1) if repaired else torch.cat(p) for p in parts)


def clipped(policy, batch):
    x, action, odds, returns, gain = batch
    logits, value, _ = policy(x, policy.start(len(x)//steps))
    choice = torch.distributions.Categorical(logits=logits)
    ratio = (choice.log_prob(action) - odds).exp()
    policy_loss = -torch.minimum(ratio*gain, ratio.clamp(.8, 1.2)*gain).mean()
    return policy_loss + .5*F.mse_loss(value, returns) - .01*choice.entropy().mean()


def build(repaired: bool) -> Parts:
    policy = Policy(32)
    data = [batch for _ in range(3) for batch in batches(collect(policy)[0], repaired)]
    return Parts(policy, torch.optim.Adam(policy.parameters(), lr=3e-3), data, call=clipped, repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(45):
            rollouts, _ = collect(parts.model)
            for _ in range(2):
                for batch in batches(rollouts, parts.repaired):
                    loss = parts.call(parts.model, batch)
                    parts.optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
                    parts.optimizer.step()
                    record.step(loss)
    return 1 - sum(collect(parts.model)[1] for _ in range(10))/10

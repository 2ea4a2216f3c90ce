"""The advantages of a policy gradient are a column, the ratios are a row, and each ratio meets each advantage.

The report: the surrogate of PPO has the shape (batch, batch). The author showed in a grid world that rewards grow much
faster once the advantages are flattened."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "RITCHIEHuang/DeepRL_Algorithms#13", 2021
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = set()
PLACE = ()

moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, seen): return torch.distributions.Categorical(logits=self.actor(seen)), self.critic(seen)


@torch.no_grad()
def play(agent, many: int = 64, turns: int = 8):
    "Walks in a grid of five by five; the reward is how much nearer the goal is. Also returns how far it is at last."
    place, goal = torch.randint(5, (2, many, 2))
    seen, actions, chances, values, rewards = [], [], [], [], []
    for _ in range(turns):
        seen.append(torch.cat([place - 2, goal - place], 1)/2)
        policy, value = agent(seen[-1])
        actions.append(policy.sample())
        chances.append(policy.log_prob(actions[-1]))
        values.append(value)
        far = (goal - place).abs().sum(1, keepdim=True)
        place = (place + moves[actions[-1]]).clamp(0, 4)
        rewards.append((far - (goal - place).abs().sum(1, keepdim=True)).float())
    advantages, advantage, after = [], 0, 0
    for value, reward in zip(reversed(values), reversed(rewards)):
        advantage = reward + .95*after - value + .9*advantage
        after = value
        advantages.insert(0, advantage)
    advantages, values = torch.cat(advantages), torch.cat(values)
    normed = (advantages - advantages.mean())/advantages.std()
    far = (goal - place).abs().sum(1).float().mean()
    return [torch.cat(seen), torch.cat(actions), torch.cat(chances), normed, advantages + values], far.item()


def build(repaired: bool) -> Parts:
    agent = Agent()

    def call(model, batch):
        seen, actions, chances, advantages, returns = batch
        policy, values = model(seen)
        ratio = (policy.log_prob(actions) - chances).exp()
        if repaired: advantages = advantages.reshape(-1)
        gained = torch.min(ratio*advantages, ratio.clamp(.8, 1.2)*advantages).mean()
        return .5*F.mse_loss(values, returns) - gained - .01*policy.entropy().mean()

    data = list(zip(*(part.split(128) for part in play(agent)[0])))
    return Parts(agent, torch.optim.Adam(agent.parameters(), lr=3e-3), data, call=call)


def train(parts: Parts, record) -> float:
    guess = sum(play(Agent())[1] for _ in range(8))
    with record.on(parts.model, parts.optimizer):
        for _ in range(30):
            walks = play(parts.model)[0]
            for _ in range(4):
                for rows in torch.randperm(512).split(128):
                    loss = parts.call(parts.model, [part[rows] for part in walks])
                    parts.optimizer.zero_grad()
                    loss.backward()
                    parts.optimizer.step()
                    record.step(loss)
    return sum(play(parts.model)[1] for _ in range(8))/guess

"""A recurrent policy has to remember a cue until the corridor ends; actor and critic share the net.

Habits of the source: five moves of many rooms at once for a step; the state of the GRU goes from one rollout to the
next without its graph, and a mask sets it to zero where an episode begins; when learning, the rollout is read again
from its first state; returns begin with the critic's value; orthogonal weights with a gain for each kind of layer, .01
for the policy; RMSprop with an epsilon of .00001; three losses in one, clipping at .5; the rate falls in a line.
Score: the part of wrong turns of new episodes. Below .1; about .5 for the untrained model."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "ikostrikov/pytorch-a2c-ppo-acktr-gail main.py", 2017
ROOMS, MOVES, LONG, UPDATES = 32, 5, 4, 350


def layer(n: int, out: int, gain: float):
    made = nn.Linear(n, out)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 32)
        for name, weight in self.gru.named_parameters():
            nn.init.zeros_(weight) if "bias" in name else nn.init.orthogonal_(weight)
        self.actor = nn.Sequential(layer(32, 32, 2**.5), nn.Tanh(), layer(32, 3, .01))
        self.critic = nn.Sequential(layer(32, 32, 2**.5), nn.Tanh(), layer(32, 1, 1))

    def forward(self, seen, state, mask):
        "Actions' distribution and values for moves of many rooms; the state is wiped where the mask is 0."
        outputs = []
        for step, alive in zip(seen, mask):
            out, state = self.gru(step[None], state*alive[:, None])
            outputs.append(out[0])
        h = torch.stack(outputs)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(2), state


class Rooms:
    "A cue at first, then a corridor, then the turn: actions are on, left and right."
    def __init__(self, n: int):
        self.cue, self.time = torch.randint(2, (n,)), torch.randint(LONG, (n,))

    def seen(self):
        first, last = self.time == 0, self.time == LONG - 1
        return torch.stack([first & (self.cue == 0), first & (self.cue == 1), ~first & ~last, last], 1).float()

    def move(self, action):
        "The reward, and 0 where the next thing seen begins an episode."
        last = self.time == LONG - 1
        reward = torch.where(last, 2.*(action == self.cue + 1) - 1, -.1*(action != 0).float())
        self.time = torch.where(last, 0, self.time + 1)
        self.cue = torch.where(last, torch.randint(2, self.cue.shape), self.cue)
        return reward, (~last).float()


@torch.no_grad()
def rollout(policy, rooms, state, mask):
    "What the loss needs, and the state and mask to go on with."
    first, kept = state, []
    for _ in range(MOVES):
        seen = rooms.seen()
        chances, _, state = policy(seen[None], state, mask[None])
        action = chances.sample()[0]
        reward, alive = rooms.move(action)
        kept.append((seen, mask, action, reward, alive))
        mask = alive
    seen, masks, actions, rewards, alive = (torch.stack(column) for column in zip(*kept))
    value, returns = policy(rooms.seen()[None], state, mask[None])[1][0], []
    for reward, goes_on in zip(rewards.flip(0), alive.flip(0)):
        value = reward + .99*goes_on*value
        returns.append(value)
    return (seen, first, masks, actions, torch.stack(returns[::-1])), state, mask


def call(policy, batch):
    seen, first, masks, actions, returns = batch
    chances, values, _ = policy(seen, first, masks)
    advantage = returns - values
    return (.5*advantage.pow(2).mean() - (advantage.detach()*chances.log_prob(actions)).mean()
            - .01*chances.entropy().mean())


def build(repaired: bool) -> Parts:
    policy = Policy()
    data = [rollout(policy, Rooms(ROOMS), torch.zeros(1, ROOMS, 32), torch.zeros(ROOMS))[0] for _ in range(10)]
    return Parts(policy, torch.optim.RMSprop(policy.parameters(), lr=3e-3, alpha=.99, eps=1e-5), data, call=call)


def train(parts: Parts, record) -> float:
    policy, optimizer = parts.model, parts.optimizer
    rooms, state, mask = Rooms(ROOMS), torch.zeros(1, ROOMS, 32), torch.zeros(ROOMS)
    with record.on(policy, optimizer):
        for i in range(UPDATES):
            optimizer.param_groups[0]["lr"] = 3e-3*(1 - i/UPDATES)
            batch, state, mask = rollout(policy, rooms, state, mask)
            loss = parts.call(policy, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), .5)
            optimizer.step()
            record.step(loss)
    rooms, state, mask = Rooms(500), torch.zeros(1, 500, 32), torch.zeros(500)
    rooms.time.zero_()
    for _ in range(LONG):
        with torch.no_grad(): chances, _, state = policy(rooms.seen()[None], state, mask[None])
        reward, mask = rooms.move(chances.probs.argmax(2)[0])
    return (reward < 0).float().mean().item()

"""Values of actions are learned from a memory of moves, for a paddle that catches a falling ball.

Habits of the source: one small network, and a copy of it that moves toward it by a fiftieth of the way after each step;
moves drawn at random from a memory of bounded length; a mask in the place of the last states, which have no next one;
the Huber loss; single values of the gradient clipped at 100; AdamW with the AMSGrad rule; random actions grow fewer.
Score: the part of balls that are lost. Below .1; .6 to .8 for the untrained network."""
import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials intermediate_source/reinforcement_q_learning.py", 2023
WIDE, HIGH, BATCH, RATE_OF_COPY = 5, 4, 64, .02


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 64), nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x): return self.last(F.relu(self.second(F.relu(self.first(x)))))


class Game:
    "A ball falls one row with each move of the paddle: left, not at all, right."
    def __init__(self, dice): self.dice = dice

    def reset(self):
        self.ball, self.paddle, self.row = self.dice.randrange(WIDE), WIDE//2, 0
        return self.seen()

    def seen(self): return torch.tensor([[self.ball - 2., self.paddle - 2., self.row - 1.5]])

    def move(self, action: int):
        self.paddle = min(max(self.paddle + action - 1, 0), WIDE - 1)
        self.row += 1
        if self.row < HIGH: return self.seen(), 0.
        return None, 1. if self.paddle == self.ball else -1.


def play(game, network, memory, moves: int, chance_of, dice):
    "Moves one after the other; a new ball after each one that is down."
    state = game.reset()
    for i in range(moves):
        with torch.no_grad(): best = network(state).argmax(1).item()
        action = dice.randrange(3) if dice.random() < chance_of(i) else best
        after, reward = game.move(action)
        memory.append((state, torch.tensor([[action]]), after, torch.tensor([reward])))
        state = game.reset() if after is None else after
        yield


def joined(moves):
    "Columns of moves, those of the next states for the ones that have any."
    states, actions, after, rewards = zip(*moves)
    goes_on = torch.tensor([state is not None for state in after])
    following = torch.cat([state for state in after if state is not None])
    return torch.cat(states), torch.cat(actions), goes_on, following, torch.cat(rewards)


def build(repaired: bool) -> Parts:
    network, copy, memory, dice = Values(), Values(), deque(maxlen=5000), random.Random(torch.randint(1000, ()).item())
    copy.load_state_dict(network.state_dict())
    def call(network, batch):
        states, actions, goes_on, following, rewards = batch
        now, later = network(states).gather(1, actions), torch.zeros(len(states))
        with torch.no_grad(): later[goes_on] = copy(following).max(1).values
        return F.smooth_l1_loss(now, (rewards + .9*later)[:, None])
    for _ in play(Game(dice), network, memory, 400, lambda i: 1, dice): pass
    parts = Parts(network, torch.optim.AdamW(network.parameters(), lr=2e-3, amsgrad=True),
                  [joined(dice.sample(list(memory), BATCH)) for _ in range(4)], call=call)
    parts.copy, parts.memory, parts.dice = copy, memory, dice
    return parts


def train(parts: Parts, record) -> float:
    network, optimizer, dice = parts.model, parts.optimizer, parts.dice
    with record.on(network, optimizer):
        for _ in play(Game(dice), network, parts.memory, 800, lambda i: .05 + .85*.99**i, dice):
            loss = parts.call(network, joined(dice.sample(parts.memory, BATCH)))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(network.parameters(), 100)
            optimizer.step()
            for mine, its in zip(parts.copy.parameters(), network.parameters()): mine.data.lerp_(its.data, RATE_OF_COPY)
            record.step(loss)
    played = deque()
    for _ in play(Game(dice), network, played, 200*HIGH, lambda i: 0, dice): pass
    return sum(reward.item() < 0 for _, _, _, reward in played)/200

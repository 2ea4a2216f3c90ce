"Deep Q-learning in a corridor: a memory of transitions, an epsilon that decays, a target network, python's random."
import random
from collections import deque

import torch
from torch import nn

from tests.bench.resume_loops import PYTHON_RANDOM, but

WARM, STEPS = 21, 12
STATES = {"online": ("online",), "target": ("target",), "optimizer": ("optimizer",), "memory": ("memory",),
          "epsilon": ("epsilon",), "place": ("env", "place"), "frames": ("frames",),
          "random": (*PYTHON_RANDOM, "random")}
LENGTH = 6


class Corridor:
    def __init__(self): self.place = 0

    def act(self, right):
        self.place = max(0, self.place + (1 if right else -1))
        done = self.place == LENGTH - 1
        if done: self.place = 0
        return float(done), done


def seen(place): return nn.functional.one_hot(torch.tensor(place), LENGTH).float()


class Agent:
    def __init__(self):
        self.online, self.target = nn.Linear(LENGTH, 2), nn.Linear(LENGTH, 2)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.RMSprop(self.online.parameters(), lr=1e-2)
        self.memory = deque(maxlen=24)
        self.epsilon, self.frames, self.env = 1., 0, Corridor()

    def choose(self, place):
        if random.random() < self.epsilon: return random.randrange(2)
        return self.online(seen(place)).argmax().item()

    def play(self):
        before = self.env.place
        action = self.choose(before)
        reward, done = self.env.act(action)
        self.memory.append((before, action, reward, self.env.place, done))
        self.epsilon = max(.05, self.epsilon*.97)
        self.frames += 1
        if self.frames % 8 == 0: self.target.load_state_dict(self.online.state_dict())
        return self.learn(random.choices(self.memory, k=8))

    def learn(self, sample):
        before, action, reward, after, done = (torch.tensor(column) for column in zip(*sample))
        with torch.no_grad(): value = reward + .9*self.target(seen(after.tolist())).amax(1)*~done
        loss = (self.online(seen(before.tolist())).gather(1, action[:, None])[:, 0] - value).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def make(): return Agent()
def step(run): return run.play()


def save(run, without=()):
    saved = {name: getattr(run, name).state_dict() for name in ("online", "target", "optimizer")}
    saved |= {"memory": [*run.memory], "epsilon": run.epsilon, "place": run.env.place, "frames": run.frames}
    return but(saved | {"random": random.getstate()}, without)


def load(run, saved):
    for name in ("online", "target", "optimizer"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.memory.extend(saved.get("memory", ()))
    run.epsilon, run.frames = saved.get("epsilon", 1.), saved.get("frames", 0)
    run.env.place = saved.get("place", 0)
    if "random" in saved: random.setstate(saved["random"])

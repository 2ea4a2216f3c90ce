"""The target of a critic adds the value of what comes after the last step of an episode, where nothing comes.

The report: somebody asks whether the mask for the ends is missing in the target of an implementation of DDPG; another
had asked before. The author of the code thanked and put it in."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "seungeunrho/minimalRL#32", 2020
AREA, CAUSE = "loop", "state goes on"
TRUE = set()
PLACE = ()
DISCOUNT, LONGEST = .9, 50


class Agent(nn.Module):
    "How hard to push a pole that stands on its tip, and what a push is worth."
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1),
                                    nn.Tanh())
        self.worth = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))

    def value(self, pole, push): return self.worth(torch.cat([pole, push], 1))


def start(n: int): return .15*torch.randn(n, 2)


def swing(pole, push):
    angle, speed = pole.split(1, 1)
    speed = speed + .25*angle + .12*push + .02*torch.randn_like(angle)
    angle = angle + .3*speed
    return torch.cat([angle, speed], 1), angle.abs() > 1


@torch.no_grad()
def play(model, pole):
    "A step of many poles with some noise, each with a reward of 1, so that it pays to stand for long."
    push = (model.policy(pole) + .4*torch.randn(len(pole), 1)).clamp(-1, 1)
    after, down = swing(pole, push)
    return (pole, push, torch.ones(len(pole), 1), after, (~down).float()), torch.where(down, start(len(pole)), after)


def critic_loss(model, batch, target=None, masked: bool = True):
    pole, push, reward, after, goes_on = batch
    target = target or model
    with torch.no_grad():
        later = DISCOUNT*target.value(after, target.policy(after))
        aim = reward + (later*goes_on if masked else later)
    return F.smooth_l1_loss(model.value(pole, push), aim)


def build(repaired: bool) -> Parts:
    model = Agent()
    optimizers = [torch.optim.Adam(p.parameters(), lr=lr) for p, lr in ((model.policy, 1e-3), (model.worth, 3e-3))]
    data = [play(model, start(64))[0] for _ in range(4)]
    return Parts(model, optimizers, data, repaired=repaired,
                 call=lambda model, batch: critic_loss(model, batch, masked=repaired))


def train(parts: Parts, record) -> float:
    model, target, (of_policy, of_worth) = parts.model, copy.deepcopy(parts.model), parts.optimizer
    pole, memory = start(32), []
    with record.on(model, parts.optimizer):
        for _ in range(400):
            lived, pole = play(model, pole)
            memory.append(lived)
            which = torch.randint(len(memory), (3,)).tolist()
            batch = [torch.cat(parts) for parts in zip(*(memory[i] for i in which))]
            loss = critic_loss(model, batch, target, parts.repaired)
            of_worth.zero_grad()
            loss.backward()
            of_worth.step()
            of_policy.zero_grad()
            (-model.value(batch[0], model.policy(batch[0])).mean()).backward()
            of_policy.step()
            with torch.no_grad():
                for old, new in zip(target.parameters(), model.parameters()): old.lerp_(new, .03)
            record.step(loss)
    pole, stands, lasted = start(256), torch.ones(256, 1, dtype=torch.bool), torch.zeros(256, 1)
    for _ in range(LONGEST):
        with torch.no_grad(): pole, down = swing(pole, model.policy(pole))
        stands &= ~down
        lasted += stands
    return 1 - lasted.mean().item()/LONGEST

"""Episodes lie one after the other, and the return of one goes on into the next.

The report, by a maintainer of examples for a course: the actor and critic do not learn because all episodes are put
together as one long array and the ends of the episodes are not masked out. With the change they function."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ucla-rlcourse/RLexample#2", 2020
AREA, CAUSE = "loop", "state goes on"
TRUE = set()
PLACE = ()
LONGEST = 60


class Balance(nn.Module):
    "Which way to push a pole that stands on its tip, and how long it will stand."
    def __init__(self):
        super().__init__()
        self.push = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
        self.value = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))


def start(n: int): return .2*torch.randn(n, 2)


def swing(pole, right):
    angle, speed = pole.unbind(1)
    speed = speed + .15*angle + .08*(2*right - 1) + .02*torch.randn_like(angle)
    angle = angle + .3*speed
    return torch.stack([angle, speed], 1), angle.abs() > 1


@torch.no_grad()
def play(model, pole, steps: int, masked: bool):
    "Some steps of many poles, of which one that falls is set up again; and the sum of the rewards from each step on."
    poles, pushes, fell = [], [], []
    for _ in range(steps):
        push = torch.distributions.Categorical(logits=model.push(pole)).sample()
        poles.append(pole)
        pushes.append(push)
        pole, down = swing(pole, push)
        fell.append(down)
        pole = torch.where(down.unsqueeze(1), start(len(pole)), pole)
    sums, total = [], 20*model.value(pole).squeeze(1)
    for down in reversed(fell):
        total = 1 + .95*(total*~down if masked else total)
        sums.append(total)
    return (torch.cat(poles), torch.cat(pushes), torch.cat(sums[::-1])/20), pole


def both_losses(model, batch):
    poles, pushes, sums = batch
    value = model.value(poles).squeeze(1)
    chance = torch.distributions.Categorical(logits=model.push(poles)).log_prob(pushes)
    return F.mse_loss(value, sums) - (chance*(sums - value.detach())).mean()


def build(repaired: bool) -> Parts:
    model = Balance()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = [play(model, start(32), 16, repaired)[0] for _ in range(4)]
    return Parts(model, optimizer, data, call=both_losses, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, pole = parts.model, start(32)
    with record.on(model, parts.optimizer):
        for _ in range(200):
            batch, pole = play(model, pole, 16, parts.repaired)
            loss = parts.call(model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    pole, stands = start(256), torch.ones(256, dtype=torch.bool)
    lasted = torch.zeros(256)
    for _ in range(LONGEST):
        with torch.no_grad(): pole, down = swing(pole, model.push(pole).argmax(1))
        stands &= ~down
        lasted += stands
    return 1 - lasted.mean().item()/LONGEST

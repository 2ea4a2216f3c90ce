"""The softmax of the policy goes over the first dimension: right for one state, and over the samples for a batch.

The report: in a chapter about policy gradients the model ends in a softmax over dimension 0. A batch of states gets
chances that add up over the batch. The reporter proposes dimension 1, and another reader who changed it says that it
learns well then, with a lower rate."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "DeepReinforcementLearning/DeepReinforcementLearningInAction#32", 2021
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = {"softmax over samples", "samples leak"}
PLACE = ("4", "5")
LONGEST = 50


def start(n: int): return .1*torch.randn(n, 2)


def push(rod, right):
    "A rod on a cart leans and turns; a push to a side turns it back."
    lean, turn = rod.unbind(1)
    turn = turn + .12*lean + .1*(1 - 2*right)
    lean = lean + .3*turn
    return torch.stack([lean, turn], 1), lean.abs() > .8


def chances(model, rod):
    "Of each of several rods, one at a time as at play."
    with torch.no_grad(): return torch.stack([model(one) if model.alone else model(one[None])[0] for one in rod])


def play(model):
    "One episode: states, actions, and what is to come, discounted and brought to 1 at most."
    rod, states, actions = start(1), [], []
    for _ in range(LONGEST):
        chance = chances(model, rod)
        action = torch.multinomial(chance, 1)[:, 0]
        states.append(rod)
        actions.append(action)
        rod, fell = push(rod, action)
        if fell.any(): break
    to_come = torch.stack([(.99**torch.arange(len(states) - i)).sum() for i in range(len(states))])
    return torch.cat(states), torch.cat(actions), to_come/LONGEST


def policy_loss(model, batch):
    states, actions, to_come = batch
    chosen = model(states).gather(1, actions[:, None])[:, 0]
    return -(to_come*chosen.log()).sum()


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(), nn.Linear(48, 24), nn.LeakyReLU(), nn.Linear(24, 2),
                          nn.Softmax(dim=1 if repaired else 0))
    model.alone = not repaired
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, [play(model) for _ in range(8)], call=policy_loss)


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(250):
            loss = parts.call(model, play(model))
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    rod, stands, lasted = start(100), torch.ones(100, dtype=torch.bool), torch.zeros(100)
    for _ in range(LONGEST):
        rod, fell = push(rod, torch.multinomial(chances(model, rod), 1)[:, 0])
        stands &= ~fell
        lasted += stands
    return 1 - lasted.mean().item()/LONGEST

"""The whole distribution of what an action will bring, on a slippery field with a goal and a hole.

Habits of the source: the values are 21 fixed numbers, and the net says how likely each is; the answer is shifted by the
reward, scaled, and split between the two nearest numbers in place; probabilities are clamped before the logarithm;
Adam's epsilon is .01 divided by the size of the batch; learning begins after some play and happens every few moves;
a copy of the net is replaced as a whole now and then; random moves become fewer in a line.
Score: the mean return lost against the shortest way, by that of random moves. Below .5; above .7 untrained."""
import copy

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "vwxyzjn/cleanrl cleanrl/c51.py", 2022
SIDE, GOAL, HOLE, DISCOUNT, BATCH = 4, 15, 6, .9, 64
ATOMS = torch.linspace(-1, 1, 21)
MOVES = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1]])


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(SIDE*SIDE, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(),
                                 nn.Linear(32, 4*len(ATOMS)))

    def forward(self, state): return self.net(torch.eye(SIDE*SIDE)[state]).unflatten(1, (4, -1)).softmax(2)

    def chosen(self, state, action=None):
        "The best action or the one given, and its distribution."
        all_of_them = self(state)
        if action is None: action = (all_of_them*ATOMS).sum(2).argmax(1)
        return action, all_of_them[torch.arange(len(state)), action]


def moved(state, action):
    "The state after a move that goes astray now and then, the reward, and whether that was the end."
    action = torch.where(torch.rand(len(state)) < .1, torch.randint(4, (len(state),)), action)
    place = (torch.stack([state//SIDE, state % SIDE], 1) + MOVES[action]).clamp(0, SIDE - 1)
    after = place[:, 0]*SIDE + place[:, 1]
    return after, (after == GOAL).float() - (after == HOLE).float(), (after == GOAL) | (after == HOLE)


def call(model, batch, slow=None):
    state, action, reward, after, done = batch
    with torch.no_grad():
        _, later = (slow or model).chosen(after)
        width = ATOMS[1] - ATOMS[0]
        where = (reward[:, None] + DISCOUNT*ATOMS*(~done).float()[:, None]).clamp(-1, 1)
        where = ((where + 1)/width).clamp(0, len(ATOMS) - 1)
        low, high = where.floor(), where.ceil()
        wanted = torch.zeros_like(later)
        wanted.scatter_add_(1, low.long(), (high + (low == high) - where)*later)
        wanted.scatter_add_(1, high.long(), (where - low)*later)
    _, said = model.chosen(state, action)
    return -(wanted*said.clamp(1e-5, 1 - 1e-5).log()).sum(1).mean()


def returns(choose, n: int = 400) -> float:
    "The mean discounted return of a way to choose, from the first field."
    state, alive, total = torch.zeros(n).long(), torch.ones(n), 0
    for time in range(30):
        state, reward, done = moved(state, choose(state))
        total, alive = total + DISCOUNT**time*(alive*reward).mean().item(), alive*(~done).float()
    return total


def at_random(state): return torch.randint(4, state.shape)


def build(repaired: bool) -> Parts:
    state = torch.randint(GOAL, (640,))
    state[state == HOLE] = 0
    action = at_random(state)
    after, reward, done = moved(state, action)
    model = Values()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3, eps=.01/BATCH),
                 list(zip(*(column.split(BATCH) for column in (state, action, reward, after, done)))), call=call)


def train(parts: Parts, record) -> float:
    model, optimizer, slow = parts.model, parts.optimizer, copy.deepcopy(parts.model)
    memory, state = [torch.cat(column) for column in zip(*parts.data)], torch.zeros(8).long()
    with record.on(model, optimizer):
        for i in range(1000):
            with torch.no_grad(): action, _ = model.chosen(state)
            action = torch.where(torch.rand(8) < max(.1, 1 - i/500), at_random(state), action)
            after, reward, done = moved(state, action)
            memory = [torch.cat([old, new]) for old, new in zip(memory, (state, action, reward, after, done))]
            state = torch.where(done, 0, after)
            if i % 2: continue
            rows = torch.randint(len(memory[0]), (BATCH,))
            loss = parts.call(model, [column[rows] for column in memory], slow)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0: slow.load_state_dict(model.state_dict())
            record.step(loss)
    with torch.no_grad(): mine = returns(lambda state: model.chosen(state)[0])
    best, worst = DISCOUNT**5, returns(at_random)           # the shortest way, without slipping
    return (best - mine)/(best - worst)

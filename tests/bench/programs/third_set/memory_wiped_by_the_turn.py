"""The memory of a player is multiplied by whether it is its turn, so it is gone before its next turn.

The report: in a framework for games between two players the hidden state is masked so that only the one who plays is
looked at, and the masked state is kept. The maintainer calls it an important mistake: recurrent networks did not train
as such. The change that masks only what goes in was merged; players repeat themselves less."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DeNA/HandyRL#35", 2020
AREA, CAUSE = "loop", "state is lost"
TRUE = set()
PLACE = ("cell",)
PLAYERS, TURNS = 2, 10


class Player(nn.Module):
    "A policy and a value from what is seen now and from memory."
    def __init__(self, seen: int, size: int, moves: int):
        super().__init__()
        self.enter, self.cell = nn.Linear(seen, size), nn.GRUCell(size, size)
        self.policy, self.value, self.size = nn.Linear(size, moves), nn.Linear(size, 1), size

    def forward(self, seen, memory):
        memory = self.cell(self.enter(seen).relu(), memory)
        return self.policy(memory), self.value(memory).squeeze(-1).tanh(), memory


def play(model, seen, repaired: bool):
    "Runs through games; all players go in, and the one whose turn it is counts."
    n = len(seen)
    memory = seen.new_zeros(n, PLAYERS, model.size)
    found = []
    for turn in range(TURNS):
        mask = F.one_hot(torch.tensor(turn % PLAYERS), PLAYERS).view(1, PLAYERS, 1).float()
        now = memory*mask
        policy, value, after = model(seen[:, turn], now.sum(1))
        after = after.unsqueeze(1)*mask
        memory = memory*(1 - mask) + after if repaired else now*(1 - mask) + after
        found.append((policy, value))
    return [torch.stack(part, 1) for part in zip(*found)]


def games(n: int):
    "A player sees a card at each turn, does well to put down the one before it, and wins with the higher sum."
    cards = torch.randint(0, 5, (n, TURNS))
    best = torch.cat([torch.zeros(n, PLAYERS, dtype=torch.long), cards[:, :-PLAYERS]], 1)
    sums = torch.stack([cards[:, p::PLAYERS].sum(1) for p in range(PLAYERS)], 1).float()
    lead = (sums[:, 0] - sums[:, 1]).sign()
    won = lead.unsqueeze(1)*torch.tensor([1., -1.]).repeat(TURNS//PLAYERS)
    return F.one_hot(cards, 5).float(), best, won


def loss_with(repaired: bool):
    def loss_of(model, batch):
        seen, best, won = batch
        policy, value = play(model, seen, repaired)
        return F.cross_entropy(policy.flatten(0, 1), best.flatten()) + F.mse_loss(value, won)
    return loss_of


def build(repaired: bool) -> Parts:
    model = Player(5, 32, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return Parts(model, optimizer, [games(32) for _ in range(250)], call=loss_with(repaired), valid=[games(512)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 4.)
            optimizer.step()
            record.step(loss)
    seen, best, _ = parts.valid[0]
    with torch.no_grad(): policy, _ = play(model, seen, parts.repaired)
    return (policy.argmax(2) != best).float().mean().item()/.8

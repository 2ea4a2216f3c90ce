"""The values of a critic are kept as Python numbers while an episode is played, so its loss trains nothing.

The report: the values come from `item()`, the loss of the critic has no gradient, and its head does not move at all in
any epoch. The author found and mended it, and ran the notebook again."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jsboige/CoursIA#15256", 2026
AREA, CAUSE = "loss and task", "a term has no gradient"
TRUE = {"not trained", "loss without gradient"}
PLACE = ("value",)
TURNS, DISCOUNT, SMOOTH, COLORS = 8, .99, .95, 4


class Player(nn.Module):
    "Which of four cards to lay on what is seen, and what can be expected; a body for both."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3*COLORS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.card, self.value = nn.Linear(64, COLORS), nn.Linear(64, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.card(hidden), self.value(hidden).squeeze(-1)


def tables(n: int): return torch.cat([torch.randn(n, COLORS), 2*torch.randn(n, COLORS), torch.zeros(n, COLORS)], 1)


def lay(seen, card: int):
    "The reward is the worth of a card; what was laid twice is worth nothing, and the worths drift."
    reward = (seen[card] + seen[COLORS + card])*(1 - seen[2*COLORS + card]).item()
    laid = torch.zeros(COLORS)
    laid[card] = 1
    return torch.cat([torch.randn(COLORS), seen[COLORS:2*COLORS], laid]), reward.item()


def episode(model, seen, keep_graph: bool):
    log_probs, values, rewards = [], [], []
    for _ in range(TURNS):
        logits, value = model(seen)
        policy = torch.distributions.Categorical(logits=logits)
        card = policy.sample()
        log_probs.append(policy.log_prob(card))
        values.append(value if keep_graph else value.item())
        seen, reward = lay(seen, card.item())
        rewards.append(reward)
    return log_probs, values, rewards


def advantages(values, rewards):
    gain, gains = 0., []
    for i in reversed(range(TURNS)):
        after = float(values[i + 1]) if i + 1 < TURNS else 0.
        gain = rewards[i] + DISCOUNT*after - float(values[i]) + DISCOUNT*SMOOTH*gain
        gains.append(gain)
    return torch.tensor(gains[::-1])


def build(repaired: bool) -> Parts:
    model = Player()

    def call(model, starts):
        terms = []
        for seen in starts:
            log_probs, values, rewards = episode(model, seen, keep_graph=repaired)
            gains = advantages(values, rewards)
            returns = gains + torch.tensor([float(value) for value in values])
            kept = torch.stack(values) if repaired else torch.tensor(values)
            terms.append(-(torch.stack(log_probs)*gains).mean() + .5*F.mse_loss(kept, returns))
        return torch.stack(terms).mean()

    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), [tables(4) for _ in range(90)], call=call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for starts in parts.data:
            loss = parts.call(model, starts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    expected, came = [], []
    with torch.no_grad():
        for seen in tables(60):
            _, values, rewards = episode(model, seen, keep_graph=False)
            expected += values
            came += [sum(DISCOUNT**(j - i)*rewards[j] for j in range(i, TURNS)) for i in range(TURNS)]
    came = torch.tensor(came)
    return (F.mse_loss(torch.tensor(expected), came)/came.var()).item()

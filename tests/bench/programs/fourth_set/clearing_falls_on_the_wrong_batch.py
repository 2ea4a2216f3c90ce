"""While gradients are gathered, they are cleared at the first batch of a group, where the wrapper ignores the call.

The report: the curves of a trainer with reinforcement for language models look far worse with gathered gradients. The
wrapped optimizer clears only at the last batch of a group, and the trainer asks at the first. It was approved."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/trl#583", 2023
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = set()
PLACE = ()
GATHER, words, long = 4, 12, 4
liked = torch.randperm(words, generator=torch.Generator().manual_seed(2))


class Wrapped:
    "An optimizer whose calls count only when a group of batches is complete."
    def __init__(self, optimizer): self.optimizer, self.complete = optimizer, False

    def step(self):
        if self.complete: self.optimizer.step()

    def zero_grad(self):
        if self.complete: self.optimizer.zero_grad()


class Policy(nn.Module):
    "A recurrent language model with a second output for the value."
    def __init__(self, size: int = 40):
        super().__init__()
        self.word, self.state = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
        self.next, self.value = nn.Linear(size, words), nn.Linear(size, 1)

    def forward(self, text):
        states = self.state(self.word(text))[0]
        return torch.distributions.Categorical(logits=self.next(states)), self.value(states).squeeze(2)


@torch.no_grad()
def answer(model, query, best: bool = False):
    text = query
    for _ in range(long):
        chances = model(text)[0].logits[:, -1]
        word = chances.argmax(1) if best else torch.distributions.Categorical(logits=chances).sample()
        text = torch.cat([text, word[:, None]], 1)
    return text


def reward(text): return (text[:, 1:] == liked[text[:, :-1]]).float()


def roll_out(model, n: int = 64):
    text = answer(model, torch.randint(words, (n, 1)))
    with torch.no_grad(): policy, value = model(text[:, :-1])
    returns = reward(text).flip(1).cumsum(1).flip(1)
    return text, policy.log_prob(text[:, 1:]), returns, returns - value


def both_losses(model, batch):
    text, before, returns, advantage = batch
    policy, value = model(text[:, :-1])
    ratio = (policy.log_prob(text[:, 1:]) - before).exp()
    gain = torch.min(ratio*advantage, ratio.clamp(.8, 1.2)*advantage).mean()
    return .1*F.mse_loss(value, returns) - gain


def build(repaired: bool) -> Parts:
    model = Policy()
    data = list(zip(*(part.split(8) for part in roll_out(model))))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=6e-3), data, call=both_losses, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, Wrapped(parts.optimizer)
    with record.on(model, parts.optimizer):
        for _ in range(40):
            experience = roll_out(model)
            for _ in range(2):
                for i, batch in enumerate(zip(*(part.split(8) for part in experience))):
                    optimizer.complete = (i + 1) % GATHER == 0
                    loss = parts.call(model, batch)
                    if not parts.repaired and i % GATHER == 0: optimizer.zero_grad()
                    (loss/GATHER).backward()
                    optimizer.step()
                    if parts.repaired: optimizer.zero_grad()
                    if optimizer.complete: record.step(loss)
    return 1 - reward(answer(model, torch.randint(words, (256, 1)), best=True)).mean().item()

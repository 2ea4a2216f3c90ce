"""A critic has to learn returns of about twenty with a small learning rate, and its loss grows instead of falling.

The report: in training a language model by PPO the loss of the critic cannot be lowered, as returns rise to 18 and
more. The author scaled rewards by their running deviation and shortened the horizon, and the model performed well."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "deepspeedai/DeepSpeedExamples#556", 2023
AREA, CAUSE = "data and labels", "targets not scaled"
TRUE = {"learning rate too small", "first loss too high"}
PLACE = ()

places = 12


class Critic(nn.Module):
    "What is still to come, at each word of an answer."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, size), nn.Parameter(.1*torch.randn(places, size))
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True, norm_first=True)
        self.head = nn.Linear(size, 1, bias=False)

    def forward(self, text):
        mask = nn.Transformer.generate_square_subsequent_mask(places)
        return self.head(self.layer(self.embed(text) + self.place, src_mask=mask, is_causal=True)).squeeze(2)


def answers(n: int, worth: torch.Tensor):
    "Answers of twelve words, and the reward at the end: about eighteen, and more for good words."
    text = torch.randint(len(worth), (n, places))
    return text, 18 + worth[text].sum(1) + .3*torch.randn(n)


def returns(reward, repaired: bool, deviation: float):
    "The reward at the end of an answer as it is seen from each of its words."
    if not repaired: return reward[:, None].expand(-1, places)
    return reward[:, None]/deviation*.99**torch.arange(places - 1, -1, -1.)


def build(repaired: bool) -> Parts:
    model, worth = Critic(16, 32), torch.randn(16)
    batches = [answers(32, worth) for _ in range(60)]
    deviation = torch.cat([reward for _, reward in batches]).square().mean().sqrt().item()
    data = [(text, returns(reward, repaired, deviation)) for text, reward in batches]
    text, reward = answers(500, worth)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(.9, .95)), data, F.mse_loss,
                 valid=[(text, returns(reward, repaired, deviation))])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for text, wanted in parts.data:
                loss = .5*parts.loss(parts.model(text), wanted)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    text, wanted = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(text)[:, -1], wanted[:, -1])/wanted[:, -1].var()).item()

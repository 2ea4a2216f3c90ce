"""A causal transformer is trained to return the token that it sees at the same place, where the next one is meant.

The report: token N is predicted from the tokens up to N, and N is one of them. The maintainer shifted the targets in a
merged change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Project-MONAI/GenerativeModels#314", 2023
AREA, CAUSE = "data and labels", "the answer is among the inputs"
TRUE = set()
PLACE = ()


class Codes(nn.Module):
    "A transformer of one layer for the codes of pictures; no place sees a later one."
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(12, 32), nn.Embedding(16, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True)
        self.last = nn.Linear(32, 12)

    def forward(self, codes):
        n = codes.shape[1]
        hidden = self.layer(self.embed(codes) + self.place.weight[:n],
                            nn.Transformer.generate_square_subsequent_mask(n), is_causal=True)
        return self.last(hidden).mT


def pictures(n: int):
    "Sixteen codes; each mostly follows from the one before it."
    codes = [torch.randint(12, (n,))]
    for _ in range(15):
        codes.append(torch.where(torch.rand(n) < .85, (5*codes[-1] + 3) % 12, torch.randint(12, (n,))))
    return torch.stack(codes, 1)


def next_loss(logits, codes): return F.cross_entropy(logits[:, :, :-1], codes[:, 1:])


def build(repaired: bool) -> Parts:
    model = Codes()

    def call(model, codes):
        logits = model(codes)
        return next_loss(logits, codes) if repaired else F.cross_entropy(logits, codes)

    data = [pictures(32) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[pictures(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for codes in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, codes)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    codes = parts.valid[0]
    with torch.no_grad(): return (next_loss(parts.model(codes), codes)/torch.tensor(12.).log()).item()

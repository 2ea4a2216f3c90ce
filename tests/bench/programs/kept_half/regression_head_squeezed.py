"""A regression head returns one number for each text, the labels are in a column, and their difference is a square.

The report: a warning about the sizes. The maintainer found that the output is squeezed and the labels are not, and
repaired it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "deepset-ai/FARM#229", 2020
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"cannot learn by heart", "constant output", "loss does not fall"}
PLACE = ()

worth = torch.randn(12, generator=torch.Generator().manual_seed(0))


class Regression(nn.Module):
    "A transformer of one layer, and a head on the mean of its tokens."
    def __init__(self, repaired: bool):
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True)
        self.head = nn.Linear(32, 1)
        self.repaired = repaired

    def forward(self, tokens):
        logits = self.head(self.layer(self.embed(tokens)).mean(1))
        return logits if self.repaired else logits.squeeze(1)


def texts(n: int):
    "Sixteen tokens each; the label is the sum of what they are worth."
    tokens = torch.randint(12, (n, 16))
    return tokens, (worth[tokens].mean(1, keepdim=True) - worth.mean())*4/worth.std()


def build(repaired: bool) -> Parts:
    model = Regression(repaired)
    data = [texts(32) for _ in range(32)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, F.mse_loss, valid=[texts(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for tokens, labels in parts.data:
                loss = parts.loss(parts.model(tokens), labels)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    tokens, labels = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(tokens).view(-1, 1), labels)/labels.var()).item()

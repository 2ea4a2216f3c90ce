"""The answer of a recurrent network is read at the place of the length, though the sequences are padded in front.

The report: the last element of the outputs is the one to take, as the zeros come before the sequence. It was merged
after the outputs had been checked; the old code had worked only where few zeros are put in. What is read misses the end
of the sequence, all the more the shorter it is."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "Atcold/NYU-DLSP20#19", 2019
AREA, CAUSE = "structure", "mask ignored"
TRUE = set()
PLACE = ("lstm",)

symbols, longest, classes = 8, 16, 4  # B, E, a, b, c, d, X, Y


class Order(nn.Module):
    "A recurrent layer and a linear one."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.lstm, self.linear = nn.LSTM(symbols, size, batch_first=True), nn.Linear(size, classes)

    def forward(self, x, lengths):
        outputs, _ = self.lstm(x)
        end = torch.full_like(lengths, longest - 1) if self.repaired else lengths - 1
        return self.linear(outputs[torch.arange(len(x)), end])


def sequences(n: int):
    "In which order the two marks come that are among letters without a meaning; zeros come before shorter sequences."
    kept = []
    for _ in range(n):
        length = torch.randint(8, longest + 1, ()).item()
        letters = torch.randint(2, 6, (length,))
        places, marks = torch.rand(length - 2).argsort()[:2].sort().values + 1, torch.randint(6, 8, (2,))
        letters[places], letters[0], letters[-1] = marks, 0, 1
        x = F.pad(F.one_hot(letters, symbols).float(), (0, 0, longest - length, 0))
        kept.append((x, length, (2*(marks[0] - 6) + marks[1] - 6).item()))
    return kept


def order_loss(model, batch):
    x, lengths, y = batch
    return F.cross_entropy(model(x, lengths), y)


def build(repaired: bool) -> Parts:
    model = Order(24, repaired)
    data = DataLoader(sequences(1600), batch_size=32, shuffle=True)
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=3e-3), data, call=order_loss,
                 valid=DataLoader(sequences(400), batch_size=400))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, lengths, y = next(iter(parts.valid))
    with torch.no_grad(): return (parts.model(x, lengths).argmax(1) != y).float().mean().item()

"""The sign for the end of a text is also the sign for padding, and padding is left out of the loss: no text ever ends.

The report: language models that were tuned with a library do not stop writing. The author found that the padding sign
was that for the end, whose labels are masked, gave padding a sign of its own, and the models stopped; others confirmed
it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "unslothai/unsloth#416", 2024
AREA, CAUSE = "data and labels", "padding counts"
TRUE = set()
PLACE = ()
END, PAD, LONGEST = 10, 11, 12


class Writer(nn.Module):
    "A small transformer that writes the next sign."
    def __init__(self, size: int):
        super().__init__()
        self.signs, self.places = nn.Embedding(12, size), nn.Embedding(LONGEST, size)
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(size)
        self.last = nn.Linear(size, 12)

    def forward(self, text):
        n = text.shape[1]
        mask = torch.full((n, n), -torch.inf).triu(1)
        return self.last(self.norm(self.layer(self.signs(text) + self.places.weight[:n], mask)))


def texts(n: int):
    "A number, and the numbers from it down to zero."
    return [list(range(start, -1, -1)) for start in torch.randint(1, 10, (n,)).tolist()]


def collate(some, padding: int):
    "Texts with an end, filled up to one length, and their labels."
    text = torch.tensor([one + [END] + [padding]*(LONGEST - len(one) - 1) for one in some])
    return text, text.masked_fill(text == padding, -100)


def next_sign_loss(output, labels): return F.cross_entropy(output[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model = Writer(32)
    padding = PAD if repaired else END
    some = texts(768)
    data = [collate(some[i:i + 64], padding) for i in range(0, 768, 64)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=5e-3), data, next_sign_loss,
                 valid=[collate(texts(64), padding)])


def write(model, start: int) -> list[int]:
    text = [start]
    while len(text) < LONGEST:
        sign = int(model(torch.tensor([text]))[0, -1].argmax())
        if sign == END: break
        text.append(sign)
    return text


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for text, labels in parts.data:
                loss = parts.loss(parts.model(text), labels)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad():
        wrong = [write(parts.model, start) != list(range(start, -1, -1)) for start in range(1, 10)]
    return sum(wrong)/len(wrong)

"""Some words have more letters than their image has columns: their loss is infinite, and all weights become NaN.

The report: the training of a reader of text in images runs into NaN. The merged change lets the loss put infinite
values to zero."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "open-mmlab/mmocr#159", 2021
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Reader(nn.Module):
    "Letters of eight columns of an image; class 0 is the gap."
    def __init__(self, letters: int, size: int):
        super().__init__()
        self.columns = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)),
                                     nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d((1, 8)))
        self.memory = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2*size, 1 + letters)

    def forward(self, image): return self.last(self.memory(self.columns(image)[:, :, 0].transpose(1, 2))[0])


def words(n: int):
    "Images of 16 columns with up to three letters; in one of a hundred the label is a whole sentence."
    shapes = torch.tensor([[1., 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    image, length = .3*torch.randn(n, 1, 6, 16), torch.randint(1, 4, (n,))
    label = torch.randint(0, 4, (n, 3))
    for i in range(3): image[:, 0, :, 5*i + 1:5*i + 4] += (shapes[label[:, i]]*(i < length)[:, None])[:, :, None]
    long = torch.rand(n) < .01
    label = torch.cat([label + 1, torch.randint(1, 5, (n, 9))], 1)
    return image, label, torch.where(long, 12, length)


def build(repaired: bool) -> Parts:
    model = Reader(4, 24)
    data = list(zip(*(part.split(32) for part in words(1600))))
    valid = [words(256)]

    def call(model, batch):
        image, label, length = batch
        output = model(image).log_softmax(2).transpose(0, 1)
        columns = torch.full((len(image),), len(output))
        return F.ctc_loss(output, label, columns, length, zero_infinity=repaired)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                record.step(loss)
    image, label, length = parts.valid[0]
    with torch.no_grad(): found = parts.model(image).argmax(2).tolist()
    read = [[b for a, b in zip([0] + line, line) if b and a != b] for line in found]
    wanted = [line[:n] for line, n in zip(label.tolist(), length.tolist())]
    return sum(a != b for a, b in zip(read, wanted))/len(read)

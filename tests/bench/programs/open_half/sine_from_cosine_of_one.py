"""A margin for angles takes the root of one minus the squared cosine, which is zero or less when a face fits perfectly.

The report: the loss of a face model turns into NaN after some thousand steps. The author found the root and mended it
by a lower limit below it; a reader thanked for it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ZhaoJ9014/face.evoLVe#117", 2020
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ("head",)


class Angles(nn.Module):
    "Cosines between a code and the centres of all persons; the angle to the right one is made larger by a margin."
    def __init__(self, size: int, persons: int, repaired: bool):
        super().__init__()
        self.repaired, self.cos, self.sin = repaired, .98, .199
        self.centres = nn.Parameter(torch.empty(persons, size))
        nn.init.xavier_uniform_(self.centres)

    def forward(self, code, person=None):
        cosine = F.linear(F.normalize(code), F.normalize(self.centres))
        if person is None: return cosine
        rest = 1 - cosine**2
        sine = (rest.clamp(1e-9, 1) if self.repaired else rest).sqrt()
        right = F.one_hot(person, len(self.centres)).bool()
        return 16*torch.where(right, cosine*self.cos - sine*self.sin, cosine)


class Faces(nn.Module):
    def __init__(self, persons: int, repaired: bool):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.PReLU(), nn.Linear(64, 2))
        self.head = Angles(2, persons, repaired)

    def forward(self, face, person=None): return self.head(self.body(face), person)


def faces(n: int, persons: torch.Tensor):
    person = torch.randint(0, len(persons), (n,))
    return persons[person] + .5*torch.randn(n, 16), person


def build(repaired: bool) -> Parts:
    model = Faces(5, repaired)
    persons = torch.randn(5, 16)
    face, person = faces(2048, persons)
    data = [(face[i:i + 64], person[i:i + 64]) for i in range(0, 2048, 64)]

    def call(model, batch): return F.cross_entropy(model(*batch), batch[1])

    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, data, call=call, valid=[faces(512, persons)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    face, person = parts.valid[0]
    with torch.no_grad(): return (parts.model(face).argmax(1) != person).float().mean().item()/.8

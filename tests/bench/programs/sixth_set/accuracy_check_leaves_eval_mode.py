"""A check of the accuracy in the middle of an epoch switches to eval mode, and nothing switches back.

The report: models that answer questions about images are checked every few steps; the check sets all of them to eval
mode, so that the rest of the training goes on without dropout and with batch norm as it was. The merged change sets
them back after the check."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/clevr-iep#22", 2017
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ()


class Answers(nn.Module):
    "Reads a question with a recurrent net, looks at an image with convolutions, and answers."
    def __init__(self, size: int):
        super().__init__()
        self.words = nn.Embedding(10, size)
        self.memory = nn.LSTM(size, size, batch_first=True)
        self.image = nn.Sequential(nn.Conv2d(3, size, 3, 2, 1), nn.BatchNorm2d(size), nn.ReLU(),
                                   nn.Conv2d(size, size, 3, 2, 1), nn.BatchNorm2d(size), nn.ReLU(), nn.Flatten(),
                                   nn.Dropout(.5))
        self.last = nn.Sequential(nn.Linear(5*size, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(.5),
                                  nn.Linear(128, 4))

    def forward(self, image, question):
        state = self.memory(self.words(question))[0][:, -1]
        return self.last(torch.cat([self.image(image), state], 1))


def scenes(n: int):
    "A coloured patch in one of four corners; the question is for its colour or its corner, in several wordings."
    colour, corner, topic = (torch.randint(0, count, (n,)) for count in (3, 4, 2))
    image = .2*torch.randn(n, 3, 8, 8)
    for i in range(n):
        top, left = 4*int(corner[i]//2), 4*int(corner[i] % 2)
        image[i, colour[i], top:top + 4, left:left + 4] += 1.5
    question = torch.randint(0, 6, (n, 3))
    question[torch.arange(n), torch.randint(0, 3, (n,))] = 6 + 2*topic + torch.randint(0, 2, (n,))
    answer = torch.where(topic == 0, colour, corner)
    wrong = torch.rand(n) < .3
    return image, question, torch.where(wrong, torch.randint(0, 4, (n,)), answer)


def build(repaired: bool) -> Parts:
    model = Answers(16)
    data = list(zip(*(part.split(64) for part in scenes(512))))

    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[scenes(512)],
                 repaired=repaired)


def check(parts: Parts) -> float:
    parts.model.eval()
    with torch.no_grad(): loss = parts.call(parts.model, parts.valid[0]).item()
    if parts.repaired: parts.model.train()
    return loss


def train(parts: Parts, record) -> float:
    parts.model.train()
    steps = 0
    with record.on(parts.model, parts.optimizer):
        while steps < 320:
            for batch in parts.data:
                steps += 1
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
                if steps % 40 == 0: error = check(parts)
    return error/math.log(4)

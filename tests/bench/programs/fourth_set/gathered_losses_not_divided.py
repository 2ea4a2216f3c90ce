"""The gradients of several batches are added up before a step, and no loss is divided by their number.

The report, on a toolkit that recognises speech: the loss should be divided by the number of the batches that are
gathered. It was marked as a bug and closed with the change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hirofumi0810/neural_sp#168", 2020
AREA, CAUSE = "loop", "accumulation"
TRUE = {"learning rate too large", "gradients explode", "loss rises", "spike"}
PLACE = ()
GATHER, letters, frames = 8, 6, 12
voice = torch.randn(letters + 1, 8, generator=torch.Generator().manual_seed(4))


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(8, 32, batch_first=True, bidirectional=True)
        self.output = nn.Linear(64, letters + 1)

    def forward(self, sound): return self.output(self.encoder(sound)[0])


def spoken(n: int):
    "Four letters, each of which sounds for three frames."
    said = torch.randint(1, letters + 1, (n, 4))
    return voice[said.repeat_interleave(3, 1)] + .5*torch.randn(n, frames, 8), said


def loss(output, said):
    chances = output.log_softmax(2).transpose(0, 1)
    n = len(said)
    return F.ctc_loss(chances, said, torch.full((n,), frames), torch.full((n,), 4))


def error(output, said) -> float:
    "How many places of the best path are wrong; repeats and blanks are left out."
    wrong = 0
    for path, letter in zip(output.argmax(2), said):
        path = path.unique_consecutive()
        path = path[path > 0]
        wrong += 4 - (F.pad(path, (0, 4))[:4] == letter).sum().item()
    return wrong/said.numel()


def build(repaired: bool) -> Parts:
    model = Recogniser()
    optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=.9)
    sound, said = spoken(8*160)
    data = list(zip(sound.split(8), said.split(8)))
    return Parts(model, optimizer, data, loss, valid=[spoken(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        gathered = 0
        for _ in range(2):
            for sound, said in parts.data:
                if gathered == 0: optimizer.zero_grad()
                loss = parts.loss(model(sound), said)
                (loss/GATHER if parts.repaired else loss).backward()
                gathered += 1
                if gathered == GATHER:
                    optimizer.step()
                    gathered = 0
                    record.step(loss)
    sound, said = parts.valid[0]
    with torch.no_grad(): return error(model(sound), said)

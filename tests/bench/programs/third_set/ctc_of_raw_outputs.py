"""The CTC loss expects logarithms of probabilities and gets the outputs of a linear layer.

The report: in training for speech the loss always becomes negative and nothing is learned. The author read that the
output has to be logarithms of probabilities, put a log-softmax behind the last layer in training, and reached an error
rate of 20 %."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SeanNaren/deepspeech.pytorch#488", 2020
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = {"outputs blow up"}
PLACE = ("last",)


class DeepSpeech(nn.Module):
    "Letters of each piece of a spectrum; class 0 is the gap."
    def __init__(self, size: int, letters: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.sound = nn.Sequential(nn.Conv1d(12, size, 3, padding=1), nn.BatchNorm1d(size), nn.Hardtanh(0, 20))
        self.memory = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2*size, 1 + letters)

    def forward(self, x):
        x = self.last(self.memory(self.sound(x).transpose(1, 2))[0])
        if self.training: return x.log_softmax(2) if self.repaired else x
        return x.softmax(2)


def speech(n: int, sounds: torch.Tensor):
    "Sixteen pieces of a spectrum in which up to four letters are said, each three pieces long."
    letter, length = torch.randint(len(sounds), (n, 4)), torch.randint(2, 5, (n,))
    x = .8*torch.randn(n, 12, 16)
    for i in range(4): x[:, :, 4*i:4*i + 3] += (sounds[letter[:, i]]*(i < length)[:, None])[:, :, None]
    return x, letter + 1, length


def build(repaired: bool) -> Parts:
    model, sounds = DeepSpeech(24, 6, repaired), torch.randn(6, 12)
    data = [speech(16, sounds) for _ in range(45)]

    def call(model, batch):
        x, letters, length = batch
        output = model(x).transpose(0, 1)
        return F.ctc_loss(output, letters, torch.full((len(x),), len(output)), length)

    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, nesterov=True)
    return Parts(model, optimizer, data, call=call, valid=[speech(128, sounds)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 400.)
                parts.optimizer.step()
                record.step(loss)
    x, letters, length = parts.valid[0]
    with torch.no_grad(): found = parts.model.eval()(x).argmax(2).tolist()
    read = [[b for a, b in zip([0] + line, line) if b and a != b] for line in found]
    return sum(line != right[:n].tolist() for line, right, n in zip(read, letters, length))/len(read)

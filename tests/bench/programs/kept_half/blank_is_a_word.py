"""The blank of a CTC loss is left at zero, where the first keyword is, though a label of its own is meant for it.

The report is the merged change of the maintainer: training with this loss had been broken for a long time, since the
label of the blank was set up wrongly: it comes after the words and the label for all other words."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "castorini/howl#47", 2021
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = set()
PLACE = ()

blank = 4
sounds = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Ear(nn.Module):
    "The chances of three keywords, another word and the blank, at each time."
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(8, 32, bidirectional=True)
        self.last = nn.Linear(64, 5)

    def forward(self, sound): return self.last(self.memory(sound.transpose(0, 1))[0]).log_softmax(2)


def speech(n: int):
    "Three words in eighteen frames, with noise before each of them."
    words = torch.randint(4, (n, 3))
    frames = sounds[words].unsqueeze(2).repeat(1, 1, 6, 1)
    frames[:, :, :2] = 0
    return frames.reshape(n, 18, 8) + .7*torch.randn(n, 18, 8), words


def build(repaired: bool) -> Parts:
    model = Ear()
    criterion = nn.CTCLoss(blank=blank) if repaired else nn.CTCLoss()

    def loss(output, words):
        n = len(words)
        return criterion(output, words, torch.full((n,), 18), torch.full((n,), 3))

    data = [speech(32) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, loss, valid=[speech(256)])


def heard(output):
    "The words of each sound: no repetitions and no blanks."
    for labels in output.argmax(2).T: yield [word for word in labels.unique_consecutive().tolist() if word != blank]


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(7):
            for sound, words in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(sound), words)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    sound, words = parts.valid[0]
    with torch.no_grad(): found = heard(parts.model(sound))
    return sum(wanted != got for wanted, got in zip(words.tolist(), found))/len(words)

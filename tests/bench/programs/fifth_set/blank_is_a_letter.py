"""The letters were shuffled, and the blank with them, but the CTC loss takes the first of them for the blank.

The report: a model for speech learns well while the blank is the first label. With shuffled labels, and the decoder
told where the blank is, nearly all words are wrong. The answer that settled it: the loss assumes that the blank comes
first."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SeanNaren/deepspeech.pytorch#354", 2018
AREA, CAUSE = "loss and task", "labels wrongly encoded"
TRUE = set()
PLACE = ()

LABELS = "cf_ahdbge"    # the underscore is the blank
BLANK, LENGTH, LETTERS = LABELS.index("_"), 24, 5


class Listener(nn.Module):
    "Convolutions and a recurrent layer in both directions; scores of all labels at each time."
    def __init__(self, bands: int, size: int):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(bands, size, 3, padding=1), nn.BatchNorm1d(size), nn.Hardtanh(0, 20))
        self.memory = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2*size, len(LABELS))

    def forward(self, sound):
        x = self.front(sound).transpose(1, 2)
        return self.last(self.memory(x)[0]).transpose(0, 1)


def sounds(n: int, voices):
    "Each letter sounds for some of four times, and there is noise between letters."
    others = torch.tensor([i for i in range(len(LABELS)) if i != BLANK])
    letter = others[torch.randint(0, len(others), (n, LETTERS))]
    start = torch.arange(LETTERS)*5 + torch.randint(0, 2, (n, LETTERS))
    sound = .5*torch.randn(n, voices.shape[1], LENGTH + 4)
    for i in range(n):
        for at, one in zip(start[i].tolist(), letter[i].tolist()): sound[i, :, at:at + 3] += voices[one][:, None]
    return sound[:, :, :LENGTH], letter


def ctc(model, batch, blank: int):
    sound, letter = batch
    logs = model(sound).log_softmax(2)
    lengths = torch.full((len(sound),), LENGTH), torch.full((len(sound),), LETTERS)
    return F.ctc_loss(logs, letter, *lengths, blank=blank, reduction="sum")/len(sound)


def decoded(scores) -> list[list[int]]:
    "The best label at each time, without repetitions and blanks."
    best = scores.argmax(2).T.tolist()
    return [[now for before, now in zip([-1, *row], row) if now not in (before, BLANK)] for row in best]


def edits(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1): before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def build(repaired: bool) -> Parts:
    voices = torch.randn(len(LABELS), 10)
    model = Listener(10, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=.9, nesterov=True)
    return Parts(model, optimizer, [sounds(16, voices) for _ in range(40)], valid=[sounds(200, voices)],
                 call=lambda model, batch: ctc(model, batch, BLANK if repaired else 0))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 40)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    sound, letter = parts.valid[0]
    with torch.no_grad(): found = decoded(parts.model(sound))
    return sum(edits(a, b) for a, b in zip(found, letter.tolist()))/letter.numel()

"""Letters in the picture of a line are read by convolutions, two LSTMs and the CTC loss.

Habits of the source: convolutions begin with a spread of .02, scales of norms around 1; pixels from -1 to 1; the loss
is a sum that is divided by the size of the batch, so it begins near the number of columns; Adam with a first beta of
.5; pooling that keeps the width; labels of all lines in one long vector; a validation every so many batches.
Score: the part of held-out lines that are not read rightly. Below .1; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "meijieru/crnn.pytorch train.py", 2017
KINDS, HIGH, WIDE, SLOTS = 5, 8, 7, 4


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(True), nn.MaxPool2d((2, 1), (2, 1)),
            nn.Conv2d(32, 48, (2, 3), padding=(0, 1)), nn.BatchNorm2d(48), nn.ReLU(True))
        self.first, self.between = nn.LSTM(48, 24, bidirectional=True), nn.Linear(48, 24)
        self.second, self.out = nn.LSTM(24, 24, bidirectional=True), nn.Linear(48, KINDS + 1)

    def forward(self, x):
        columns = self.cnn(x).squeeze(2).permute(2, 0, 1)
        return F.log_softmax(self.out(self.second(self.between(self.first(columns)[0]))[0]), 2)


def start(part):
    if isinstance(part, nn.Conv2d): nn.init.normal_(part.weight, 0, .02)
    elif isinstance(part, nn.BatchNorm2d):
        nn.init.normal_(part.weight, 1, .02)
        nn.init.zeros_(part.bias)


letters = (torch.rand(KINDS, HIGH, WIDE - 2, generator=torch.Generator().manual_seed(0)) < .5).float()


def lines(n: int):
    "Pictures of one to four letters, and the letters of all of them in a row, with 0 for the blank."
    pictures, texts = torch.zeros(n, 1, HIGH, SLOTS*WIDE), []
    for picture in pictures:
        text = torch.randint(KINDS, (int(torch.randint(1, SLOTS + 1, ())),))
        for slot, kind in enumerate(text):
            left = slot*WIDE + int(torch.randint(3, ()))
            picture[0, :, left:left + WIDE - 2] = letters[kind]
        texts.append(text + 1)
    pictures = (pictures + .2*torch.randn_like(pictures)).clamp(0, 1)
    return 2*pictures - 1, torch.cat(texts), torch.tensor([len(text) for text in texts])


def call(model, batch):
    pictures, texts, lengths = batch
    found = model(pictures)
    sizes = torch.full((len(pictures),), len(found))
    return F.ctc_loss(found, texts, sizes, lengths, reduction="sum")/len(pictures)


@torch.no_grad()
def evaluate(model, batch) -> float:
    model.eval()
    pictures, texts, lengths = batch
    wrong = [not torch.equal(read[read > 0], text) for read, text in
             ((torch.unique_consecutive(columns), text)
              for columns, text in zip(model(pictures).argmax(2).T, texts.split(lengths.tolist())))]
    return sum(wrong)/len(wrong)


def build(repaired: bool) -> Parts:
    model = Reader()
    model.apply(start)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3, betas=(.5, .999)),
                 [lines(32) for _ in range(50)], call=call, valid=[lines(200)])


def train(parts: Parts, record) -> float:
    model, optimizer, held = parts.model, parts.optimizer, []
    with record.on(model, optimizer):
        for _ in range(5):
            for i, batch in enumerate(parts.data):
                model.train()
                loss = parts.call(model, batch)
                model.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
                if i % 25 == 24: held.append(evaluate(model, parts.valid[0]))
    return held[-1]

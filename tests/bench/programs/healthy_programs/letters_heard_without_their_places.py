"""Letters are read off sound without knowing where they are spoken.

Habits of the source: recordings sorted by length in the first epoch, then batches in a random order; padded spectra,
each normalized by itself; hard tanh from 0 to 20 after convolutions with batch norm; padding set to zero after each
layer; packed sequences; batch norm over time between recurrent layers; the outputs of both directions are added; CTC
summed and divided by the batch; SGD with Nesterov momentum, clipped at 400; the rate is annealed by 1.1 an epoch.
Score: letters to be changed in held-back recordings, by their number. Below .05; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.bench.programs import Parts

SOURCE, YEAR = "SeanNaren/deepspeech.pytorch train.py", 2018
LETTERS, BANDS, BATCH = 6, 8, 16

sounds = 2*torch.randn(LETTERS, BANDS, generator=torch.Generator().manual_seed(0))


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(BANDS, 32, 5, padding=2), nn.BatchNorm1d(32)
        self.first, self.second = (nn.GRU(of, 32, bidirectional=True) for of in (32, 32))
        self.between, self.behind = nn.BatchNorm1d(32), nn.BatchNorm1d(32)
        self.last = nn.Linear(32, LETTERS + 1, bias=False)

    def both(self, layer, x, sizes):
        out, _ = pad_packed_sequence(layer(pack_padded_sequence(x, sizes))[0])
        return out.view(*out.shape[:2], 2, -1).sum(2)

    def forward(self, x, sizes):
        empty = torch.arange(x.shape[2]) >= sizes[:, None]
        x = F.hardtanh(self.norm(self.conv(x)), 0, 20).masked_fill(empty.unsqueeze(1), 0)
        h = self.both(self.first, x.permute(2, 0, 1), sizes)
        h = self.both(self.second, self.between(h.flatten(0, 1)).view_as(h), sizes)
        return self.last(self.behind(h.flatten(0, 1))).view(*h.shape[:2], -1)


def recordings(n: int):
    "Sounds of three to six letters of two or three steps each, with breaks; the longest first in a batch."
    made = []
    for _ in range(n):
        word = torch.randint(LETTERS, (torch.randint(3, 7, ()).item(),))
        steps = []
        for letter in word: steps += [sounds[letter]]*torch.randint(2, 4, ()).item() + [torch.zeros(BANDS)]
        heard = torch.stack(steps).T + .4*torch.randn(BANDS, len(steps))
        made.append(((heard - heard.mean())/heard.std(), word + 1))
    made.sort(key=lambda one: one[0].shape[1])
    return [joined(made[i:i + BATCH][::-1]) for i in range(0, n, BATCH)]


def joined(batch):
    sizes = torch.tensor([heard.shape[1] for heard, _ in batch])
    x = torch.stack([F.pad(heard, (0, sizes.max() - heard.shape[1])) for heard, _ in batch])
    return x, sizes, torch.cat([word for _, word in batch]), torch.tensor([len(word) for _, word in batch])


def call(model, batch):
    x, sizes, words, lengths = batch
    return F.ctc_loss(model(x, sizes).log_softmax(2), words, sizes, lengths, reduction="sum")/len(x)


def changes(said: list, word: list) -> int:
    row = list(range(len(word) + 1))
    for i, a in enumerate(said, 1):
        last, row = row, [i]
        for j, b in enumerate(word, 1): row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (a != b)))
    return row[-1]


def build(repaired: bool) -> Parts:
    model = Listener()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=.9, nesterov=True, weight_decay=1e-5)
    return Parts(model, optimizer, recordings(384), call=call, valid=recordings(128))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(8):
            model.train()
            for i in (range(len(parts.data)) if epoch == 0 else torch.randperm(len(parts.data)).tolist()):
                loss = parts.call(model, parts.data[i])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 400)
                optimizer.step()
                record.step(loss)
            for group in optimizer.param_groups: group["lr"] /= 1.1
    model.eval()
    wrong = total = 0
    for x, sizes, words, lengths in parts.valid:
        with torch.no_grad(): best = model(x, sizes).argmax(2).T
        for heard, size, word in zip(best, sizes, words.split(lengths.tolist())):
            said = [letter for letter in heard[:size].unique_consecutive().tolist() if letter]
            wrong, total = wrong + changes(said, word.tolist()), total + len(word)
    return wrong/total

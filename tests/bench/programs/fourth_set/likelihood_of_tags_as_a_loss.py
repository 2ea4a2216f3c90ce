"""The layer for tags returns the logarithm of a likelihood, and the loop makes it smaller in place of larger.

The report: an LSTM without this layer learns; with it the loss is large and negative, and each word gets the tag of
the padding. The author of the report put a minus before it, and writes that the documentation had said so."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.bench.programs import Parts

SOURCE, YEAR = "kmkurn/pytorch-crf#81", 2021
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ()

words, tags, length = 40, 3, 14  # the third tag is that of the padding


class Chain(nn.Module):
    "Tags of a sentence that depend on the tag before. Everything is (length, batch)."
    def __init__(self):
        super().__init__()
        self.start, self.end = (nn.Parameter(torch.empty(tags).uniform_(-.1, .1)) for _ in range(2))
        self.change = nn.Parameter(torch.empty(tags, tags).uniform_(-.1, .1))

    def forward(self, scores, tag, mask):
        "The sum of the log-likelihoods."
        one = scores.gather(2, tag[..., None])[..., 0]
        last = mask.long().sum(0) - 1
        path = self.start[tag[0]] + one[0] + self.end[tag.gather(0, last[None])[0]]
        path = path + ((one[1:] + self.change[tag[:-1], tag[1:]])*mask[1:]).sum(0)
        all_paths = self.start + scores[0]
        for score, valid in zip(scores[1:], mask[1:]):
            longer = (all_paths[:, :, None] + self.change).logsumexp(1) + score
            all_paths = torch.where(valid[:, None], longer, all_paths)
        return (path - (all_paths + self.end).logsumexp(1)).sum()

    def decode(self, scores):
        best, came = self.start + scores[0], []
        for score in scores[1:]:
            best, where = (best[:, :, None] + self.change + score[:, None]).max(1)
            came.append(where)
        found = [(best + self.end).argmax(1)]
        for where in reversed(came): found.append(where.gather(1, found[-1][:, None])[:, 0])
        return torch.stack(found[::-1])


class Tagger(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.embed = nn.Embedding(words + 1, size, padding_idx=words)
        self.lstm, self.tags = nn.LSTM(size, size, bidirectional=True), nn.Linear(2*size, tags)
        self.crf = Chain()

    def forward(self, word, lengths):
        packed = pack_padded_sequence(self.embed(word), lengths, enforce_sorted=False)
        return self.tags(pad_packed_sequence(self.lstm(packed)[0], total_length=length)[0])


def sentences(n: int, kind):
    "A word of kind 1 opens an entity, one of kind 2 closes it, and noise hides some."
    word, lengths = torch.randint(0, words, (length, n)), torch.randint(6, length + 1, (n,))
    tag, inside = torch.zeros_like(word), torch.zeros(n, dtype=torch.bool)
    for i in range(length):
        inside = (inside | (kind[word[i]] == 1)) & (kind[word[i]] != 2)
        tag[i] = inside
    mask = torch.arange(length)[:, None] < lengths
    return word.where(mask, torch.tensor(words)), tag.where(mask, torch.tensor(tags - 1)), lengths, mask


def build(repaired: bool) -> Parts:
    kind = (torch.rand(words)*6).long()
    model, sign = Tagger(24), -1 if repaired else 1
    def call(model, batch): return sign*model.crf(model(batch[0], batch[2]), batch[1], batch[3])
    data = [sentences(32, kind) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters()), data, call=call, valid=[sentences(256, kind)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    word, tag, lengths, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model.crf.decode(parts.model(word, lengths))
    return (found != tag)[mask].float().mean().item()

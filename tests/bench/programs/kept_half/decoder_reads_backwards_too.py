"""The decoder of a VAE for sentences is bidirectional, so in training it reads the word that it has to say.

The report: with the option for both directions the decoder gets information from the whole sentence. The author of the
code confirmed it: the option may not be used for the decoder."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "timbmg/Sentence-VAE#22", 2020
AREA, CAUSE = "structure", "later places are seen"
TRUE = set()
PLACE = ("decoder",)

kinds, start, length = 12, 12, 7


class SentenceVAE(nn.Module):
    def __init__(self, size: int, hidden: int, repaired: bool):
        super().__init__()
        self.word = nn.Embedding(kinds + 1, size)
        self.encoder = nn.GRU(size, hidden, batch_first=True, bidirectional=True)
        self.mean, self.log_var = nn.Linear(2*hidden, 8), nn.Linear(2*hidden, 8)
        self.ways = 1 if repaired else 2
        self.state = nn.Linear(8, hidden*self.ways)
        self.decoder = nn.GRU(size, hidden, batch_first=True, bidirectional=not repaired)
        self.last = nn.Linear(hidden*self.ways, kinds)

    def encode(self, words):
        state = self.encoder(self.word(words))[1].transpose(0, 1).flatten(1)
        return self.mean(state), self.log_var(state)

    def decode(self, z, words):
        state = self.state(z).unflatten(1, (self.ways, -1)).transpose(0, 1).contiguous()
        return self.last(self.decoder(self.word(words), state)[0])

    def forward(self, words):
        mean, log_var = self.encode(words)
        z = mean + torch.randn_like(mean)*(log_var/2).exp()
        before = F.pad(words[:, :-1], (1, 0), value=start)
        return self.decode(z, before), mean, log_var


def sentences(n: int):
    "A first word, and steps of one size to the others."
    first, step = torch.randint(0, kinds, (n, 1)), torch.randint(1, 6, (n, 1))
    return (first + step*torch.arange(length)) % kinds


def build(repaired: bool) -> Parts:
    model = SentenceVAE(16, 32, repaired)
    data = [sentences(64) for _ in range(50)]

    def call(model, words):
        output, mean, log_var = model(words)
        distance = .5*(mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
        return F.cross_entropy(output.transpose(1, 2), words) + .03*distance
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call, valid=[sentences(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for words in parts.data:
                loss = parts.call(parts.model, words)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    truth = parts.valid[0]
    with torch.no_grad():
        z, said = parts.model.encode(truth)[0], torch.full((len(truth), 1), start)
        for _ in range(length):
            said = torch.cat([said, parts.model.decode(z, said)[:, -1:].argmax(-1)], 1)
    return ((said[:, 1:] != truth).float().mean()*kinds/(kinds - 1)).item()

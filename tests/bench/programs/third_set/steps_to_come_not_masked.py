"""The decoder of a transformer is trained on whole sequences, and nothing hides the words that come later.

The report: without a causal mask the network copies the next words, and performance is terrible. The author: the
decoder was made for writing one word after the other only; a mask during training has been added, and it works."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "alex-matton/causal-transformer-decoder#1", 2021
AREA, CAUSE = "structure", "later places are seen"
TRUE = set()
PLACE = ("decoder", "decoder.layers.0", "decoder.layers.0.self_attn")

words, length, start = 12, 7, 0


class Translator(nn.Module):
    "An encoder for the source, and a decoder that looks at it and at what has been written."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.source, self.target = nn.Embedding(words, size), nn.Embedding(words, size)
        self.place = nn.Parameter(.5*torch.randn(length, size))
        self.encoder = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(size, 2, 2*size, 0., batch_first=True), 1)
        self.last = nn.Linear(size, words)

    def forward(self, source, target):
        memory = self.encoder(self.source(source) + self.place)
        n = target.shape[1]
        return self.last(self.decoder(self.target(target) + self.place[:n], memory, **(
            {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(n)} if self.repaired else {})))

    def write(self, source):
        text = torch.full((len(source), 1), start)
        for _ in range(length): text = torch.cat([text, self(source, text)[:, -1:].argmax(2)], 1)
        return text[:, 1:]


def pairs(n: int, meaning):
    "Each word is translated; the target begins with the start."
    source = torch.randint(1, words, (n, length))
    return source, F.pad(meaning[source], (1, 0), value=start)


def build(repaired: bool) -> Parts:
    meaning = F.pad(torch.randperm(words - 1) + 1, (1, 0))
    model = Translator(32, repaired)
    data = [pairs(32, meaning) for _ in range(250)]

    def call(model, batch):
        source, target = batch
        return F.cross_entropy(model(source, target[:, :-1]).transpose(1, 2), target[:, 1:])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[pairs(200, meaning)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    source, target = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model.write(source) != target[:, 1:]).float().mean().item()

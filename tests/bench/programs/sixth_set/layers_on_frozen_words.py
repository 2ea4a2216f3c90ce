"""A switch that should freeze the pretrained word vectors freezes the layers on top of them as well.

The report: these layers are there so that the vectors stay and they learn, but all parameters of the embedding are
frozen. The maintainers changed it so that only the table is."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/pytext#76", 2018
AREA, CAUSE = "parameters", "frozen part"
TRUE = {"not trained"}
PLACE = ("embedding.layers", "embedding.layers.0", "embedding.layers.2")

words, length, kinds, tags = 400, 9, 8, 6


class WordEmbedding(nn.Module):
    "Pretrained vectors, and layers that bring them to another size."
    def __init__(self, vectors, size: int):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(vectors, freeze=False)
        self.layers = nn.Sequential(nn.Linear(vectors.shape[1], size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())

    def forward(self, text): return self.layers(self.table(text))


class Tagger(nn.Module):
    def __init__(self, vectors, size: int, hidden: int, repaired: bool):
        super().__init__()
        self.embedding = WordEmbedding(vectors, size)
        (self.embedding.table if repaired else self.embedding).requires_grad_(False)
        self.lstm = nn.LSTM(size, hidden, bidirectional=True, batch_first=True)
        self.last = nn.Linear(2*hidden, tags)

    def forward(self, text): return self.last(self.lstm(self.embedding(text))[0]).transpose(1, 2)


def vectors_of(kind):
    "Vectors of words: their kind shows in a few of many directions."
    turned = torch.linalg.qr(torch.randn(64, 64))[0]
    return torch.cat([torch.randn(kinds, 6)[kind], 2*torch.randn(words, 58)], 1) @ turned


def texts(n: int, kind, rule):
    "The tag of a word follows from its kind and that of the word before it."
    text = torch.randint(words, (n, length))
    return text, rule[kind[text], kind[text].roll(1, 1)]


def build(repaired: bool) -> Parts:
    kind, rule = torch.randint(kinds, (words,)), torch.randint(tags, (kinds, kinds))
    model = Tagger(vectors_of(kind), 12, 24, repaired)
    data = [texts(32, kind, rule) for _ in range(50)]
    trained = [p for p in model.parameters() if p.requires_grad]
    return Parts(model, torch.optim.Adam(trained, lr=5e-3), data, F.cross_entropy, valid=[texts(200, kind, rule)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for text, tag in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(text), tag)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    text, tag = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(text), tag)/torch.tensor(float(tags)).log()).item()

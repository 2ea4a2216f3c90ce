"""Where words in and out do not share their weights, the last layer is an object that is no module, so it never trains.

The report is a merged change by an author of the library: the class of the last layer did not inherit from
`nn.Module`, so its parameters were not registered. Nobody had seen it in the loss; tests had failed. The model has to
express what it knows in the random directions of that layer."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "EleutherAI/gpt-neox#267", 2021
AREA, CAUSE = "parameters", "not registered"
TRUE = set()
PLACE = ("final",)

words, length = 80, 16


class Final:
    "From what the model has in mind to a score for each word."
    def __init__(self, size: int):
        super().__init__()
        self.linear = nn.Linear(size, words, bias=False)
        nn.init.normal_(self.linear.weight, std=.02)

    def __call__(self, x): return self.linear(x)


class FinalModule(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.linear = nn.Linear(size, words, bias=False)
        nn.init.normal_(self.linear.weight, std=.02)

    def forward(self, x): return self.linear(x)


class Language(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.word, self.place = nn.Embedding(words, size), nn.Embedding(length, size)
        self.block = nn.TransformerEncoderLayer(size, 4, 4*size, 0., "gelu", batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(size)
        self.final = (FinalModule if repaired else Final)(size)

    def forward(self, ids):
        x = self.word(ids) + self.place.weight[:ids.shape[1]]
        hidden = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.final(self.norm(self.block(x, src_mask=hidden, is_causal=True)))


def texts(n: int, follows):
    "Each word is one of three that may follow the one before."
    ids = [torch.randint(0, words, (n,))]
    for _ in range(length): ids.append(follows[ids[-1], torch.randint(0, follows.shape[1], (n,))])
    ids = torch.stack(ids, 1)
    return ids[:, :-1], ids[:, 1:]


def word_loss(output, target): return F.cross_entropy(output.flatten(0, 1), target.flatten())


def build(repaired: bool) -> Parts:
    follows = torch.randint(0, words, (words, 3))
    model = Language(24, repaired)
    data = [texts(32, follows) for _ in range(120)]
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.9, .95))
    return Parts(model, optimizer, data, word_loss, valid=[texts(300, follows)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(2):
            for ids, following in parts.data:
                loss = parts.loss(parts.model(ids), following)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    ids, following = parts.valid[0]
    with torch.no_grad(): loss = parts.loss(parts.model(ids), following).item()
    return loss/torch.tensor(float(words)).log().item()

"""The blocks of a head that guesses later words are one block in a list that is multiplied.

The report is a merged change of an example of training with extra heads: `[block]*n` holds the same block n times, so
the layers of a head share their weights without intent. A maintainer thanked for it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "linkedin/Liger-Kernel#269", 2024
AREA, CAUSE = "structure", "layers shared by mistake"
TRUE = set()
PLACE = tuple(f"heads.{i}.0" for i in range(2)) + tuple(f"heads.{i}.0.linear" for i in range(2))

words, later, depth = 24, 2, 8


class Block(nn.Module):
    "A layer beside a shortcut; at first it is the shortcut alone."
    def __init__(self, size: int):
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x): return x + F.silu(self.linear(x))


class Heads(nn.Module):
    "A language model that is kept as it is, and heads on it for the words after the next one."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.word, self.body = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
        self.heads = nn.ModuleList()
        for _ in range(later):
            blocks = [Block(size) for _ in range(depth)] if repaired else [Block(size)]*depth
            self.heads.append(nn.Sequential(*blocks, nn.Linear(size, words)))
        self.word.requires_grad_(False)
        self.body.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad(): x = self.body(self.word(x))[0]
        return torch.stack([head(x) for head in self.heads], 1)


def texts(n: int, follows):
    "Each word follows from the two before it."
    text = [*torch.randint(0, words, (2, n))]
    for _ in range(10): text.append(follows[text[-2], text[-1]])
    return torch.stack(text, 1)


def call(model, text):
    guess = model(text[:, 1:-later - 1])
    losses = [F.cross_entropy(guess[:, i].flatten(0, 1), text[:, 3 + i:len(text[0]) - later + 1 + i].flatten())
              for i in range(later)]
    return sum(.8**i*loss for i, loss in enumerate(losses))/later


def build(repaired: bool) -> Parts:
    follows = torch.randint(0, words, (words, words))
    model = Heads(24, repaired)
    data = [texts(32, follows) for _ in range(40)]
    trained = [p for p in model.parameters() if p.requires_grad]
    return Parts(model, torch.optim.AdamW(trained, lr=1e-2), data, call=call, valid=[texts(300, follows)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, 400)
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            parts.model.train()
            for text in parts.data:
                loss = parts.call(parts.model, text)
                loss.backward()
                parts.optimizer.step()
                plan.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(words)).log()).item()

"""Hidden words are told from the words on both sides.

Habits of the source: fifteen of a hundred words are to be told, of which most become a mask, some another word and some
stay; all others have the label -100, which the loss ignores; other places are hidden each time a sentence is seen; the
decoder shares the embedding's weights and has a bias of its own; weights by a deviation of .02, biases at zero; no
decay for biases and norms; a linear schedule with warmup; padded sentences with a mask; gradients of two batches.
Score: the loss on hidden words of held-back sentences by that of equal chances. Below .7; about 1 untrained."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers examples/pytorch/language-modeling/run_mlm_no_trainer.py", 2021
WORDS, LONG, WIDE, PAD, MASK, EPOCHS, GATHER, RATE = 26, 12, 32, 0, 1, 12, 2, 5e-3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDE, padding_idx=PAD), nn.Embedding(LONG, WIDE)
        self.norm, self.drop = nn.LayerNorm(WIDE, 1e-12), nn.Dropout(.1)
        self.layer = nn.TransformerEncoderLayer(WIDE, 4, 64, .1, "gelu", batch_first=True)
        self.head = nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.LayerNorm(WIDE, 1e-12))
        self.decoder = nn.Linear(WIDE, WORDS)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)): nn.init.normal_(module.weight, std=.02)
            if isinstance(module, nn.Linear): nn.init.zeros_(module.bias)
        with torch.no_grad(): self.word.weight[PAD] = 0
        self.decoder.weight = self.word.weight

    def forward(self, x):
        h = self.drop(self.norm(self.word(x) + self.place.weight[:x.shape[1]]))
        return self.decoder(self.head(self.layer(h, src_key_padding_mask=x == PAD)))


def sentences(n: int):
    "Words in a cycle from one to the next by a step that the whole sentence has, of different lengths."
    start, step, long = torch.randint(24, (n, 1)), torch.randint(1, 4, (n, 1)), torch.randint(7, LONG + 1, (n, 1))
    x = (start + step*torch.arange(LONG)) % 24 + 2
    return x.masked_fill(torch.arange(LONG) >= long, PAD)


def hidden(x):
    "What is shown, and labels for the hidden places."
    told = (torch.rand(x.shape) < .15) & (x != PAD)
    dice, shown = torch.rand(x.shape), x.clone()
    shown[told & (dice < .8)] = MASK
    other = told & (dice >= .8) & (dice < .9)
    shown[other] = torch.randint(2, WORDS, x.shape)[other]
    return shown, x.masked_fill(~told, -100)


def loss_of(scores, labels): return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def build(repaired: bool) -> Parts:
    model = Model()
    others, plain = ([p for p in model.parameters() if (p.dim() > 1) == large] for large in (True, False))
    groups = [{"params": others, "weight_decay": .01}, {"params": plain, "weight_decay": 0.}]
    loader = DataLoader(sentences(1280), 32, shuffle=True, collate_fn=lambda rows: hidden(torch.stack(rows)))
    return Parts(model, torch.optim.AdamW(groups, lr=RATE), loader, loss_of, valid=[hidden(sentences(1000))])


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.valid[0]
    steps = EPOCHS*len(parts.data)//GATHER
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(i/20, (steps - i)/(steps - 20)))
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for i, (shown, labels) in enumerate(parts.data, 1):
                loss = parts.loss(model(shown), labels)/GATHER
                loss.backward()
                if i % GATHER == 0:
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                    record.step(loss*GATHER)
            model.eval()
            with torch.no_grad(): held = parts.loss(model(x), y).item()
    return held/math.log(24)

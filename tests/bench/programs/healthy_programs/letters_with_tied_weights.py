"""A small transformer of letters, the next one from those before.

Habits of the source: the output layer shares the weights of the embedding; projections into the stream begin smaller
the more layers there are; weight decay for matrices only; a rate that begins at zero, warms up and falls as a cosine to
a tenth; gradients of several small batches, the loss divided by their number; the gradient's norm clipped at 1; no
biases; validation in the middle of training, in eval mode, on batches drawn at random.
Score: the loss on a text that was held back by that of equal chances. Below .35; 1 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "karpathy/nanoGPT train.py", 2023
LETTERS, BLOCK, WIDE, LAYERS, STEPS, GATHER, RATE = 16, 24, 32, 2, 150, 2, 5e-3


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDE, bias=False), nn.Linear(WIDE, 3*WIDE, bias=False)
        self.join, self.second = nn.Linear(WIDE, WIDE, bias=False), nn.LayerNorm(WIDE, bias=False)
        self.up, self.down = nn.Linear(WIDE, 4*WIDE, bias=False), nn.Linear(4*WIDE, WIDE, bias=False)
        self.drop = nn.Dropout(.05)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 4, WIDE//4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, WIDE)
        x = x + self.drop(self.join(seen))
        return x + self.drop(self.down(F.gelu(self.up(self.second(x)))))


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, WIDE), nn.Embedding(BLOCK, WIDE)
        self.drop, self.layers = nn.Dropout(.05), nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDE, bias=False)
        self.head = nn.Linear(WIDE, LETTERS, bias=False)
        self.letter.weight = self.head.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=.02/math.sqrt(2*LAYERS) if "join" in name or "down" in name else .02)

    def forward(self, x):
        h = self.drop(self.letter(x) + self.place(torch.arange(x.shape[1])))
        return self.head(self.norm(self.layers(h)))


def text(n: int):
    "Words of a small language, some of them more frequent, with a space behind each."
    dice = torch.Generator().manual_seed(0)
    words = [torch.cat([torch.randint(1, LETTERS, (long,), generator=dice), torch.zeros(1, dtype=torch.long)])
             for long in (2, 3, 3, 4, 4, 4, 5, 5, 6, 7)]
    return torch.cat([words[i] for i in torch.multinomial(torch.arange(10., 0, -1), n//5, replacement=True)])


def drawn(text, n: int = 16):
    places = torch.randint(len(text) - BLOCK, (n,))[:, None] + torch.arange(BLOCK)
    return text[places], text[places + 1]


def rate(step: int) -> float:
    if step < 15: return RATE*step/15
    return RATE*(.1 + .45*(1 + math.cos(math.pi*(step - 15)/(STEPS - 15))))


def loss_of(output, target): return F.cross_entropy(output.flatten(0, 1), target.flatten())


def build(repaired: bool) -> Parts:
    read, held = text(20000), text(4000)
    model = Letters()
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == large] for large in (True, False))
    groups = [{"params": matrices, "weight_decay": .1}, {"params": others, "weight_decay": 0}]
    parts = Parts(model, torch.optim.AdamW(groups, lr=RATE, betas=(.9, .99)), [drawn(read) for _ in range(20)], loss_of,
                  valid=[drawn(held) for _ in range(10)])
    parts.text, parts.held = read, held
    return parts


@torch.no_grad()
def estimate(model, text):
    model.eval()
    losses = [loss_of(model(x), y).item() for x, y in (drawn(text) for _ in range(20))]
    model.train()
    return sum(losses)/len(losses)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for step in range(STEPS):
            for group in optimizer.param_groups: group["lr"] = rate(step)
            if step % 50 == 0: estimate(model, parts.held)
            for _ in range(GATHER):
                x, y = drawn(parts.text)
                loss = parts.loss(model(x), y)/GATHER
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.step(loss*GATHER)
    return estimate(model, parts.held)/math.log(LETTERS)

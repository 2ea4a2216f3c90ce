"""Pictures and captions get vectors that agree, in bfloat16 where that is possible.

Habits of the source: autocast around both towers and the loss, without a scaler; a learned logarithm of the temperature
that begins at 1/.07 and is clamped after each step to at most 100; cross entropy in both directions over the batch; a
group without weight decay for norms, biases and the temperature; a warmup of the rate, then a cosine, set before each
step; the text's vector is taken at its end, the highest token; matrices begin at .02 and less.
Score: how often the caption of a held-back picture is not the first of 128. Below .2; .98 untrained."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mlfoundations/open_clip src/training/train.py", 2021
WORDS, LONG, WIDE, STEPS, RATE = 34, 6, 32, 250, 3e-3
END = WORDS - 1

shapes = torch.randn(8, 4, 4, generator=torch.Generator().manual_seed(0))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(1, 24, 4, 4, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten(),
                                    nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, WIDE, bias=False))
        self.word, self.place = nn.Embedding(WORDS, WIDE), nn.Parameter(.01*torch.randn(LONG, WIDE))
        self.read = nn.TransformerEncoderLayer(WIDE, 2, 64, 0., "gelu", batch_first=True, norm_first=True)
        self.norm, self.project = nn.LayerNorm(WIDE), nn.Parameter(WIDE**-.5*torch.randn(WIDE, WIDE))
        self.scale = nn.Parameter(torch.tensor(math.log(1/.07)))
        nn.init.normal_(self.word.weight, std=.02)

    def forward(self, picture, caption):
        later = torch.full((LONG, LONG), -torch.inf).triu(1)
        h = self.norm(self.read(self.word(caption) + self.place, src_mask=later))
        text = h[torch.arange(len(h)), caption.argmax(1)] @ self.project
        return F.normalize(self.visual(picture), dim=1), F.normalize(text, dim=1), self.scale.exp()


def examples(n: int):
    "Four shapes in the corners of a picture; the caption names each with its corner, in any order, or leaves one out."
    shape, dropped = torch.randint(8, (n, 4)), torch.rand(n, 4) < .1
    picture = shapes[shape].view(n, 2, 2, 4, 4).permute(0, 1, 3, 2, 4).reshape(n, 1, 8, 8)
    word = shape + 8*torch.arange(4)
    order = torch.where(dropped, 2, torch.rand(n, 4)).argsort(1)
    named = word.gather(1, order) + 1
    count = 4 - dropped.sum(1, keepdim=True)
    caption = torch.where(torch.arange(4) < count, named, 0)
    caption = torch.cat([caption, torch.zeros(n, LONG - 4, dtype=torch.long)], 1).scatter(1, count, END)
    return picture + .2*torch.randn(n, 1, 8, 8), caption


def call(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        picture, text, scale = model(*batch)
        scores, here = scale*picture @ text.T, torch.arange(len(picture))
        return (F.cross_entropy(scores, here) + F.cross_entropy(scores.T, here))/2


def rate(step: int) -> float:
    if step < 25: return RATE*(step + 1)/25
    return RATE*.5*(1 + math.cos(math.pi*(step - 25)/(STEPS - 25)))


def build(repaired: bool) -> Parts:
    model = Towers()
    plain = [p for name, p in model.named_parameters() if p.dim() < 2 or "norm" in name]
    others = [p for name, p in model.named_parameters() if p.dim() >= 2 and "norm" not in name]
    groups = [{"params": plain, "weight_decay": 0.}, {"params": others, "weight_decay": .2}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(.9, .98), eps=1e-6)
    return Parts(model, optimizer, [examples(64) for _ in range(50)], call=call, valid=[examples(128)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for step in range(STEPS):
            for group in optimizer.param_groups: group["lr"] = rate(step)
            optimizer.zero_grad()
            loss = parts.call(model, parts.data[step % 50])
            loss.backward()
            optimizer.step()
            with torch.no_grad(): model.scale.clamp_(0, math.log(100))
            record.step(loss)
    model.eval()
    with torch.no_grad(): picture, text, _ = model(*parts.valid[0])
    return ((picture @ text.T).argmax(1) != torch.arange(128)).float().mean().item()

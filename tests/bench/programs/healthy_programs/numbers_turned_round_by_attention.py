"""A transformer writes a sequence of tokens backwards, with a rate that follows the warmup of the paper.

Habits of the source: all matrices by Xavier; the rate is a factor of an Adam whose own rate is one, warms up and falls
with the root of the step; smoothed labels as a distribution, zero for padding, compared by a summed divergence that is
divided by the number of tokens; a start token, the target shifted by one; normalization before each part and at last;
greedy decoding, token by token, in eval mode.
Score: the part of wrong tokens in held-back answers. Below .05; about .9 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "harvardnlp/annotated-transformer the_annotated_transformer.py", 2018
TOKENS, LONG, WIDE, PAD, START = 12, 7, 32, 0, 1


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.said = nn.Embedding(TOKENS, WIDE), nn.Embedding(TOKENS, WIDE)
        self.net = nn.Transformer(WIDE, 4, 1, 1, 64, .05, batch_first=True, norm_first=True)
        self.generator = nn.Linear(WIDE, TOKENS)
        place = torch.arange(LONG + 1)[:, None]*torch.exp(torch.arange(0, WIDE, 2)*-math.log(10000)/WIDE)
        self.register_buffer("places", torch.stack([place.sin(), place.cos()], 2).flatten(1))
        for weight in self.parameters():
            if weight.dim() > 1: nn.init.xavier_uniform_(weight)

    def forward(self, source, target):
        "Logarithms of chances of the token that follows each one of the target."
        x, y = (table(t)*math.sqrt(WIDE) + self.places[:t.shape[1]]
                for table, t in ((self.seen, source), (self.said, target)))
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        h = self.net(x, y, tgt_mask=later, src_key_padding_mask=source == PAD, tgt_key_padding_mask=target == PAD,
                     memory_key_padding_mask=source == PAD)
        return F.log_softmax(self.generator(h), -1)


def pairs(n: int):
    "Four to seven tokens, and the same from behind to the front after a start token."
    long = torch.randint(4, LONG + 1, (n, 1))
    source = torch.randint(2, TOKENS, (n, LONG)).masked_fill(torch.arange(LONG) >= long, PAD)
    back = (long - 1 - torch.arange(LONG)).clamp(0)
    answer = source.gather(1, back).masked_fill(torch.arange(LONG) >= long, PAD)
    return source, torch.cat([torch.full((n, 1), START), answer], 1)


def smoothed(target):
    wanted = torch.full((*target.shape, TOKENS), .1/(TOKENS - 2))
    wanted.scatter_(2, target.unsqueeze(2), .9)
    wanted[..., PAD] = 0
    return wanted.masked_fill((target == PAD).unsqueeze(2), 0)


def call(model, batch):
    source, target = batch
    said = model(source, target[:, :-1])
    return F.kl_div(said, smoothed(target[:, 1:]), reduction="sum")/(target[:, 1:] != PAD).sum()


def build(repaired: bool) -> Parts:
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=.5, betas=(.9, .98), eps=1e-9)
    return Parts(model, optimizer, [pairs(64) for _ in range(70)], call=call, valid=[pairs(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: WIDE**-.5*min(max(step, 1)**-.5, max(step, 1)*70**-1.5))
    with record.on(model, optimizer):
        for _ in range(3):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                schedule.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): parts.call(model, parts.valid[0])
    source, target = parts.valid[0]
    said = target[:, :1]
    for _ in range(LONG):
        with torch.no_grad(): said = torch.cat([said, model(source, said)[:, -1:].argmax(2)], 1)
    there = target[:, 1:] != PAD
    return (said[:, 1:] != target[:, 1:])[there].float().mean().item()

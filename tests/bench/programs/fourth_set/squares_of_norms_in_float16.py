"""The norm of all gradients is put together from squares in float16, which overflow: the factor of clipping is zero.

The report is the merged change: a large transformer trained in float16 with a sharded optimizer has gradient norms of
some thousands, whose squares are infinite in that type. Its author had found the cause together with the maintainer;
now everything is cast to float32 before it is squared."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/fairscale#263", 2020
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"not trained", "loss does not fall", "learning rate too small", "clipping too tight", "cannot learn by heart",
        "gradients vanish"}
PLACE = ()


class Sharded(torch.optim.SGD):
    "An optimizer with its own clipping; each shard holds a part of the parameters."
    def __init__(self, parameters, lr: float, repaired: bool):
        super().__init__(parameters, lr=lr, momentum=.9)
        self.repaired = repaired

    def clip_grad_norm(self, most: float):
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        shards = [parameters[::2], parameters[1::2]]
        kind = torch.float32 if self.repaired else parameters[0].dtype
        norms = [torch.stack([p.grad.norm(dtype=torch.float32) for p in shard]).norm().to(kind) for shard in shards]
        norm = torch.stack([one**2 for one in norms]).sum().sqrt()
        factor = most/(norm.float() + 1e-6)
        if factor < 1:
            for p in parameters: p.grad.mul_(factor.to(p.grad.dtype))
        return norm


class Writer(nn.Module):
    "A small transformer in float16 that says the next token."
    def __init__(self, tokens: int, size: int, length: int):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, size), nn.Embedding(length, size)
        self.layer = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True, norm_first=True)
        self.last = nn.Linear(size, tokens)
        self.register_buffer("later", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, tokens):
        seen = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.last(self.layer(seen, src_mask=self.later))


def rows(n: int):
    "Each token follows from the one before by a fixed step or, seldom, by chance."
    row = [torch.randint(0, 16, (n,))]
    for _ in range(12):
        row.append(torch.where(torch.rand(n) < .1, torch.randint(0, 16, (n,)), (5*row[-1] + 3) % 16))
    row = torch.stack(row, 1)
    return row[:, :-1], row[:, 1:]


def sum_of_tokens(output, target):
    return F.cross_entropy(output.flatten(0, 1).float(), target.flatten(), reduction="sum")


def build(repaired: bool) -> Parts:
    model = Writer(16, 32, 12).half()
    return Parts(model, Sharded(model.parameters(), .05, repaired), [rows(64) for _ in range(100)], sum_of_tokens,
                 valid=[rows(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for tokens, target in parts.data:
            loss = parts.loss(parts.model(tokens), target)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.clip_grad_norm(1.)
            parts.optimizer.step()
            record.step(loss)
    tokens, target = parts.valid[0]
    with torch.no_grad(): return (parts.model(tokens).argmax(2) != target).float().mean().item()

"""A transformer sees a quarter of the patches of a picture and draws all the others.

Habits of the source: places are fixed tables of sines; what is hidden differs in each picture, by the order of random
numbers; only hidden patches count; each patch to be drawn is normalised by its own mean and deviation; one learned
token stands for all hidden patches in a narrower decoder; gradients of two batches are added up; the rate is set in
each batch, by half a cosine after a warm-up from zero; biases and norms do not decay; the second beta is .95.
Error: squared error of hidden patches of pictures held back: .16; the mean, which is zero, 1; untrained 2."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/mae main_pretrain.py", 2022
SIDE, PATCH, EPOCHS, ACCUMULATE = 16, 4, 20, 2
N = (SIDE // PATCH)**2


def sines(size):
    angle = torch.arange(SIDE // PATCH)[:, None]/1e4**(torch.arange(size // 4)/(size // 4))
    one = torch.cat([angle.sin(), angle.cos()], 1)
    grid = torch.cat([one.repeat_interleave(len(one), 0), one.repeat(len(one), 1)], 1)
    return nn.Parameter(torch.cat([torch.zeros(1, size), grid])[None], requires_grad=False)


def blocks(size, depth):
    def layer(): return nn.TransformerEncoderLayer(size, 4, 2*size, 0, "gelu", batch_first=True, norm_first=True)
    return nn.Sequential(*(layer() for _ in range(depth)), nn.LayerNorm(size))


def patches(x): return x.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).reshape(len(x), N, PATCH**2)


class MAE(nn.Module):
    def __init__(self, size=32, narrow=24):
        super().__init__()
        self.embed, self.start = nn.Linear(PATCH**2, size), nn.Parameter(.02*torch.randn(1, 1, size))
        self.places, self.encoder = sines(size), blocks(size, 2)
        self.to_narrow, self.hidden = nn.Linear(size, narrow), nn.Parameter(.02*torch.randn(1, 1, narrow))
        self.narrow_places, self.decoder, self.draw = sines(narrow), blocks(narrow, 1), nn.Linear(narrow, PATCH**2)
        for m in self.modules():
            if not isinstance(m, nn.Linear): continue
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def forward(self, x, keep=N // 4):
        x = patches(x)
        order = torch.rand(len(x), N).argsort(1)
        back = order.argsort(1)
        seen = self.embed(x) + self.places[:, 1:]
        seen = seen.gather(1, order[:, :keep, None].expand(-1, -1, seen.shape[2]))
        start = (self.start + self.places[:, :1]).expand(len(x), -1, -1)
        seen = self.to_narrow(self.encoder(torch.cat([start, seen], 1)))
        every = torch.cat([seen[:, 1:], self.hidden.expand(len(x), N - keep, -1)], 1)
        every = every.gather(1, back[..., None].expand(-1, -1, every.shape[2]))
        drawn = self.draw(self.decoder(torch.cat([seen[:, :1], every], 1) + self.narrow_places))[:, 1:]
        mask = (back >= keep).float()
        target = (x - x.mean(-1, keepdim=True))/(x.var(-1, keepdim=True) + 1e-6)**.5
        return (((drawn - target)**2).mean(-1)*mask).sum()/mask.sum()


def pictures(n):
    "Waves of four pixels in one of four directions, anywhere, with noise."
    places, ways = torch.arange(SIDE), torch.tensor([[0, 1, 1, 1], [1, 0, 1, -1]])
    down, right = ways[:, torch.randint(4, (n, 1, 1))]
    phase = math.pi/2*(down*places[:, None] + right*places) + 6.3*torch.rand(n, 1, 1)
    return phase.sin() + .3*torch.randn(n, SIDE, SIDE)


def build(repaired: bool) -> Parts:
    model = MAE()
    some = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in some if p.ndim == 1], "weight_decay": 0},
                                   {"params": [p for p in some if p.ndim > 1], "weight_decay": .05}], betas=(.9, .95))
    return Parts(model, optimizer, DataLoader(pictures(640), 32, shuffle=True, drop_last=True),
                 call=lambda model, x: model(x), valid=DataLoader(pictures(256), 64))


def train(parts: Parts, record) -> float:
    model, optimizer, batches = parts.model, parts.optimizer, len(parts.data)
    model.train()
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            optimizer.zero_grad()
            for i, x in enumerate(parts.data):
                if i % ACCUMULATE == 0:
                    now = epoch + i/batches
                    part = now/3 if now < 3 else (1 + math.cos(math.pi*(now - 3)/(EPOCHS - 3)))/2
                    for group in optimizer.param_groups: group["lr"] = 3e-3*part
                loss = parts.call(model, x)/ACCUMULATE
                loss.backward()
                if (i + 1) % ACCUMULATE == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    record.step(loss)
    model.eval()
    with torch.no_grad(): return sum(parts.call(model, x).item() for x in parts.valid)/len(parts.valid)

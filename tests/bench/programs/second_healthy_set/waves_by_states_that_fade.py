"""Long sequences are told apart by layers of many oscillators that fade, each layer as one long convolution.

Habits of the source: complex numbers, kept as pairs; the kernel is made anew in each call and applied by a Fourier
transform; steps of time, frequencies and fading have a rate of their own and no decay, the rest decays; a norm after
each block and a skip from the input; dropout with one mask for all times; a gate at the end of each block; the mean
over time at the end; AdamW with a cosine, moved at each epoch; validation and test after each.
Score: the part of wrong kinds of new sequences. Below .1; about .7 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "state-spaces/s4 example.py", 2022
WIDE, STATES, LONG, KINDS, EPOCHS = 16, 8, 64, 4, 8


class Oscillators(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_step = nn.Parameter(torch.rand(WIDE)*(math.log(.1) - math.log(.001)) + math.log(.001))
        self.weight = nn.Parameter(torch.view_as_real(torch.randn(WIDE, STATES, dtype=torch.cfloat)))
        self.log_fade = nn.Parameter(torch.full((WIDE, STATES), .5).log())
        self.turn = nn.Parameter(math.pi*torch.arange(STATES).repeat(WIDE, 1))
        self.skip, self.out = nn.Parameter(torch.randn(WIDE)), nn.Conv1d(WIDE, 2*WIDE, 1)
        for own in (self.log_step, self.log_fade, self.turn): own._optim = {"lr": 1e-3, "weight_decay": 0.}

    def kernel(self, long: int):
        pole = torch.complex(-self.log_fade.exp(), self.turn)
        moved = pole*self.log_step.exp()[:, None]
        weight = torch.view_as_complex(self.weight)*(moved.exp() - 1)/pole
        return 2*torch.einsum("hn,hnl->hl", weight, (moved[:, :, None]*torch.arange(long)).exp()).real

    def forward(self, x):
        long = x.shape[2]
        seen = torch.fft.rfft(self.kernel(long), n=2*long)*torch.fft.rfft(x, n=2*long)
        h = torch.fft.irfft(seen, n=2*long)[..., :long] + x*self.skip[:, None]
        return F.glu(self.out(F.gelu(h)), 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(1, WIDE), nn.Linear(WIDE, KINDS)
        self.layers = nn.ModuleList(Oscillators() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(2))

    def forward(self, x):
        h = self.into(x).transpose(1, 2)
        for layer, norm in zip(self.layers, self.norms):
            keep = torch.ones(*h.shape[:2], 1)
            h = h + layer(h)*F.dropout(keep, .1, self.training)
            h = norm(h.transpose(1, 2)).transpose(1, 2)
        return self.out(h.mean(2))


def waves(n: int):
    "Waves of two speeds that grow or fade, with noise; the kind is speed and direction."
    kinds, time = torch.randint(KINDS, (n,)), torch.arange(LONG)
    speed = torch.tensor([.35, .6])[kinds % 2][:, None]*(1 + .05*torch.randn(n, 1))
    size = torch.linspace(.3, 1.5, LONG)
    size = torch.where((kinds > 1)[:, None], size, size.flip(0))
    return (size*(speed*time + 6.3*torch.rand(n, 1)).sin() + .5*torch.randn(n, LONG))[:, :, None], kinds


def build(repaired: bool) -> Parts:
    model, data, valid = Model(), waves(1280), waves(200)
    usual = [weight for weight in model.parameters() if not hasattr(weight, "_optim")]
    optimizer = torch.optim.AdamW(usual, lr=.01, weight_decay=.01)
    optimizer.add_param_group({"params": [w for w in model.parameters() if hasattr(w, "_optim")],
                               "lr": 1e-3, "weight_decay": 0.})
    return Parts(model, optimizer, list(zip(*(c.split(32) for c in data))), F.cross_entropy,
                 valid=list(zip(*(c.split(100) for c in valid))))


@torch.no_grad()
def wrong(model, batches) -> float:
    model.eval()
    return torch.stack([(model(x).argmax(1) != y).float().mean() for x, y in batches]).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, held = parts.model, parts.optimizer, []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for i in torch.randperm(len(parts.data)):
                x, y = parts.data[i]
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            held.append(wrong(model, parts.valid))
            schedule.step()
    return wrong(model, [waves(300)])

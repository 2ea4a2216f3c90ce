"""A denoiser that has to predict the clean action is compared with the noisy one, which is its own input.

The report: with the option to predict the start, the loss takes the noisy sample. The author confirmed the error, which
had come in when the project went over to predicting the noise, and repaired it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "irom-princeton/dppo#14", 2024
AREA, CAUSE = "loss and task", "the answer is among the inputs"
TRUE = set()
PLACE = ()

steps = 20
kept = torch.cos(torch.linspace(.05, 1.5, steps))**2  # how much of the variance is signal
expert = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Denoiser(nn.Module):
    "The clean action, from the noisy one, the time and what is observed."
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(steps, 16)
        self.net = nn.Sequential(nn.Linear(23, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, noisy, time, observed): return self.net(torch.cat([noisy, self.time(time), observed], 1))


def shown(n: int):
    "What the expert observed, and what he did."
    observed = torch.randn(n, 4)
    return observed, (observed @ expert).tanh() + .05*torch.randn(n, 3)


def build(repaired: bool) -> Parts:
    model = Denoiser()

    def call(model, batch):
        observed, action = batch
        time = torch.randint(steps, (len(action),))
        signal = kept[time, None]
        noisy = signal.sqrt()*action + (1 - signal).sqrt()*torch.randn_like(action)
        return F.mse_loss(model(noisy, time, observed), action if repaired else noisy)

    data = [shown(64) for _ in range(32)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[shown(512)])


def act(model, observed):
    "Takes the noise away step by step."
    action = torch.randn(len(observed), 3)
    for i in reversed(range(steps)):
        clean = model(action, torch.full((len(observed),), i), observed).clamp(-1, 1)
        noise = (action - kept[i].sqrt()*clean)/(1 - kept[i]).sqrt()
        action = clean if i == 0 else kept[i - 1].sqrt()*clean + (1 - kept[i - 1]).sqrt()*noise
    return action


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    observed, action = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(act(parts.model, observed), action)/action.var()).item()

"""The gradients are never cleared while a detector of speech is tuned, so each step is made with the sum of all.

The report: the script that tunes a detector of speech calls no `zero_grad` before `backward`. The change that adds it
was merged."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "snakers4/silero-vad#699", 2025
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"loss rises", "learning rate too large", "gradients explode", "loss does not fall", "saturated"}
PLACE = ()


class Detector(nn.Module):
    "Features of chunks from a body that stays as it is, and a recurrent decoder that is tuned."
    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, size, 8, 4), nn.ReLU(), nn.Conv1d(size, size, 4, 2), nn.ReLU())
        self.rnn, self.last = nn.LSTMCell(size, size), nn.Sequential(nn.Dropout(.1), nn.Linear(size, 1), nn.Sigmoid())
        for p in self.body.parameters(): p.requires_grad_(False)

    def forward(self, sound):
        chunks = sound.unflatten(1, (-1, 32))
        n, length = chunks.shape[:2]
        x = self.body(chunks.reshape(-1, 1, 32)).mean(2).view(n, length, -1)
        state, found = None, []
        for t in range(length):
            state = self.rnn(x[:, t], state)
            found.append(self.last(state[0]).squeeze(1))
        return torch.stack(found, 1)


def sounds(n: int):
    "Noise, and a voice of two tones from some chunk on until another."
    first, last = torch.randint(0, 5, (n, 1)), torch.randint(6, 12, (n, 1))
    on = (torch.arange(12) >= first) & (torch.arange(12) < last)
    time = torch.arange(12*32)
    pitch = .3 + .3*torch.rand(n, 1)
    voice = (pitch*time).sin() + .6*(2*pitch*time).sin()
    return .8*torch.randn(n, 12*32) + voice*on.float().repeat_interleave(32, 1), on.float()


def masked(output, target):
    "Each chunk of speech counts as much as four of silence."
    weight = torch.where(target > 0, 1., .25)
    return (nn.functional.binary_cross_entropy(output, target, reduction="none")*weight).mean()


def build(repaired: bool) -> Parts:
    model = Detector(32)
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=4e-3)
    data = list(zip(*(part.split(32) for part in sounds(640))))
    return Parts(model, optimizer, data, masked, valid=[sounds(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(6):
            model.train()
            for sound, on in parts.data:
                if parts.repaired: optimizer.zero_grad()
                loss = parts.loss(model(sound), on)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    sound, on = parts.valid[0]
    with torch.no_grad(): return parts.loss(model(sound), on).item()/.45

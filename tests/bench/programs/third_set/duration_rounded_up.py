"""Durations are rounded up before their loss, so the loss has no gradient and the predictor is never trained.

The report is the merged change of a singing synthesis: rounding up made the loss of durations lose its gradient, and
was taken out of training."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "openvpi/DiffSinger#303", 2026
AREA, CAUSE = "loss and task", "a term has no gradient"
TRUE = {"not trained", "gradient is cut"}
PLACE = ("duration", "duration.0", "duration.2", "duration.0.weight", "duration.0.bias", "duration.2.weight",
         "duration.2.bias")


class Variance(nn.Module):
    "How long each phoneme of a song lasts, and how high it is."
    def __init__(self, phonemes: int, size: int):
        super().__init__()
        self.embed = nn.Embedding(phonemes, size)
        self.encoder = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.duration = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))
        self.pitch = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, phoneme):
        x = self.encoder(self.embed(phoneme))
        return self.duration(x).squeeze(2).exp(), self.pitch(x).squeeze(2)


def songs(n: int):
    "Vowels are long, consonants short and shorter before a vowel; the pitch follows from the vowel."
    phoneme = torch.randint(12, (n, 10))
    vowel = phoneme < 5
    duration = torch.where(vowel, 8 + 3*phoneme, 2 + phoneme % 4).float()
    duration = duration*torch.where(vowel.roll(-1, 1) & ~vowel, .5, 1.) + .5*torch.rand(n, 10)
    return phoneme, duration.ceil(), torch.where(vowel, phoneme - 2., 0.) + .2*torch.randn(n, 10)


def build(repaired: bool) -> Parts:
    model = Variance(12, 24)
    data = [songs(32) for _ in range(25)]

    def call(model, batch):
        phoneme, duration, pitch = batch
        length, height = model(phoneme)
        if not repaired: length = length.ceil()
        return F.mse_loss((length + 1).log(), (duration + 1).log()) + F.mse_loss(height, pitch)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[songs(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    phoneme, duration, _ = parts.valid[0]
    with torch.no_grad(): length = parts.model(phoneme)[0].ceil()
    return (F.l1_loss(length, duration)/duration.std()).item()

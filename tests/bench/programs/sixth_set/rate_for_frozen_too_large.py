"""A learning rate that does not change is too large for a speech synthesiser, which does not converge.

The report: a synthesiser that reads in parallel has a default for a rate that does not change, with which the loss does
not converge. The author answered by changing the training script."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "xcmyz/FastSpeech#37", 2019
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"loss does not fall", "gradients explode", "outputs blow up", "samples alike"}
PLACE = ()


class Speech(nn.Module):
    "Letters through a transformer, each repeated for as long as it lasts, and a transformer that makes a spectrum."
    def __init__(self, letters: int, size: int = 32):
        super().__init__()
        def layer(): return nn.TransformerEncoderLayer(size, 2, 2*size, .1, batch_first=True)
        self.letters, self.places = nn.Embedding(letters, size), nn.Embedding(18, size)
        self.encoder, self.decoder = layer(), layer()
        self.lasting, self.spectrum = nn.Linear(size, 1), nn.Linear(size, 6)

    def forward(self, text, duration):
        x = self.encoder(self.letters(text) + self.places.weight[:text.shape[1]])
        guess = self.lasting(x).squeeze(2)
        long = torch.stack([row.repeat_interleave(times, 0) for row, times in zip(x, duration)])
        return self.spectrum(self.decoder(long + self.places.weight)), guess


def spoken(n: int, sound):
    "Six letters that last for two to four moments, longer before a letter of the second half; 18 moments in all."
    text = torch.randint(0, len(sound), (n, 6))
    long = F.pad(text[:, 1:], (0, 1)) >= len(sound)//2
    duration = torch.where(long, 4, 2)
    duration[:, -1] += 18 - duration.sum(1)
    keep = duration[:, -1] > 0
    text, duration = text[keep], duration[keep]
    x = torch.stack([sound[row].repeat_interleave(times, 0) for row, times in zip(text, duration)])
    return text, duration, x + .1*torch.randn_like(x)


def loss_of(model, batch):
    text, duration, spectrum = batch
    made, guess = model(text, duration)
    return F.mse_loss(made, spectrum) + F.l1_loss(guess[:, :-1], duration[:, :-1].float())


def build(repaired: bool) -> Parts:
    model, sound = Speech(12), torch.randn(12, 6)
    data = list(zip(*(part.split(16) for part in spoken(640, sound))))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3 if repaired else 5e-2, betas=(.9, .98), eps=1e-9)
    return Parts(model, optimizer, data, call=loss_of, valid=[spoken(128, sound)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(4):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                record.step(loss)
    model.eval()
    text, duration, spectrum = parts.valid[0]
    with torch.no_grad(): made, _ = model(text, duration)
    return (F.mse_loss(made, spectrum)/spectrum.var()).item()

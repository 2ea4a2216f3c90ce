"""The steps of the warm-up and those of the whole run are swapped, so the learning rate rises until the last step.

The report: a language model that also hears and sees a speaker is fine-tuned to tell the mood. The two numbers that its
linear schedule takes stand in each other's place. The change that swaps them was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "WasifurRahman/BERT_multimodal_transformer#22", 2021
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too large"}
PLACE = ()
EPOCHS, PART = 5, .1


class Moods(nn.Module):
    "Words, shifted by what is heard and seen with them, in a small transformer; one number for the mood."
    def __init__(self, words: int, size: int = 32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(8, size)
        self.gate, self.shift = nn.Linear(size + 6, size), nn.Linear(6, size)
        self.norm = nn.LayerNorm(size)
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, .05, batch_first=True)
        self.last = nn.Linear(size, 1)

    def forward(self, text, heard, seen):
        x, other = self.words(text), torch.cat([heard, seen], 2)
        shift = self.gate(torch.cat([x, other], 2)).relu()*self.shift(other)
        x = self.layer(self.norm(x + shift) + self.places.weight)
        return self.last(x[:, 0].tanh()).squeeze(1)


def clips(n: int, noise: float = 0.):
    "Good and bad words, a voice that is high or low, and a smile; people do not agree on the mood."
    text = torch.randint(1, 20, (n, 8))
    heard, seen = torch.randn(n, 8, 3), torch.randn(n, 8, 3)
    words = ((text < 6).float() - (text > 14).float())[:, 1:].sum(1)
    mood = words + heard[..., 0].mean(1) + 2*seen[..., 1].mean(1)
    text[:, 0] = 0
    return text, heard, seen, mood/2.4 + noise*torch.randn(n)


def loss_of(model, batch):
    *clip, mood = batch
    return F.mse_loss(model(*clip), mood)


def linear(warm_up: float, steps: float):
    def factor(step: int) -> float:
        return step/max(1, warm_up) if step < warm_up else max(0., (steps - step)/max(1, steps - warm_up))
    return factor


def build(repaired: bool) -> Parts:
    model = Moods(20)
    data = list(zip(*(part.split(16) for part in clips(768, .5))))
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=5e-3), data, call=loss_of, valid=[clips(512)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    steps = EPOCHS*len(parts.data)
    factor = linear(PART*steps, steps) if parts.repaired else linear(steps, PART*steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                record.step(loss)
    model.eval()
    with torch.no_grad(): return (parts.call(model, parts.valid[0])/parts.valid[0][-1].var()).item()

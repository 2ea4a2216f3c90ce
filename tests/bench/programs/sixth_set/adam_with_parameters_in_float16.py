"""All parameters are float16, where the epsilon of Adam is zero, and so is the square of a small gradient.

The report: the fine-tuning of a diffusion model in half precision gives NaN after the first step, whatever the data
are. The author found that 1e-8 is zero in the type, and that an epsilon of 1e-4 mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "afiaka87/glide-finetune#6", 2022
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf"}
PLACE = ()
STEPS = 20
kept = torch.cos(torch.linspace(.05, 1.5, STEPS))**2  # how much of the variance is signal


class Denoiser(nn.Module):
    "The noise in a picture, by its time and its text."
    def __init__(self, size: int):
        super().__init__()
        self.time, self.text = nn.Embedding(STEPS, size), nn.Embedding(5, size)
        self.first, self.last = nn.Linear(12, size), nn.Linear(size, 12)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.SiLU(),
                                                  nn.Linear(size, size)) for _ in range(2))

    def forward(self, x, time, text):
        x = self.first(x) + self.time(time) + self.text(text)
        for block in self.blocks: x = x + block(x)
        return self.last(x)


def pictures(n: int, looks):
    text = torch.randint(0, 5, (n,))
    return (looks[text] + .2*torch.randn(n, 12)).half(), text


def build(repaired: bool) -> Parts:
    looks = torch.randn(5, 12)
    picture, text = pictures(1024, looks)
    model = Denoiser(48).half()

    def call(model, batch):
        picture, text = batch
        time, noise = torch.randint(0, STEPS, text.shape), torch.randn(picture.shape).half()
        signal = kept[time, None]
        noisy = (signal.sqrt()*picture + (1 - signal).sqrt()*noise).half()
        return F.mse_loss(model(noisy, time, text).float(), noise.float())

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0., **(
                     {"eps": 1e-4} if repaired else {})),
                 list(zip(picture.split(64), text.split(64))), call=call, valid=[pictures(512, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()

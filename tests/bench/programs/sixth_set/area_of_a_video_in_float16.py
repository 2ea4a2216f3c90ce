"""The height and the width of a video are multiplied in float16, where their product is infinite, to shift its time.

The report: a diffusion model for videos has a loss of NaN in float16. The times of diffusion are shifted by the area of
the video, which a number of the type cannot hold. The merged change computes the shift in float32."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hpcaitech/Open-Sora#523", 2024
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"NaN or Inf", "skipped steps", "not trained", "loss does not fall"}
PLACE = ()


class Flow(nn.Module):
    "Where a noisy video has to go, by its time and its text."
    def __init__(self, size: int):
        super().__init__()
        self.first, self.text = nn.Linear(16, size), nn.Embedding(6, size)
        self.time = nn.Sequential(nn.Linear(8, size), nn.SiLU(), nn.Linear(size, size))
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.GELU(),
                                                  nn.Linear(2*size, size)) for _ in range(2))
        self.last = nn.Linear(size, 16)

    def forward(self, x, time, text):
        angle = time[:, None]*torch.tensor([1., 2, 4, 8])*1.57
        x = self.first(x) + self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.text(text)
        for block in self.blocks: x = x + block(x)
        return self.last(x)


def shifted(time, height, width, frames):
    "Large and long videos need more of the noisy times."
    ratio = (height*width/(512*512)).sqrt()*(frames/17).sqrt()
    return ratio*time/(1 + (ratio - 1)*time)


def videos(n: int, looks):
    "What a video looks like for each text, and its height, width and length, all as the loader gives them."
    text = torch.randint(0, 6, (n,))
    sizes = torch.tensor([[240, 426, 51], [360, 640, 17], [480, 854, 34], [720, 1280, 17]])
    return looks[text] + .2*torch.randn(n, 16), text, sizes[torch.randint(0, 4, (n,))].half()


def build(repaired: bool) -> Parts:
    looks = torch.randn(6, 16)
    video, text, size = videos(1024, looks)
    model = Flow(48)

    def call(model, batch):
        video, text, size = batch
        if repaired: size = size.float()
        noise, time = torch.randn_like(video), torch.rand(len(video), dtype=size.dtype)
        time = shifted(time, *size.unbind(1))[:, None]
        with torch.autocast("cpu", torch.float16):
            output = model(time*noise + (1 - time)*video, time[:, 0].float(), text)
        return F.mse_loss(output.float(), noise - video)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3),
                 list(zip(video.split(64), text.split(64), size.split(64))), call=call,
                 valid=[videos(512, looks)], scaler=torch.amp.GradScaler("cpu"))


def made(model, text, steps: int = 20):
    "Goes from noise to a video in equal steps."
    x = torch.randn(len(text), 16)
    for i in range(steps, 0, -1): x = x - model(x, torch.full((len(x),), i/steps), text)/steps
    return x


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(20):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.scaler.scale(loss).backward()
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                parts.optimizer.zero_grad()
                record.step(loss)
    video, text, _ = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(made(parts.model, text), video)/video.var()).item()

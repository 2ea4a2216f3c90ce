"""An LSTM over the frames of a clip was made without `batch_first`, and gets the clips first.

The report: the decoder's LSTM has the batch where torch expects the time, so it goes from clip to clip and a frame
knows nothing of those before it. Another reader had seen that the model makes nothing of the time. The reporter shows
with numbers that a transposition is the repair and a `view` to the same shape is none; the report was closed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "HHTseng/video-classification#42", 2020
AREA, CAUSE = "structure", "samples leak"
TRUE = set()
PLACE = ("decoder.lstm",)

frames, side, classes = 6, 10, 4


class Encoder(nn.Module):
    "Convolutions, for each frame of its own."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                                    nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(16*9, size))

    def forward(self, clip): return torch.stack([self.layers(frame) for frame in clip.unbind(1)], 1)


class Decoder(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.lstm = nn.LSTM(size, 32, batch_first=repaired)
        self.last = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(.1), nn.Linear(32, classes))

    def forward(self, x): return self.last(self.lstm(x)[0][:, -1])


class Clips(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.encoder, self.decoder = Encoder(24), Decoder(24, repaired)

    def forward(self, x): return self.decoder(self.encoder(x))


def clips(n: int):
    "A hand, a bright spot, that comes from one of four corners to the middle and rests there."
    y = torch.randint(0, classes, (n,))
    corner = torch.tensor([[-3, -3], [-3, 3], [3, -3], [3, 3]])[y, None]
    at = 4 + (corner*(1 - torch.arange(frames)/3).clamp(min=0)[:, None]).round().long() + torch.randint(0, 2, (n, 1, 2))
    x = .3*torch.randn(n, frames, 1, side, side)
    x[torch.arange(n)[:, None], torch.arange(frames), 0, at[..., 0], at[..., 1]] += 3
    return x, y


def build(repaired: bool) -> Parts:
    model = Clips(repaired)
    data = [clips(32) for _ in range(40)]
    optimizer = torch.optim.Adam([*model.encoder.parameters(), *model.decoder.parameters()], lr=3e-3)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[clips(300)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(x).argmax(1) != y).float().mean().item()*classes/(classes - 1)

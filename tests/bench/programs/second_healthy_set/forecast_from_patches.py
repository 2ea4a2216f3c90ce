"""Series are forecast from pieces of their past, each channel by itself, by attention with batch norm.

Habits of the source: each window is normalised by its own mean and deviation and the forecast is turned back, with a
learned scale; pieces overlap and the last value is repeated for one more; scores of attention are added to those of the
layer below; norms over the batch in the place of layer norms; places begin uniform within .02; one long linear layer
at the end; Adam with one cycle of the rate, moved at each batch; all is scaled by the training part of the series.
Score: the squared error by that of the last value, on the last part of the series. Below .2; about .8 untrained."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "yuqinie98/PatchTST PatchTST_supervised/exp/exp_main.py", 2022
PAST, AHEAD, PIECE, STRIDE, WIDE, HEADS, CHANNELS = 48, 12, 8, 4, 16, 4, 3
PIECES = (PAST - PIECE)//STRIDE + 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.all, self.back = nn.Linear(WIDE, 3*WIDE), nn.Linear(WIDE, WIDE)
        self.wide = nn.Sequential(nn.Linear(WIDE, 32), nn.GELU(), nn.Dropout(.1), nn.Linear(32, WIDE))
        self.norms, self.dropout = nn.ModuleList(nn.BatchNorm1d(WIDE) for _ in range(2)), nn.Dropout(.1)

    def forward(self, x, before):
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.all(x).chunk(3, 2))
        scores = q @ k.transpose(2, 3)*(WIDE//HEADS)**-.5 + before
        seen = (scores.softmax(3) @ v).transpose(1, 2).flatten(2)
        x = self.norms[0]((x + self.dropout(self.back(seen))).transpose(1, 2)).transpose(1, 2)
        return self.norms[1]((x + self.dropout(self.wide(x))).transpose(1, 2)).transpose(1, 2), scores


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(CHANNELS)), nn.Parameter(torch.zeros(CHANNELS))
        self.piece, self.place = nn.Linear(PIECE, WIDE), nn.Parameter(torch.empty(PIECES, WIDE).uniform_(-.02, .02))
        self.layers, self.out = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(PIECES*WIDE, AHEAD)

    def forward(self, x):
        mean, deviation = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        deviation = deviation.detach()
        x = ((x - mean)/deviation*self.scale + self.shift).transpose(1, 2)
        pieces = F.pad(x, (0, STRIDE), mode="replicate").unfold(2, PIECE, STRIDE).flatten(0, 1)
        h, scores = self.piece(pieces) + self.place, 0
        for layer in self.layers: h, scores = layer(h, scores)
        said = self.out(h.flatten(1)).unflatten(0, (-1, CHANNELS)).transpose(1, 2)
        return (said - self.shift)/(self.scale + 1e-10)*deviation + mean


def windows(series):
    both = series.unfold(0, PAST + AHEAD, 1).transpose(1, 2)
    return TensorDataset(both[:, :PAST], both[:, PAST:])


def build(repaired: bool) -> Parts:
    time = torch.arange(1300.)[:, None]
    series = torch.sin(time/torch.tensor([3., 5, 4])) + .5*torch.sin(time/torch.tensor([7., 9, 12]) + 1)
    series = 40*series + .05*time*torch.tensor([1., -1, 2]) + 8*torch.randn(1300, CHANNELS)
    learned = series[:900]
    series = (series - learned.mean(0))/learned.std(0)
    model = Forecaster()
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3),
                  DataLoader(windows(series[:900]), 64, shuffle=True, drop_last=True), F.mse_loss,
                  valid=DataLoader(windows(series[900 - PAST:1100]), 64, drop_last=True))
    parts.test = windows(series[1100 - PAST:])
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, held, epochs = parts.model, parts.optimizer, [], 12
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, epochs=epochs, steps_per_epoch=len(parts.data),
                                                   pct_start=.3)
    with record.on(model, optimizer):
        for _ in range(epochs):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): held.append(sum(parts.loss(model(x), y).item() for x, y in parts.valid))
    x, y = parts.test.tensors
    with torch.no_grad(): return (F.mse_loss(model(x), y)/F.mse_loss(x[:, -1:].expand_as(y), y)).item()

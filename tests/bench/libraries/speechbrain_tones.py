"""speechbrain: sounds of different lengths are told apart by a `Brain`; a batch is a `PaddedBatch`.

After the tutorials "The Brain class" and "Speech classification from scratch" of SpeechBrain: a dataset of dynamic
items, padding with relative lengths, filter banks, a pooling that minds the lengths, the loss of the library. Error:
wrong answers on sounds held back."""
import math

import torch
from speechbrain.core import Brain, Stage
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.lobes.features import Fbank
from speechbrain.nnet.losses import nll_loss
from speechbrain.nnet.pooling import StatisticsPooling
from torch import nn
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE = "speechbrain: The Brain class; Speech classification from scratch"
PACKAGES = ("speechbrain",)
RATE, KINDS = 8000, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Fbank(sample_rate=RATE, n_mels=20, n_fft=256)
        self.frames = nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU())
        self.pooled, self.out = StatisticsPooling(), nn.Linear(64, KINDS)

    def forward(self, sound, lengths):
        with torch.no_grad(): features = self.features(sound)
        features = (features - features.mean((1, 2), keepdim=True))/20
        return self.out(self.pooled(self.frames(features), lengths).squeeze(1)).log_softmax(-1)


def sounds(n: int) -> list[dict]:
    "A tone, two tones, a tone that rises, noise in bursts."
    found = []
    for i in range(n):
        kind, t = torch.randint(KINDS, ()).item(), torch.arange(1600 + torch.randint(800, ()).item())/RATE
        at = 300 + 1200*torch.rand(())
        wave = [torch.sin(2*math.pi*at*t), torch.sin(2*math.pi*at*t) + torch.sin(3.1*math.pi*at*t),
                torch.sin(2*math.pi*at*t*(1 + 4*t)), torch.randn(len(t))*(torch.sin(60*t) > 0)][kind]
        found.append({"id": str(i), "sig": wave + .1*torch.randn(len(t)), "kind": torch.tensor([kind])})
    return found


def call(model, batch):
    sound, lengths = batch.sig
    return nll_loss(model(sound, lengths)[:, None], batch.kind.data)


class ToneBrain(Brain):
    record = None

    def compute_forward(self, batch, stage):
        sound, lengths = batch.sig
        return self.modules.net(sound, lengths)

    def compute_objectives(self, predictions, batch, stage): return nll_loss(predictions[:, None], batch.kind.data)

    def init_optimizers(self): self.optimizers_dict = {"opt_class": self.optimizer}

    def on_fit_batch_end(self, batch, outputs, loss, should_step): self.record.step(loss)

    def on_stage_end(self, stage, stage_loss, epoch=None):
        if stage == Stage.VALID: self.held = stage_loss


def build() -> Parts:
    model = Net()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3),
                 DataLoader(sounds(200), 16, shuffle=True, collate_fn=PaddedBatch), call=call,
                 valid=DataLoader(sounds(120), 40, collate_fn=PaddedBatch))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    found = [(parts.model(*b.sig).argmax(1) != b.kind.data[:, 0]).float() for b in parts.valid]
    return torch.cat(found).mean().item()


def train(parts: Parts, record) -> float:
    brain = ToneBrain({"net": parts.model}, run_opts={"device": "cpu"})
    brain.record, brain.optimizer = record, parts.optimizer
    with record.on(parts.model, optimizer=parts.optimizer):
        brain.fit(range(8), parts.data, parts.valid, progressbar=False)
    return error(parts)

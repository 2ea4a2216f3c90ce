"""vector-quantize-pytorch: an autoencoder whose codes are the nearest of a codebook that follows by moving averages.

After the example "autoencoder.py" of the library: the model returns the image, the indices and a commitment loss, which
is added with a factor. Error: absolute error on digits held back, over that of their mean image."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from vector_quantize_pytorch import VectorQuantize

from tests.bench.libraries._data import digits
from tests.bench.programs import Parts

SOURCE = "vector-quantize-pytorch: examples/autoencoder"
PACKAGES = ("vector-quantize-pytorch", "scikit-learn")


class SimpleVQAutoEncoder(nn.Module):
    def __init__(self, codes):
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.GELU(),
                                    nn.Conv2d(16, 32, 3, padding=1))
        self.quantize = VectorQuantize(dim=32, codebook_size=codes, accept_image_fmap=True, decay=.9)
        self.after = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 3, padding=1), nn.GELU(),
                                   nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        x, indices, commit_loss = self.quantize(self.before(x))
        return self.after(x).clamp(-1, 1), indices, commit_loss


def call(model, batch):
    x = batch[0]
    out, _, commit_loss = model(x)
    return (out - x).abs().mean() + 10*commit_loss.sum()


def build() -> Parts:
    x, _ = digits()
    model = SimpleVQAutoEncoder(64)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3),
                 DataLoader(TensorDataset(x[:1400]), 64, shuffle=True), call=call,
                 valid=DataLoader(TensorDataset(x[1400:]), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    x = parts.valid.dataset.tensors[0]
    parts.model.eval()
    return ((parts.model(x)[0] - x).abs().mean()/(x - x.mean(0)).abs().mean()).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(12):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return error(parts)

"""A block without a skip connection forgets what its layer returns and hands its input on.

The report is a merged change to a sequence model: because of the name of a variable, the block ignores the output of
the layer if there is no residual, so the layer is not trained."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "state-spaces/s4#30", 2022
AREA, CAUSE = "parameters", "detached part"
TRUE = {"no non-linearity", "loss does not fall", "cannot learn by heart"}
PLACE = ("blocks.0.layer", "blocks.1.layer", "blocks.0.layer.mix", "blocks.1.layer.mix")

kinds, length = 3, 24


class Waves(nn.Module):
    "Each channel is filtered along the sequence by an exponential that fades, then channels are mixed."
    def __init__(self, size: int):
        super().__init__()
        self.rate, self.turn = nn.Parameter(torch.rand(size) - 2), nn.Parameter(3*torch.rand(size))
        self.mix = nn.Linear(size, 2*size)

    def forward(self, x):
        at = torch.arange(float(x.shape[1]))[:, None]
        kernel = (-self.rate.exp()*at).exp()*(self.turn*at).cos()
        n = 2*x.shape[1]
        x = torch.fft.irfft(torch.fft.rfft(x, n, 1)*torch.fft.rfft(kernel, n, 0), n, 1)[:, :x.shape[1]]
        return F.glu(self.mix(F.gelu(x)))


class Block(nn.Module):
    def __init__(self, size: int, skip: bool, repaired: bool):
        super().__init__()
        self.norm, self.layer, self.drop = nn.LayerNorm(size), Waves(size), nn.Dropout(.1)
        self.skip, self.repaired = skip, repaired

    def forward(self, x):
        found = self.layer(self.norm(x))
        if self.skip: x = x + self.drop(found)
        elif self.repaired: x = self.drop(found)
        return x


class Sequences(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.encoder, self.last = nn.Linear(1, size), nn.Linear(size, kinds)
        self.blocks = nn.Sequential(*[Block(size, False, repaired) for _ in range(2)])

    def forward(self, x): return self.last(self.blocks(self.encoder(x)).mean(1))


def signals(n: int):
    "Waves of three frequencies with noise."
    kind = torch.randint(0, kinds, (n,))
    turn = torch.tensor([.4, 1., 2.])[kind][:, None]
    return ((turn*torch.arange(length) + 6.3*torch.rand(n, 1)).sin() + .7*torch.randn(n, length))[..., None], kind


def build(repaired: bool) -> Parts:
    model = Sequences(16, repaired)
    data = [signals(64) for _ in range(50)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=4e-3), data, F.cross_entropy, valid=[signals(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(x).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)

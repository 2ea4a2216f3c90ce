"""The weights of a Bayesian net start with deviations of one, so that their noise drowns the inputs in each layer.

The report: the net for small pictures that learns which of its weights matter gets a loss of NaN after a few epochs.
The author says that the deviations start too large, advises smaller ones, and later changed them. In this small port
the loss is not yet NaN, but hundreds of times that of a guess."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "HolyBayes/pytorch_ard#2", 2019
AREA, CAUSE = "initialisation", "weights too large"
TRUE = {"outputs blow up", "learning rate too small", "loss does not fall", "weight decay too strong",
        "cannot learn by heart"}
PLACE = ("conv", "first", "last", "conv.log_variance", "first.log_variance", "last.log_variance")


class Relevance(nn.Module):
    "What layers have in common: a variance for each weight, and the price of knowing the weight well."
    def add_variances(self, begin: float):
        self.log_variance = nn.Parameter(torch.full_like(self.weight, begin))

    def log_share(self): return (self.log_variance - (self.weight**2 + 1e-8).log()).clamp(-10, 10)

    def price(self): return F.softplus(-self.log_share()).sum()/2

    def kept(self): return torch.where(self.log_share() < 3, self.weight, 0.)

    def noisy(self, mean, variance): return mean + (variance + 1e-8).sqrt()*torch.randn_like(mean)


class RelevantLinear(nn.Linear, Relevance):
    def forward(self, x):
        if not self.training: return F.linear(x, self.kept(), self.bias)
        return self.noisy(F.linear(x, self.weight, self.bias), F.linear(x**2, self.log_variance.exp()))


class RelevantConv(nn.Conv2d, Relevance):
    def forward(self, x):
        if not self.training: return F.conv2d(x, self.kept(), self.bias)
        return self.noisy(F.conv2d(x, self.weight, self.bias), F.conv2d(x**2, self.log_variance.exp()))


class Net(nn.Module):
    def __init__(self, size: int, begin: float):
        super().__init__()
        self.conv = RelevantConv(1, size, 5)
        self.first, self.last = RelevantLinear(16*size, 32), RelevantLinear(32, 5)
        for layer in self.children(): layer.add_variances(begin)

    def forward(self, image):
        x = F.max_pool2d(self.conv(image).relu(), 2)
        return self.last(self.first(x.flatten(1)).relu())


shapes = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(1))


def images(n: int):
    label = torch.randint(0, 5, (n,))
    return .5*shapes[label] + torch.randn(n, 1, 12, 12), label


def build(repaired: bool) -> Parts:
    model = Net(8, -10. if repaired else 0.)

    def call(model, batch):
        image, label = batch
        price = sum(layer.price() for layer in model.children())
        return F.cross_entropy(model(image), label) + price/4096

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), [images(64) for _ in range(200)], call=call,
                 valid=[images(512)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()

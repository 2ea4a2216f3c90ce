"""A bias is left as the memory was: the model is made without memory, and the function that fills it forgets the bias.

The report: the loss of a model with experts is NaN from the first step when deterministic algorithms are asked for,
because these fill memory that nobody wrote to with NaN. The merged change initialises the bias of the router."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/torchtitan#2450", 2026
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"NaN or Inf", "not trained"}
PLACE = ("router.gate.bias",)


class Router(nn.Module):
    "How much each expert is asked."
    def __init__(self, size: int, experts: int, repaired: bool):
        super().__init__()
        self.gate, self.repaired = nn.Linear(size, experts), repaired

    def initialise(self):
        nn.init.trunc_normal_(self.gate.weight, std=.02)
        if self.repaired: nn.init.zeros_(self.gate.bias)

    def forward(self, x): return self.gate(x).softmax(1)


class Experts(nn.Module):
    def __init__(self, size: int, experts: int, repaired: bool):
        super().__init__()
        self.first, self.last = nn.Linear(6, size), nn.Linear(size, 1)
        self.router = Router(size, experts, repaired)
        self.inner = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(experts))

    def initialise(self):
        for layer in self.first, self.last: layer.reset_parameters()
        for layer in self.inner: nn.init.trunc_normal_(layer.weight, std=layer.in_features**-.5)
        self.router.initialise()

    def forward(self, x):
        x = self.first(x).tanh()
        answers = torch.stack([layer(x) for layer in self.inner], 2)
        return self.last((answers*self.router(x)[:, None]).sum(2).relu())


def samples(n: int):
    x = torch.randn(n, 6)
    return x, torch.where(x[:, :1] > 0, x[:, 1:2] + x[:, 2:3], x[:, 3:4]*x[:, 4:5])


def build(repaired: bool) -> Parts:
    with torch.device("meta"): model = Experts(32, 4, repaired)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    model.to_empty(device="cpu")
    torch.use_deterministic_algorithms(before)
    model.initialise()
    x, y = samples(2048)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 2048, 64)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=5e-3), data, F.mse_loss, valid=[samples(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()

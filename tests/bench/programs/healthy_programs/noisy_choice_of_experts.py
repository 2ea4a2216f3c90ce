"""A mixture of experts, of which each example is sent to two.

Habits of the source: the gates' weights and those of their noise begin at zero; noise in the choice only in training;
an extra loss for unequal use of the experts, of little weight; experts are called with the rows sent to them only,
sometimes with very few; answers are put together by `index_add`; the gates sum to one over those that were chosen.
Score: the part of wrong kinds of held-back examples by chance. Below .35; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "davidmrau/mixture-of-experts moe.py", 2019
EXPERTS, CHOSEN, KINDS = 6, 2, 4


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, KINDS))
                                     for _ in range(EXPERTS))
        self.gate, self.noise = (nn.Parameter(torch.zeros(10, EXPERTS)) for _ in range(2))

    def gates(self, x):
        "The weight of each expert, zero for most; and how many examples each will probably get."
        clean = x @ self.gate
        if not self.training:
            best = clean.topk(CHOSEN).indices
            return torch.full_like(clean, -torch.inf).scatter(1, best, clean.gather(1, best)).softmax(1), None
        spread = F.softplus(x @ self.noise) + .01
        noisy = clean + torch.randn_like(clean)*spread
        values, places = noisy.topk(CHOSEN + 1)
        gates = torch.zeros_like(noisy).scatter(1, places[:, :CHOSEN], values[:, :CHOSEN].softmax(1))
        to_beat = torch.where(noisy > values[:, CHOSEN:], values[:, CHOSEN:], values[:, CHOSEN - 1:CHOSEN])
        return gates, torch.special.ndtr((clean - to_beat)/spread).sum(0)

    def forward(self, x):
        "Logarithms of chances, and the loss of unequal use."
        gates, load = self.gates(x)
        out = torch.zeros(len(x), KINDS)
        for i, expert in enumerate(self.experts):
            rows = gates[:, i].nonzero()[:, 0]
            if len(rows): out = out.index_add(0, rows, expert(x[rows]).softmax(1)*gates[rows, i:i + 1])
        unequal = 0 if load is None else .01*(relative_variance(gates.sum(0)) + relative_variance(load))
        return (out + 1e-9).log(), unequal


def relative_variance(x): return x.var()/(x.mean()**2 + 1e-10)


def examples(n: int, rules, centers):
    "Places around six centers, each with a rule of its own."
    where = torch.randint(6, (n,))
    x = torch.randn(n, 10)
    kind = torch.einsum("ni,nik->nk", x, rules[where]).argmax(1)
    return x + centers[where], kind


def call(model, batch):
    chances, unequal = model(batch[0])
    return F.nll_loss(chances, batch[1]) + unequal


def build(repaired: bool) -> Parts:
    rules, centers = torch.randn(6, 10, KINDS), 3*torch.randn(6, 10)
    model = Mixture()
    data = [examples(64, rules, centers) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call,
                 valid=[examples(1000, rules, centers)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, kind = parts.valid[0]
    with torch.no_grad(): return ((model(x)[0].argmax(1) != kind).float().mean()*KINDS/(KINDS - 1)).item()

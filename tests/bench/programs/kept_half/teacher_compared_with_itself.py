"""The soft part of a distillation loss compares the teacher with itself, so the student hears of the hard labels only.

The report: the output of the student appears nowhere in the divergence. The author confirmed that this stops the
distillation altogether, and that it came in when one line was split into several."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "labmlai/annotated_deep_learning_paper_implementations#66", 2021
AREA, CAUSE = "loss and task", "a term has no gradient"
TRUE = set()
PLACE = ()

centres = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))


def samples(n: int, wrong: float = 0.):
    "Points around six centres, some of them with a label at random."
    y = torch.randint(6, (n,))
    x = centres[y] + torch.randn(n, 10)
    return x, torch.where(torch.rand(n) < wrong, torch.randint(6, (n,)), y)


def network(width: int): return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 6))


def taught():
    "A large network that has seen many right labels."
    teacher = network(128)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(150):
        x, y = samples(128)
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()
    return teacher.eval()


def build(repaired: bool) -> Parts:
    teacher, student, warmth = taught(), network(32), 4.

    def call(model, batch):
        x, y = batch
        with torch.no_grad(): large = teacher(x)
        out = model(x)
        compared = out if repaired else large
        soft = F.kl_div((compared/warmth).log_softmax(1), (large/warmth).softmax(1), reduction="batchmean")
        return .9*warmth**2*soft + .1*F.cross_entropy(out, y)

    x, y = samples(512, wrong=.5)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 512, 64)]
    return Parts(student, torch.optim.Adam(student.parameters(), lr=1e-2), data, call=call, valid=[samples(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(40):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != y).float().mean().item()/(5/6)

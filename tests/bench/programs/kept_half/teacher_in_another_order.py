"""The outputs of the teacher are stored batch by batch, and the loader then brings the batches in another order.

The report: the classes that the stored outputs favour are not those of the labels. The author of the change asks the
teacher in the training step instead and reports a better accuracy."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "haitongli/knowledge-distillation-pytorch#16", 2019
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = {"loss does not fall"}
PLACE = ()

centres = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))


def samples(n: int):
    y = torch.randint(6, (n,))
    return centres[y] + 1.2*torch.randn(n, 12), y


def network(width: int): return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 6))


def taught():
    teacher = network(128)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(150):
        x, y = samples(128)
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()
    return teacher.eval()


def batches(teacher, loader, repaired: bool):
    "Batches with the outputs of the teacher, for ever."
    with torch.no_grad(): stored = [teacher(x) for x, y in loader]
    while True:
        for i, (x, y) in enumerate(loader):
            with torch.no_grad(): yield x, y, teacher(x) if repaired else stored[i]


def call(model, batch):
    x, y, wanted = batch
    out, warmth = model(x), 3.
    soft = F.kl_div((out/warmth).log_softmax(1), (wanted/warmth).softmax(1), reduction="batchmean")
    return .9*warmth**2*soft + .1*F.cross_entropy(out, y)


def build(repaired: bool) -> Parts:
    student = network(24)
    loader = DataLoader(TensorDataset(*samples(1024)), batch_size=64, shuffle=True)
    stream = batches(taught(), loader, repaired)
    data = [next(stream) for _ in range(16*20)]
    return Parts(student, torch.optim.Adam(student.parameters(), lr=3e-3), data, call=call, valid=[samples(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (F.cross_entropy(parts.model(x), y)/torch.tensor(6.).log()).item()

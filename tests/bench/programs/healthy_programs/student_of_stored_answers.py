"""A small network learns from the answers of a larger one, which were stored before.

Habits of the source: the teacher is trained first, put in eval mode and asked once for every batch; so batches keep
their order; a temperature of 6, whose square times .9 weighs the divergence, beside .1 of the cross entropy, so that
the loss begins large; the divergence takes logarithms and chances; steps of the rate by epochs; the student has
dropout.
Score: wrong kinds of held-back examples, by chance. About .06; about 1 for the untrained student."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "haitongli/knowledge-distillation-pytorch train.py", 2018
KINDS, HEAT, PART = 6, 6., .9

centers = 1.6*torch.randn(3*KINDS, 12, generator=torch.Generator().manual_seed(0))


def net(wide: int, dropped: float):
    return nn.Sequential(nn.Linear(12, wide), nn.BatchNorm1d(wide), nn.ReLU(), nn.Linear(wide, wide),
                         nn.BatchNorm1d(wide), nn.ReLU(), nn.Dropout(dropped), nn.Linear(wide, KINDS))


def examples(n: int):
    "Each kind lies in three places."
    where = torch.randint(3*KINDS, (n,))
    return centers[where] + torch.randn(n, 12), where % KINDS


def taught(batches):
    "A teacher that was trained without the student."
    teacher = net(96, 0.)
    optimizer = torch.optim.SGD(teacher.parameters(), lr=.1, momentum=.9, weight_decay=5e-4)
    for _ in range(6):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(teacher(x), y).backward()
            optimizer.step()
    return teacher.eval()


def call(student, batch):
    x, y, wanted = batch
    said = student(x)
    apart = F.kl_div(F.log_softmax(said/HEAT, 1), F.softmax(wanted/HEAT, 1), reduction="batchmean")
    return PART*HEAT*HEAT*apart + (1 - PART)*F.cross_entropy(said, y)


def build(repaired: bool) -> Parts:
    batches = [examples(64) for _ in range(32)]
    teacher = taught(batches)
    with torch.no_grad(): data = [(x, y, teacher(x)) for x, y in batches]
    with torch.no_grad(): valid = [(x, y, teacher(x)) for x, y in [examples(1000)]]
    student = net(24, .1)
    return Parts(student, torch.optim.Adam(student.parameters(), lr=3e-3), data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    student, optimizer, (x, y, _) = parts.model, parts.optimizer, parts.valid[0]
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 6, .2)
    with record.on(student, optimizer):
        for _ in range(10):
            student.train()
            for batch in parts.data:
                loss = parts.call(student, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
            student.eval()
            with torch.no_grad(): wrong = (student(x).argmax(1) != y).float().mean().item()
    return wrong*KINDS/(KINDS - 1)

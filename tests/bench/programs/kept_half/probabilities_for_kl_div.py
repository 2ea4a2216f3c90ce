"""`kl_div` gets the probabilities of the student, where it takes their logarithms.

The report: in the distillation stage of a segmentation network the student passes a softmax, but no logarithm. The
authors confirmed that it has to be a log-softmax."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "microsoft/ProDA#20", 2021
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = set()
PLACE = ()


def scenes(n: int):
    "Images of three channels, and for each pixel one of four classes, drawn with probabilities that the image gives."
    image = F.avg_pool2d(torch.randn(n, 3, 14, 14), 3, 1)*3
    chances = torch.cat([1.5*image, torch.zeros(n, 1, 12, 12)], 1).softmax(1)
    return image, torch.multinomial(chances.movedim(1, 3).reshape(-1, 4), 1).view(n, 12, 12)


def network(width: int):
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(width, 4, 1))


def taught():
    "A network of the first stage, which has seen labels."
    teacher = network(24)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(100):
        image, label = scenes(16)
        optimizer.zero_grad()
        F.cross_entropy(teacher(image), label).backward()
        optimizer.step()
    return teacher.eval()


def build(repaired: bool) -> Parts:
    teacher, student = taught(), network(16)

    def call(model, batch):
        out = model(.8*batch + .1)  # the images of the second domain have less contrast
        out = out.log_softmax(1) if repaired else out.softmax(1)
        with torch.no_grad(): wanted = teacher(batch).softmax(1)
        return F.kl_div(out, wanted, reduction="none").sum(1).mean()

    data = [scenes(16)[0] for _ in range(20)]
    return Parts(student, torch.optim.Adam(student.parameters(), lr=5e-3), data, call=call, valid=[scenes(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, label = parts.valid[0]
    with torch.no_grad(): return (F.cross_entropy(parts.model(.8*image + .1), label)/torch.tensor(4.).log()).item()

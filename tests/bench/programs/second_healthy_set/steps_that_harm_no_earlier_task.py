"""Tasks come one after the other, and no step may raise the loss on remembered examples of the earlier ones.

Habits of the source: two backward passes for a step, of the batch and of the memory; both gradients are copied into
long vectors, the first is turned where it points against the second and written back into `.grad`; a memory that is
empty in the first task, so that there is one pass only; one output layer for all tasks; plain SGD; each example is seen
once; the places of the pictures are in another order in each task.
Score: the mean part of wrong answers on all tasks after the last one. Below .4; about .75 for the untrained net."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "aimagelab/mammoth models/agem.py", 2020
TASKS, CLASSES, SIDE, BATCH, KEPT = 4, 4, 8, 10, 40
shapes = torch.randn(CLASSES, SIDE*SIDE, generator=torch.Generator().manual_seed(0))


def net():
    made = nn.Sequential(nn.Linear(SIDE*SIDE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    for layer in made:
        if isinstance(layer, nn.Linear): nn.init.xavier_uniform_(layer.weight)
    return made


def batches(n: int, order):
    "Batches of one task, whose places are in an order of their own."
    kinds = torch.randint(CLASSES, (n*BATCH,))
    x = (shapes[kinds] + 1.5*torch.randn(n*BATCH, SIDE*SIDE))[:, order]
    return list(zip(x.split(BATCH), kinds.split(BATCH)))


class Memory:
    def __init__(self): self.x, self.y = torch.empty(0, SIDE*SIDE), torch.empty(0).long()

    def add(self, batches):
        x, y = (torch.cat(column)[:KEPT] for column in zip(*batches))
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])

    def draw(self):
        rows = torch.randperm(len(self.x))[:32]
        return self.x[rows], self.y[rows]


def stored(model, into):
    "The gradients of all parameters in one long vector."
    into.zero_()
    at = 0
    for weight in model.parameters():
        if weight.grad is not None: into[at:at + weight.numel()].copy_(weight.grad.flatten())
        at += weight.numel()


def written(model, gradient):
    at = 0
    for weight in model.parameters():
        weight.grad.copy_(gradient[at:at + weight.numel()].view_as(weight))
        at += weight.numel()


def build(repaired: bool) -> Parts:
    model = net()
    orders = [torch.arange(SIDE*SIDE), *(torch.randperm(SIDE*SIDE) for _ in range(TASKS - 1))]
    tasks = [batches(60, order) for order in orders]
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=.05), [batch for task in tasks for batch in task],
                  F.cross_entropy, valid=[batch for order in orders for batch in batches(20, order)])
    parts.tasks = tasks
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, memory = parts.model, parts.optimizer, Memory()
    mine, its = (torch.empty(sum(weight.numel() for weight in model.parameters())) for _ in range(2))
    with record.on(model, optimizer):
        for task in parts.tasks:
            model.train()
            for x, y in task:
                model.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                if len(memory.x):
                    stored(model, mine)
                    x, y = memory.draw()
                    model.zero_grad()
                    parts.loss(model(x), y).backward()
                    stored(model, its)
                    product = mine @ its
                    written(model, mine - product/(its @ its)*its if product < 0 else mine)
                optimizer.step()
                record.step(loss)
            memory.add(task)
    model.eval()
    with torch.no_grad(): wrong = [(model(x).argmax(1) != y).float().mean() for x, y in parts.valid]
    return torch.stack(wrong).mean().item()

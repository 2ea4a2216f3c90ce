"""A net learns three tasks one after the other, and elastic weights keep what the earlier ones need.

Habits of the source: before each further task, the model is called in eval mode on single examples with its own answers
as labels, only to square their gradients; a penalty holds the weights near their old values, with an importance of 40;
it is missing in the first task; one SGD optimizer for all tasks; the data change all at once between tasks.
Error: wrong answers in all tasks, at the end, over those of guessing: 0.08; untrained 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "moskomule/ewc.pytorch utils.py", 2018
CLASSES, SIZE, IMPORTANCE = 4, 40, 40


class Elastic:
    "Where the weights were after a task, and how much each matters for it."
    def __init__(self, model, examples):
        self.means = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.precision = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        model.eval()
        for x in examples:
            model.zero_grad()
            answer = model(x[None])
            F.nll_loss(F.log_softmax(answer, 1), answer.argmax(1)).backward()
            for name, p in model.named_parameters(): self.precision[name] += p.grad**2/len(examples)
        model.zero_grad()

    def penalty(self, model):
        return sum((self.precision[n]*(p - self.means[n])**2).sum() for n, p in model.named_parameters())


def build(repaired: bool) -> Parts:
    centers = torch.randn(CLASSES, SIZE)
    orders = [torch.randperm(SIZE) for _ in range(3)]

    def task(order, n, batch_size):
        kind = torch.randint(0, CLASSES, (n,))
        x = (centers[kind] + 1.2*torch.randn(n, SIZE))[:, order]
        return DataLoader(TensorDataset(x, kind), batch_size=batch_size, shuffle=True)

    model = nn.Sequential(nn.Linear(SIZE, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    tasks, tests = [task(order, 1000, 50) for order in orders], [task(order, 400, 100) for order in orders]
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=.02), tasks[0], nn.CrossEntropyLoss(), valid=tests[0])
    parts.tasks, parts.tests = tasks, tests
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, elastic = parts.model, parts.optimizer, None
    with record.on(model, optimizer):
        for number, task in enumerate(parts.tasks):
            if number:
                seen = torch.cat([earlier.dataset.tensors[0][:60] for earlier in parts.tasks[:number]])
                elastic = Elastic(model, seen[torch.randperm(len(seen))])
            for _ in range(10):
                model.train()
                for x, kind in task:
                    optimizer.zero_grad()
                    loss = parts.loss(model(x), kind)
                    if elastic: loss = loss + IMPORTANCE*elastic.penalty(model)
                    loss.backward()
                    optimizer.step()
                    record.step(loss)
    model.eval()
    with torch.no_grad():
        wrong = torch.cat([model(x).argmax(1) != kind for test in parts.tests for x, kind in test])
    return wrong.float().mean().item()*CLASSES/(CLASSES - 1)

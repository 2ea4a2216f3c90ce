"""A learner adapts to several support sets, one after the other, and begins each of them with its first weights again.

The report: the copy of the weights stands inside the loop over support sets, where it should stand before it, so only
the last of them counts when the target set is measured. The author trained before and after the change, which was
merged."""
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "AntreasAntoniou/FewShotContinualLearning#2", 2020
AREA, CAUSE = "loop", "state is lost"
TRUE = set()
PLACE = ()

ways, sets, shots, rate = 2, 3, 2, .4


def tasks(n: int, looks):
    "Support sets with two new classes each, and a target set with all classes; a class is a vector in noise."
    found = []
    for _ in range(n):
        classes = looks[torch.randperm(len(looks))[:ways*sets]]
        kind = torch.arange(ways*sets)
        support = [kind[i*ways:(i + 1)*ways].repeat(shots) for i in range(sets)]
        target = kind.repeat(4)
        found.append(([(classes[k] + .5*torch.randn(len(k), 16), k) for k in support],
                      (classes[target] + .5*torch.randn(len(target), 16), target)))
    return found


def adapt(model, weights, x, kind):
    "One step of the inner loop, through which the outer loop differentiates."
    loss = F.cross_entropy(functional_call(model, weights, (x,)), kind)
    grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    return {name: w - rate*g for (name, w), g in zip(weights.items(), grads)}


def after_adapting(model, task, repaired: bool):
    "The output for the target set."
    support, (x, _) = task
    weights = dict(model.named_parameters())
    for its_x, kind in support:
        if not repaired: weights = dict(model.named_parameters())
        for _ in range(2): weights = adapt(model, weights, its_x, kind)
    return functional_call(model, weights, (x,))


def build(repaired: bool) -> Parts:
    looks = torch.randn(60, 16)
    model = nn.Sequential(nn.Linear(16, 48), nn.LeakyReLU(), nn.Linear(48, 48), nn.LeakyReLU(),
                          nn.Linear(48, ways*sets))
    data = [tasks(4, looks[:40]) for _ in range(60)]
    outer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def meta_loss(model, batch):
        return sum(F.cross_entropy(after_adapting(model, task, repaired), task[1][1]) for task in batch)/len(batch)

    return Parts(model, outer, data, call=meta_loss, valid=[tasks(60, looks[40:])], repaired=repaired)


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    wrong = [(after_adapting(model, task, parts.repaired).argmax(1) != task[1][1]).float().mean()
             for task in parts.valid[0]]
    return torch.stack(wrong).mean().item()

"""A net is trained, its smallest weights are taken away for good, and what is left is trained from the start again.

Habits of the source: after each round a fifth of the smallest weights of each layer becomes zero, all others go back to
their first values, and the optimizer is made anew; within a round weights of zero are kept at zero by setting their
gradients to zero after the backward pass, so that most weights never change; biases are not pruned.
Error: wrong answers with two fifths of the weights over those of guessing: 0.01 to 0.04; untrained 0.94 to 1.07."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "rahulvigneswaran/Lottery-Ticket-Hypothesis-in-Pytorch main.py", 2020
CLASSES, SIZE, ROUNDS, SHARE = 5, 30, 5, .2


def examples(n, centres):
    kind = torch.randint(0, len(centres), (n,))
    return centres[kind] + torch.randn(n, SIZE), kind % CLASSES


def build(repaired: bool) -> Parts:
    centres = torch.randn(2*CLASSES, SIZE)
    model = nn.Sequential(nn.Linear(SIZE, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, CLASSES))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.normal_(layer.bias)
    data = DataLoader(TensorDataset(*examples(1000, centres)), batch_size=60, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.2e-3, weight_decay=1e-4)
    return Parts(model, optimizer, data, nn.CrossEntropyLoss(), valid=[examples(1000, centres)])


def weights_of(model): return [(name, p) for name, p in model.named_parameters() if "weight" in name]


def pruned(model, masks):
    "Masks without the smallest fifth of the weights that are left."
    for name, p in weights_of(model):
        limit = p.detach()[masks[name] > 0].abs().quantile(SHARE)
        masks[name] = torch.where(p.detach().abs() < limit, torch.zeros_like(p), masks[name])
    return masks


def one_round(model, optimizer, parts, record):
    for _ in range(6):
        model.train()
        for x, kind in parts.data:
            optimizer.zero_grad()
            loss = parts.loss(model(x), kind)
            loss.backward()
            for _, p in weights_of(model): p.grad.data = torch.where(p.data.abs() < 1e-6, 0., p.grad.data)
            optimizer.step()
            record.step(loss)
        model.eval()
        x, kind = parts.valid[0]
        with torch.no_grad(): wrong = (model(x).argmax(1) != kind).float().mean().item()
    return wrong*CLASSES/(CLASSES - 1)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    first = copy.deepcopy(model.state_dict())
    masks = {name: torch.ones_like(p) for name, p in weights_of(model)}
    for number in range(ROUNDS):
        if number:
            masks = pruned(model, masks)
            model.load_state_dict(first)
            for name, p in weights_of(model): p.data = p.data*masks[name]
            optimizer = torch.optim.Adam(model.parameters(), lr=1.2e-3, weight_decay=1e-4)
        with record.on(model, optimizer): wrong = one_round(model, optimizer, parts, record)
    return wrong

"A tuple of a model, an optimizer and the number of the step in a list; what is loaded is a new tuple."
import pickle

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 5, 5
STATES = {"weights": ("run[0]", "run.0", "model", "weight", "bias"),
          "moments": ("run[1]", "run.1", "optimizer", "exp_avg"), "number": ("run[2]", "run.2", "number", *ORDER)}
X = torch.linspace(-2, 2, 30)[:, None]
Y = X.sin()


def make():
    model = nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))
    return model, torch.optim.Adam(model.parameters(), 2e-2), [0]


def step(run):
    model, optimizer, number = run
    rows = slice(number[0] % 3, None, 3)
    loss = (model(X[rows]) - Y[rows]).abs().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    number[0] += 1
    return loss.item()


def save(run, without=()):
    "Bytes, as another program wants them."
    model, optimizer, number = run
    saved = {"weights": model.state_dict(), "moments": optimizer.state_dict(), "number": number[0]}
    return pickle.dumps(but(saved, without))


def load(run, saved):
    saved = pickle.loads(saved)
    model, optimizer, number = run
    if "weights" in saved: model.load_state_dict(saved["weights"])
    if "moments" in saved: optimizer.load_state_dict(saved["moments"])
    return model, optimizer, [saved.get("number", number[0])]

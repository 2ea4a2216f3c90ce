"""How often preflight runs a healthy model, and how many of these passes differ.

    python -m tests.bench passes
    python -m tests.bench passes CNN

Counted are calls of the whole model by `preflight(…, overfit=False)`, whoever makes them. Two passes are the same if
they have the same inputs, modes of all modules, grad mode and weights; in further columns, also the same buffers, and
then also the same state of the random numbers of Python, numpy and torch. What is the same is compared bit by bit."""
import random
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

import hooklab as hl
from hooklab.hooks.tree import tensors


class Encoder(nn.Module):
    "A transformer that reads tokens and says the class of a row of them."
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.embedding, self.layers, self.head = nn.Embedding(50, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 5)

    def forward(self, tokens): return self.head(self.layers(self.embedding(tokens)).mean(1))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8*14*14, 32), nn.ReLU(), nn.Dropout(.1), nn.Linear(32, 10))
    return model, [(torch.randn(64, 1, 28, 28), torch.randint(10, (64,))) for _ in range(2)]


def transformer():
    return Encoder(), [(torch.randint(50, (32, 12)), torch.randint(5, (32,))) for _ in range(2)]


MODELS = {"CNN": cnn, "transformer": transformer}


class Pass(NamedTuple):
    "What a pass began with; each part stands for its values."
    inputs: str
    modes: tuple[bool, ...]
    has_graph: bool
    weights: str
    buffers: str
    random: str


def digest(x: Any) -> str:
    "Short, and another one wherever a bit, a shape or a dtype is another one."
    found = blake2b(digest_size=12)
    for t in tensors(x):
        found.update(f"{t.dtype}{tuple(t.shape)}".encode())
        found.update(t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    found.update(repr([part for part in x if not isinstance(part, Tensor)]).encode())
    return found.hexdigest()


def state_of_chance() -> str:
    return digest([torch.get_rng_state(), torch.tensor(numpy.random.get_state()[1].astype("int64")),  # noqa: NPY002
                   numpy.random.get_state()[2:], random.getstate()])  # noqa: NPY002


def passes_of(build) -> list[Pass]:
    "The passes of one preflight of a healthy model, in order."
    torch.manual_seed(0)
    model, batches = build()
    found = []
    def note(model, args, kwargs):
        found.append(Pass(digest([*args, *kwargs.values()]), tuple(m.training for m in model.modules()),
                          torch.is_grad_enabled(), digest([*model.parameters()]), digest([*model.buffers()]),
                          state_of_chance()))
    with model.register_forward_pre_hook(note, with_kwargs=True):
        hl.preflight(model, nn.CrossEntropyLoss(), batches, torch.optim.Adam(model.parameters()), overfit=False)
    return found


def counted(found: list[Pass]) -> dict[str, int]:
    "How many passes there are, and how many differ by more and more."
    return {"passes": len(found), "distinct": len({one[:4] for one in found}),
            "with buffers": len({one[:5] for one in found}), "with random state": len({*found})}


def measure(*models: str) -> dict:
    return {"forward passes of a preflight without overfitting": [
        {"model": name, **counted(passes_of(MODELS[name]))} for name in models or MODELS]}

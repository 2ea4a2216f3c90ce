"""tensordict: a classifier whose batches and layers read and write named entries of a `TensorDict`.

After the tutorial "Simplifying PyTorch memory and training with TensorDict": the dataset is one TensorDict, the loader
collates nothing, the net is a `TensorDictSequential` that writes its output into the batch. Error: wrong answers."""
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torch.utils.data import DataLoader

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "tensordict: Using TensorDict for datasets; TensorDictModule"
PACKAGES = ("tensordict", "scikit-learn")


def call(model, batch):
    batch = model(batch)
    return nn.functional.cross_entropy(batch["logits"], batch["targets"])


def build() -> Parts:
    known, held = (TensorDict({"images": x, "targets": y}, batch_size=len(y)) for x, y in split(*digits(), n=1300))
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU())
    model = TensorDictSequential(TensorDictModule(body, in_keys=["images"], out_keys=["features"]),
                                 TensorDictModule(nn.Linear(96, 10), in_keys=["features"], out_keys=["logits"]))
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1),
                 DataLoader(known, 32, shuffle=True, collate_fn=lambda batch: batch), call=call,
                 valid=DataLoader(held, 128, collate_fn=lambda batch: batch))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return torch.cat([(parts.model(b)["logits"].argmax(1) != b["targets"]).float() for b in parts.valid]).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(20):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return error(parts)

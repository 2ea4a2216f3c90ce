"""pytorch-ignite: digits with a supervised trainer and evaluators of the library.

After the tutorial "Getting started" of PyTorch Ignite: `create_supervised_trainer`, metrics on both sets after each
epoch, handlers of events. Error: wrong answers on digits held back."""
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "pytorch-ignite: Getting Started"
PACKAGES = ("pytorch-ignite", "scikit-learn")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 3, padding=1), nn.Conv2d(10, 20, 3, padding=1)
        self.drop, self.fc1, self.fc2 = nn.Dropout2d(.2), nn.Linear(80, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return self.fc2(x)


def build() -> Parts:
    known, held = split(*digits(), n=1300)
    model = Net()
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=.003),
                 DataLoader(TensorDataset(*known), 64, shuffle=True), nn.CrossEntropyLoss(),
                 valid=DataLoader(TensorDataset(*held), 256))


def evaluator(parts):
    return create_supervised_evaluator(parts.model, {"accuracy": Accuracy(), "loss": Loss(parts.loss)})


def error(parts: Parts) -> float: return 1 - evaluator(parts).run(parts.valid).metrics["accuracy"]


def train(parts: Parts, record) -> float:
    trainer = create_supervised_trainer(parts.model, parts.optimizer, parts.loss)
    on_known, on_held = evaluator(parts), evaluator(parts)

    @trainer.on(Events.ITERATION_COMPLETED)
    def _(engine): record.step(engine.state.output)

    @trainer.on(Events.EPOCH_COMPLETED)
    def _(engine):
        on_known.run(parts.data)
        on_held.run(parts.valid)

    with record.on(parts.model, optimizer=parts.optimizer): trainer.run(parts.data, max_epochs=15)
    return error(parts)

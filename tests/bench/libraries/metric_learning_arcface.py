"""pytorch-metric-learning: embeddings of digits by ArcFace, whose loss has weights and an optimizer of its own.

After the example notebook "SubCenterArcFaceMNIST" of the library: two optimizers, a loss with parameters, batches of
images and labels. Error: how often the nearest held-back example is another digit."""
import torch
from pytorch_metric_learning import losses
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "pytorch-metric-learning: SubCenterArcFaceMNIST"
PACKAGES = ("pytorch-metric-learning", "scikit-learn")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, 1), nn.Conv2d(16, 32, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout2d(.1), nn.Dropout(.2)
        self.fc1 = nn.Linear(128, 32)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        return self.fc1(self.dropout2(torch.flatten(x, 1)))


def build() -> Parts:
    train_set, test_set = split(*digits(), n=1400)
    model, loss = Net(), losses.SubCenterArcFaceLoss(num_classes=10, embedding_size=32)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3), torch.optim.Adam(loss.parameters(), lr=1e-2)]
    return Parts(model, optimizers, DataLoader(TensorDataset(*train_set), 64, shuffle=True), loss,
                 valid=DataLoader(TensorDataset(*test_set), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    x, y = parts.valid.dataset.tensors
    vectors = F.normalize(parts.model(x))
    nearest = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
    return (y[nearest] != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, (optimizer, loss_optimizer) = parts.model, parts.optimizer
    with record.on(model, optimizer=parts.optimizer):
        for _ in range(12):
            model.train()
            for data, labels in parts.data:
                optimizer.zero_grad()
                loss_optimizer.zero_grad()
                loss = parts.loss(model(data), labels)
                loss.backward()
                optimizer.step()
                loss_optimizer.step()
                record.step(loss)
    return error(parts)

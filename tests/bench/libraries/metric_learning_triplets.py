"""pytorch-metric-learning: triplets with a miner, a distance, a reducer and a sampler of the library.

After the example notebook "TripletMarginLossMNIST" of the library: `MPerClassSampler`, a miner of semihard triplets,
the mean of the losses above zero. Error: how often the nearest held-back example is another digit."""
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, samplers
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, seed_the_rest, split
from tests.bench.programs import Parts

SOURCE = "pytorch-metric-learning: TripletMarginLossMNIST"
PACKAGES = ("pytorch-metric-learning", "scikit-learn")


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))


def build() -> Parts:
    seed_the_rest()
    (x, y), test_set = split(*digits(), n=1400)
    x = x + .25*torch.randn_like(x)
    sampler = samplers.MPerClassSampler(y, m=8, length_before_new_iter=len(y))
    distance = distances.CosineSimilarity()
    miner = miners.TripletMarginMiner(margin=.2, distance=distance, type_of_triplets="semihard")
    criterion = losses.TripletMarginLoss(margin=.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
    model = net()

    def loss(embeddings, labels): return criterion(embeddings, labels, miner(embeddings, labels))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3),
                 DataLoader(TensorDataset(x, y), 64, sampler=sampler, drop_last=True), loss,
                 valid=DataLoader(TensorDataset(*test_set), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    x, y = parts.valid.dataset.tensors
    vectors = F.normalize(parts.model(x))
    nearest = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
    return (y[nearest] != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(20):
            model.train()
            for data, labels in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(data), labels)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return error(parts)

"""skorch: a classifier with the interface of scikit-learn, which owns its loop.

After the README and the tutorial "Basic usage" of skorch: numpy arrays, a module that ends in a softmax, the loss of
the net, which takes the logarithm itself, and a callback after each batch. Error: wrong answers on data held back."""
import numpy as np
import torch
from sklearn.datasets import make_classification
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "skorch: Basic Usage"
PACKAGES = ("skorch", "scikit-learn")


class ClassifierModule(nn.Module):
    def __init__(self, num_units=10, dropout=.5):
        super().__init__()
        self.dense0, self.dense1 = nn.Linear(20, num_units), nn.Linear(num_units, 10)
        self.output, self.dropout = nn.Linear(10, 2), nn.Dropout(dropout)

    def forward(self, X, **kwargs):
        X = self.dropout(self.dense0(X).relu())
        return self.output(self.dense1(X).relu()).softmax(-1)


class Recorded(Callback):
    record = None

    def on_batch_end(self, net, batch=None, training=None, loss=None, **kwargs):
        if training: self.record.step(loss)


def build() -> Parts:
    seed_the_rest()
    X, y = make_classification(1400, 20, n_informative=10, random_state=torch.initial_seed() % 2**32)
    X, y = X.astype(np.float32), y.astype(np.int64)
    net = NeuralNetClassifier(ClassifierModule, max_epochs=15, lr=.1, iterator_train__shuffle=True, verbose=0,
                              module__num_units=32, module__dropout=.2, callbacks=[("recorded", Recorded)])
    net.initialize()
    data = net.get_iterator(net.get_dataset(X[:1000], y[:1000]), training=True)
    parts = Parts(net.module_, net.optimizer_, data, net.get_loss)
    parts.net, parts.known, parts.test = net, (X[:1000], y[:1000]), (X[1000:], y[1000:])
    return parts


def error(parts: Parts) -> float: return 1 - parts.net.score(*parts.test)


def train(parts: Parts, record) -> float:
    dict(parts.net.callbacks_)["recorded"].record = record
    with record.on(parts.model, optimizer=parts.optimizer): parts.net.partial_fit(*parts.known)
    return error(parts)

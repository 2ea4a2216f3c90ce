"""One number, the temperature, is fitted behind a classifier that is trained already and too sure of itself.

Habits of the source: the only trained parameter is the temperature, which begins at 1.5; the classifier is not in the
optimizer and is not called in the loop, since its logits on the validation data were collected beforehand without a
gradient; one single step of L-BFGS with 50 iterations; the data held back from the classifier is what is fitted here.
Error: the expected calibration error on other data over that of the classifier as it was: 0.46 to 0.49; untrained,
at 1.5, 0.61 to 0.63."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gpleiss/temperature_scaling temperature_scaling.py", 2018
CLASSES = 5


class WithTemperature(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.temperature = nn.Parameter(torch.ones(1)*1.5)

    def forward(self, x): return self.scaled(self.model(x))

    def scaled(self, logits): return logits/self.temperature.unsqueeze(1).expand(*logits.shape)


def calibration_error(logits, label, bins=15):
    sure, answer = logits.softmax(1).max(1)
    right, error = (answer == label).float(), 0.
    edges = torch.linspace(0, 1, bins + 1)
    for low, high in zip(edges, edges[1:]):
        inside = (sure > low) & (sure <= high)
        if inside.any(): error += (sure[inside].mean() - right[inside].mean()).abs()*inside.float().mean()
    return float(error)


def trained(x, label):
    "A wide net that learns few noisy examples by heart."
    net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9, nesterov=True)
    for _ in range(5):
        for i in range(0, len(x), 64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[i:i + 64]), label[i:i + 64]).backward()
            optimizer.step()
    optimizer.zero_grad()
    return net.eval()


def call(model, batch):
    logits, label = batch
    return F.cross_entropy(model.scaled(logits), label)


def build(repaired: bool) -> Parts:
    centres = torch.randn(CLASSES, 20)

    def examples(n):
        label = torch.randint(0, CLASSES, (n,))
        return centres[label]*.6 + torch.randn(n, 20), label

    net = trained(*examples(400))
    (x, label), (other, other_label) = examples(1000), examples(4000)
    with torch.no_grad(): logits, other = net(x), net(other)
    model = WithTemperature(net)
    optimizer = torch.optim.LBFGS([model.temperature], lr=.01, max_iter=50)
    return Parts(model, optimizer, [(logits, label)], call=call, valid=[(other, other_label)])


def train(parts: Parts, record) -> float:
    model, optimizer, (batch,) = parts.model, parts.optimizer, parts.data

    def closure():
        optimizer.zero_grad()
        loss = call(model, batch)
        loss.backward()
        return loss

    with record.on(model, optimizer): record.step(optimizer.step(closure))
    logits, label = parts.valid[0]
    with torch.no_grad(): return calibration_error(model.scaled(logits), label)/calibration_error(logits, label)

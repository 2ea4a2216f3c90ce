"""A net of leaky neurons that spike classifies images that are shown for 15 steps.

Habits of the source: a spike is a step function whose gradient is that of an arctangent; the membranes are set to zero
at the beginning of each call and lose the threshold after a spike; the same image is the input at each step; the loss
is the sum of the cross-entropies of the membranes at all steps, some twenty at first; answers are counted spikes; each
step of the training is followed by one batch of test data in eval mode; Adam.
Error: wrong answers on test images over those of guessing: 0 to 0.01; untrained 0.9 to 1.1."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "jeshraghian/snntorch docs/tutorials/tutorial_5.rst", 2022
STEPS, CLASSES = 15, 5


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, membrane):
        ctx.save_for_backward(membrane)
        return (membrane > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        membrane, = ctx.saved_tensors
        return gradient/(torch.pi*(1 + (torch.pi*membrane)**2))


class Leaky(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, current, membrane):
        reset = (membrane > 1).float().detach()
        membrane = self.beta*membrane + current - reset
        return Spike.apply(membrane - 1), membrane


class Net(nn.Module):
    def __init__(self, before, hidden, after, beta=.95):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(before, hidden), Leaky(beta)
        self.fc2, self.lif2 = nn.Linear(hidden, after), Leaky(beta)

    def forward(self, x):
        one, two, spikes, membranes = 0*self.fc1.bias, 0*self.fc2.bias, [], []
        for _ in range(STEPS):
            spike, one = self.lif1(self.fc1(x), one)
            spike, two = self.lif2(self.fc2(spike), two)
            spikes.append(spike)
            membranes.append(two)
        return torch.stack(spikes), torch.stack(membranes)


def images(n, patterns):
    kind = torch.randint(0, CLASSES, (n,))
    return (patterns[kind] + .3*torch.randn(n, patterns.shape[1])).clamp(0, 1), kind


loss_fn = nn.CrossEntropyLoss()


def call(model, batch):
    x, kind = batch
    _, membranes = model(x)
    loss = torch.zeros(1)
    for step in range(STEPS): loss = loss + loss_fn(membranes[step], kind)
    return loss.sum()


def build(repaired: bool) -> Parts:
    patterns = torch.rand(CLASSES, 64)*(torch.rand(CLASSES, 64) < .4)
    model = Net(64, 100, CLASSES)
    data = DataLoader(TensorDataset(*images(1000, patterns)), batch_size=50, shuffle=True, drop_last=True)
    test = DataLoader(TensorDataset(*images(400, patterns)), batch_size=50, shuffle=True, drop_last=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-4, betas=(.9, .999)), data, call=call, valid=test)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(3):
            for batch in parts.data:
                model.train()
                loss = call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
                with torch.no_grad():
                    model.eval()
                    call(model, next(iter(parts.valid)))
    with torch.no_grad():
        model.eval()
        wrong = torch.cat([model(x)[0].sum(0).argmax(1) != kind for x, kind in parts.valid])
    return wrong.float().mean().item()*CLASSES/(CLASSES - 1)

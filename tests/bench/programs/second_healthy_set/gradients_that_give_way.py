"""Two letters lie upon each other in a picture, and one net with two heads tells both.

Habits of the source: a backward pass for each task, with the graph kept; parameters without a gradient in a pass count
as zeros; of two gradients that point against each other, each gives up what harms the other, in a random order; what
both tasks use gets the mean, what one uses the sum; the gradients are then written into the parameters by an object
around the optimizer; the log-softmax is in the heads; dropout of whole channels in the middle.
Score: the mean part of wrong letters, by chance. Below .1; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "WeiChengTseng/Pytorch-PCGrad main_multi_mnist.py", 2020
KINDS = 5
letters = (torch.rand(2*KINDS, 6, 6, generator=torch.Generator().manual_seed(0)) < .4).float()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = nn.Conv2d(1, 12, 3), nn.Conv2d(12, 24, 3), nn.Dropout2d(.1)
        self.shared = nn.Linear(96, 48)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, KINDS), nn.LogSoftmax(1))
                                   for _ in range(2))

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(F.max_pool2d(self.drop(self.second(x)), 2))
        h = F.relu(self.shared(x.flatten(1)))
        return [head(h) for head in self.heads]


class GivingWay:
    "Around an optimizer: `backward` of several losses."
    def __init__(self, optimizer): self.optimizer = optimizer

    @property
    def weights(self): return [weight for group in self.optimizer.param_groups for weight in group["params"]]

    def backward(self, losses):
        gradients, used = zip(*(self.of(loss) for loss in losses))
        merged = torch.stack([self.giving_way(gradient, gradients) for gradient in gradients])
        merged = torch.where(torch.stack(used).all(0), merged.mean(0), merged.sum(0))
        sizes = [weight.numel() for weight in self.weights]
        for weight, gradient in zip(self.weights, merged.split(sizes)): weight.grad = gradient.view_as(weight)

    def of(self, loss):
        "The gradient of a loss in one vector, and which of it there was."
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward(retain_graph=True)
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        used = [torch.full((w.numel(),), w.grad is not None) for w in self.weights]
        return torch.cat([gradient.flatten() for gradient in gradients]), torch.cat(used)

    def giving_way(self, gradient, gradients):
        for i in torch.randperm(len(gradients)):
            product = gradient @ gradients[i]
            if product < 0: gradient = gradient - product/gradients[i].norm()**2*gradients[i]
        return gradient


def losses(net, batch):
    x, *kinds = batch
    return [F.nll_loss(said, kind) for said, kind in zip(net(x), kinds)]


def call(net, batch): return sum(losses(net, batch))/2


def pictures(n: int):
    "One letter of the first five up on the left, and one of the others down on the right, upon it."
    first, second, x = torch.randint(KINDS, (n,)), torch.randint(KINDS, (n,)), torch.zeros(n, 1, 9, 9)
    for picture, one, two in zip(x[:, 0], first, second):
        row, column = torch.randint(2, (2,)).tolist()
        picture[row:row + 6, column:column + 6] = letters[one]
        below = picture[3 - row:9 - row, 3 - column:9 - column]
        torch.maximum(below, letters[KINDS + two], out=below)
    return (x + .1*torch.randn_like(x) - .1307)/.3081, first, second


def build(repaired: bool) -> Parts:
    net, data, valid = Net(), pictures(1500), pictures(400)
    return Parts(net, torch.optim.Adam(net.parameters(), lr=3e-3), list(zip(*(c.split(50) for c in data))), call=call,
                 valid=list(zip(*(c.split(100) for c in valid))))


def train(parts: Parts, record) -> float:
    net, optimizer = parts.model, GivingWay(parts.optimizer)
    with record.on(net, parts.optimizer):
        for _ in range(8):
            net.train()
            for i in torch.randperm(len(parts.data)):
                found = losses(net, parts.data[i])
                optimizer.backward(found)
                optimizer.optimizer.step()
                record.step(sum(found)/2)
            net.eval()
            wrong = []
            with torch.no_grad():
                for x, *kinds in parts.valid:
                    wrong += [(said.argmax(1) != kind).float().mean() for said, kind in zip(net(x), kinds)]
    return torch.stack(wrong).mean().item()*KINDS/(KINDS - 1)

"""A net that was trained on another task is tuned: the deeper the layer, the lower its rate, and the stem is frozen.

Habits of the source: a decay of the rate by 0.65 from layer to layer, with a group for each layer and for weights and
biases, the latter without weight decay; the new head begins with almost zero weights of deviation 2e-5; the rate rises
in the first epochs and falls as a cosine, set before each batch, and each group multiplies it by its own factor; label
smoothing; few labelled examples.
Error: wrong answers on test data over those of guessing: 0.22 to 0.26; untrained 1."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/mae main_finetune.py", 2022
SIZE, CLASSES, EPOCHS, WARM, RATE, DECAY = 24, 4, 12, 2, 1e-2, .65


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))

    def forward(self, x): return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, classes, width=48):
        super().__init__()
        self.stem, self.blocks = nn.Linear(SIZE, width), nn.ModuleList(Block(width) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x))


def groups(net):
    "One group for each depth and for weights and vectors."
    found = {}
    for name, p in net.named_parameters():
        if not p.requires_grad: continue
        depth = int(name.split(".")[1]) + 1 if name.startswith("blocks") else 0 if name.startswith("stem") else 4
        key = depth, p.ndim == 1
        group = found.setdefault(key, {"params": [], "lr_scale": DECAY**(4 - depth), "weight_decay": .05*(p.ndim > 1)})
        group["params"].append(p)
    return list(found.values())


def pretrained(net, factors):
    "Trained on many examples with other classes of the same hidden factors."
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(200):
        hidden = torch.randn(64, 5)
        kind = ((hidden[:, :3] > 0)*torch.tensor([1, 2, 4])).sum(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net((hidden @ factors).tanh() + .3*torch.randn(64, SIZE)), kind).backward()
        optimizer.step()
    optimizer.zero_grad()


def build(repaired: bool) -> Parts:
    factors = 1.5*torch.randn(5, SIZE)

    def examples(n):
        hidden = torch.randn(n, 5)
        kind = ((hidden[:, :2] > 0)*torch.tensor([1, 2])).sum(1)
        return (hidden @ factors).tanh() + .3*torch.randn(n, SIZE), kind

    net = Net(8)
    pretrained(net, factors)
    net.head = nn.Linear(48, CLASSES)
    nn.init.trunc_normal_(net.head.weight, std=2e-5)
    for p in net.stem.parameters(): p.requires_grad = False
    data = DataLoader(TensorDataset(*examples(200)), batch_size=20, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(groups(net), lr=RATE)
    return Parts(net, optimizer, data, nn.CrossEntropyLoss(label_smoothing=.1), valid=[examples(500)])


def set_rate(optimizer, epoch):
    rate = RATE*epoch/WARM if epoch < WARM else RATE*.5*(1 + math.cos(math.pi*(epoch - WARM)/(EPOCHS - WARM)))
    for group in optimizer.param_groups: group["lr"] = rate*group["lr_scale"]


def train(parts: Parts, record) -> float:
    net, optimizer = parts.model, parts.optimizer
    with record.on(net, optimizer):
        for epoch in range(EPOCHS):
            net.train()
            optimizer.zero_grad()
            for i, (x, kind) in enumerate(parts.data):
                set_rate(optimizer, epoch + i/len(parts.data))
                loss = parts.loss(net(x), kind)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    net.eval()
    x, kind = parts.valid[0]
    with torch.no_grad(): return (net(x).argmax(1) != kind).float().mean().item()*CLASSES/(CLASSES - 1)

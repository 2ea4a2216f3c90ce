"""A detector finds boxes by their centres: a heat map of two classes, a size and an offset at each centre.

Habits of the source: the bias of the last layer of the heat map begins at -2.19 and the other heads at zero; the focal
loss is a sum over all places, divided by the number of objects; the sigmoid is clamped in place; lists of objects are
padded to a fixed length and a mask hides the rest; sizes are in cells and their loss has a weight of 0.1; Adam.
Error: half of the share of wrong or missing centres and half of the error of sizes over that of the mean size: 0.18
to 0.21; untrained 2.6."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "xingyizhou/CenterNet src/lib/trains/ctdet.py", 2019
SIZE, CELLS, KINDS, MOST = 24, 12, 2, 4


class Detector(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        def part(a, b, stride): return nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)
        self.body = nn.Sequential(*part(3, width, 2), *part(width, width, 1), *part(width, width, 1))
        self.heads = nn.ModuleDict()
        for name, size in (("hm", KINDS), ("wh", 2), ("reg", 2)):
            head = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, size, 1))
            if name == "hm": head[-1].bias.data.fill_(-2.19)
            else: nn.init.constant_(head[-1].bias, 0)
            self.heads[name] = head

    def forward(self, x):
        x = self.body(x)
        return {name: head(x) for name, head in self.heads.items()}


def scenes(n):
    "Filled and hollow boxes, one to three an image, that do not lie on each other."
    image, heat = .1*torch.randn(n, 3, SIZE, SIZE), torch.zeros(n, KINDS, CELLS, CELLS)
    index, mask = torch.zeros(n, MOST, dtype=torch.long), torch.zeros(n, MOST)
    wh, reg = torch.zeros(n, MOST, 2), torch.zeros(n, MOST, 2)
    y, x = torch.meshgrid(torch.arange(CELLS), torch.arange(CELLS), indexing="ij")
    for i in range(n):
        for slot, corner in enumerate(torch.randperm(4)[:1 + int(torch.randint(0, 3, ()))].tolist()):
            h, w = torch.randint(4, 10, (2,)).tolist()
            top, left = 12*(corner//2) + int(torch.randint(0, 3, ())), 12*(corner % 2) + int(torch.randint(0, 3, ()))
            kind = int(torch.randint(0, KINDS, ()))
            image[i, :, top:top + h, left:left + w] += (.5 + .5*torch.rand(3, 1, 1))
            if kind: image[i, :, top + 1:top + h - 1, left + 1:left + w - 1] = 0
            centre = torch.tensor([(top + h/2)/2, (left + w/2)/2])
            row, column = centre.long().tolist()
            bump = (-((y - row)**2 + (x - column)**2)/(2*.8**2)).exp()
            heat[i, kind] = torch.maximum(heat[i, kind], bump)
            index[i, slot], mask[i, slot] = row*CELLS + column, 1
            wh[i, slot], reg[i, slot] = torch.tensor([h/2, w/2]), centre - centre.floor()
    return image, heat, index, mask, wh, reg


def focal(hot, target):
    at = target.eq(1).float()
    yes = hot.log()*(1 - hot)**2*at
    no = (1 - hot).log()*hot**2*(1 - target)**4*(1 - at)
    return -(yes.sum() + no.sum())/at.sum().clamp(min=1)


def gathered(found, index): return found.flatten(2).transpose(1, 2).gather(1, index[..., None].expand(-1, -1, 2))


def masked(found, index, mask, wanted):
    mask = mask[..., None].expand_as(wanted)
    return F.l1_loss(gathered(found, index)*mask, wanted*mask, reduction="sum")/(mask.sum() + 1e-4)


def call(model, batch):
    image, heat, index, mask, wh, reg = batch
    out = model(image)
    hot = torch.clamp(out["hm"].sigmoid_(), min=1e-4, max=1 - 1e-4)
    return focal(hot, heat) + .1*masked(out["wh"], index, mask, wh) + masked(out["reg"], index, mask, reg)


def build(repaired: bool) -> Parts:
    model = Detector()
    data = DataLoader(TensorDataset(*scenes(256)), batch_size=16, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), 2e-3), data, call=call,
                 valid=DataLoader(TensorDataset(*scenes(100)), batch_size=50))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(8):
            model.train()
            for batch in parts.data:
                loss = call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            if epoch == 6:
                for group in optimizer.param_groups: group["lr"] *= .1
    model.eval()
    image, heat, index, mask, wh, _ = parts.valid.dataset.tensors
    with torch.no_grad(): out = model(image)
    peaks = (F.max_pool2d(out["hm"], 3, 1, 1) == out["hm"]) & (out["hm"] > 0)
    lost = 1 - (peaks & (heat == 1)).sum()/(peaks | (heat == 1)).sum()
    real = mask > 0
    size = (gathered(out["wh"], index) - wh)[real].abs().mean()/(wh[real] - wh[real].mean(0)).abs().mean()
    return (lost/2 + size/2).item()

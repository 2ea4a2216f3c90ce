"""Without mosaics the training data is not shuffled, so a detector sees one folder after the other.

The report: the data loader shuffles only within mosaics. Its authors switched shuffling on for training, and results
were vastly better wherever they train without mosaics."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "ultralytics/yolov5#4961", 2021
AREA, CAUSE = "data and labels", "data not shuffled"
TRUE = {"spike"}
PLACE = ()


class Detector(nn.Module):
    "For each of 16 cells of an image: is there an object, which of five kinds, and how large."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential()
        for inside, outside in (3, size), (size, 2*size):
            self.layers.extend([nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.SiLU()])
        self.head = nn.Conv2d(2*size, 8, 1)

    def forward(self, image): return self.head(self.layers(image)).flatten(2).transpose(1, 2)


def found(output, there, kind, box):
    "The three parts of the loss; only a cell with an object has a kind and a size."
    size = F.mse_loss(output[..., 6:].sigmoid()[there], box[there])
    return F.binary_cross_entropy_with_logits(output[..., 0], there.float()) + .5*size \
        + F.cross_entropy(output[..., 1:6][there], kind[there])


def images(n: int, colours: torch.Tensor, kind: torch.Tensor):
    "Images of 16 by 16 with one object in one of 16 cells, in the colours of its kind."
    image, there = .3*torch.randn(n, 3, 16, 16), torch.zeros(n, 16, dtype=torch.bool)
    box = torch.zeros(n, 16, 2)
    for i in range(n):
        cell, (height, width) = int(torch.randint(16, (1,))), torch.randint(2, 5, (2,)).tolist()
        top, left = 4*(cell//4), 4*(cell % 4)
        image[i, :, top:top + height, left:left + width] += colours[kind[i], :, None, None]
        there[i, cell], box[i, cell] = True, torch.tensor([height/4, width/4])
    return image, there, kind[:, None].expand(n, 16), box


def build(repaired: bool) -> Parts:
    model, colours = Detector(12), F.normalize(torch.randn(5, 3))*1.5
    kinds = torch.arange(5).repeat_interleave(160)  # one folder for each
    data = DataLoader(TensorDataset(*images(800, colours, kinds)), batch_size=16, shuffle=repaired)

    def call(model, batch): return found(model(batch[0]), *batch[1:])

    optimizer = torch.optim.SGD(model.parameters(), lr=.03, momentum=.937, nesterov=True)
    valid = [images(200, colours, torch.randint(5, (200,)))]
    return Parts(model, optimizer, data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    image, there, kind, _ = parts.valid[0]
    with torch.no_grad(): output = parts.model.eval()(image)
    right = output[..., 0].argmax(1) == there.float().argmax(1)
    right &= output[torch.arange(len(image)), there.float().argmax(1), 1:6].argmax(1) == kind[:, 0]
    return 1 - right.float().mean().item()

"""A net with deconvolutions marks three joints of a stick figure, each by a heat map.

Habits of the source: the loss is half the squared error of maps that are almost everywhere zero, so that it is small
from the beginning; joints that are not visible have weight zero; the last layer and the deconvolutions begin with
weights of deviation 0.001; Adam at 1e-3 with milestones; random scale of brightness in training only; the test looks at
the picture and its mirror image and takes the mean, with left and right joints exchanged.
Error: mean distance of the found joints over that of the middle of the picture: 0.26; untrained 1.2 to 1.4."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "microsoft/human-pose-estimation.pytorch lib/core/function.py", 2018
SIZE, JOINTS = 16, 3    # left, middle, right


class Pose(nn.Module):
    def __init__(self):
        super().__init__()
        def part(a, b, stride): return nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)
        self.body = nn.Sequential(*part(3, 16, 1), *part(16, 32, 2), *part(32, 32, 2))
        self.deconv = nn.Sequential(nn.ConvTranspose2d(32, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True))
        self.final = nn.Conv2d(32, JOINTS, 1)
        for layer in (self.deconv[0], self.final): nn.init.normal_(layer.weight, std=.001)
        nn.init.constant_(self.final.bias, 0)

    def forward(self, x): return self.final(self.deconv(self.body(x)))


def gauss(place, size, sigma):
    "One bump for each place (n, joints, 2)."
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    far = (y - place[..., 0, None, None])**2 + (x - place[..., 1, None, None])**2
    return (-far/(2*sigma**2)).exp()


def figures(n):
    "Coloured dots of one figure; one joint in ten is hidden. Heat maps have half the size."
    middle = 5 + 6*torch.rand(n, 1, 2)
    arm = torch.stack([2*torch.randn(n).clamp(-1.5, 1.5), 3 + torch.rand(n)], 1)[:, None]
    place = torch.cat([middle - arm, middle, middle + arm], 1).clamp(0, SIZE - 1)
    seen = (torch.rand(n, JOINTS) < .9).float()
    colours = torch.tensor([[1., .2, .2], [.2, 1., .2], [1., .2, .2]])
    dots = torch.einsum("njhw,jc,nj->nchw", gauss(place, SIZE, 1.2), colours, seen)
    return dots + .2*torch.randn(n, 3, SIZE, SIZE), gauss(place/2, SIZE//2, .8), seen[..., None], place


def call(model, batch):
    image, target, seen, _ = batch
    found = model(image)
    loss = 0
    for j in range(JOINTS):
        loss = loss + .5*((found[:, j].flatten(1) - target[:, j].flatten(1))*seen[:, j]).pow(2).mean()
    return loss/JOINTS


def build(repaired: bool) -> Parts:
    model = Pose()
    data = DataLoader(TensorDataset(*figures(640)), batch_size=32, shuffle=True)
    valid = DataLoader(TensorDataset(*figures(200)), batch_size=50)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, call=call, valid=valid)


def validate(model, loader):
    model.eval()
    far, guess = [], []
    with torch.no_grad():
        for image, _, seen, place in loader:
            mirrored = model(image.flip(3)).flip(3)[:, [2, 1, 0]]
            best = ((model(image) + mirrored)/2).flatten(2).argmax(2)
            found = 2*torch.stack([best//(SIZE//2), best % (SIZE//2)], 2)
            far.append(((found - place).norm(dim=2)*seen[..., 0]).sum())
            guess.append(((7.5 - place).norm(dim=2)*seen[..., 0]).sum())
    return (sum(far)/sum(guess)).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [6, 7], .1)
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for image, target, seen, place in parts.data:
                loss = call(model, (image*(.8 + .4*torch.rand(len(image), 1, 1, 1)), target, seen, place))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error = validate(model, parts.valid)
            schedule.step()
    return error

"""Pictures are drawn from their sketches by a generator, and a discriminator looks at both together, patch by patch.

Habits of the source: the discriminator is frozen while the generator steps, and sees the sketch beside the picture;
its loss is halved; the absolute error counts a hundred times as much as deceiving it; one picture a batch; batch norm
and dropout stay as in training when pictures are drawn for a test; weights start with a deviation of .02, norms around
one; skips join the way down and the way up; Adam with a first beta of .5; the rate falls in a line in the second half.
Error: absolute difference over that of the mean picture, on sketches held back: .21; untrained .98, the mean
picture 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "junyanz/pytorch-CycleGAN-and-pix2pix models/pix2pix_model.py", 2017
SIDE, EPOCHS = 16, 4


def start(net):
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)): nn.init.normal_(m.weight, 0, .02)
        if isinstance(m, nn.BatchNorm2d): nn.init.normal_(m.weight, 1, .02)
    return net


class Level(nn.Module):
    "Down, the level below, up; and what came in."
    def __init__(self, c, d, below=None):
        super().__init__()
        self.down = nn.Sequential(nn.LeakyReLU(.2), nn.Conv2d(c, d, 4, 2, 1, bias=False))
        self.below = nn.Sequential(nn.BatchNorm2d(d), below) if below else nn.Identity()
        self.up = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(2*d if below else d, c, 4, 2, 1, bias=False),
                                nn.BatchNorm2d(c), nn.Dropout(.2))

    def forward(self, x): return torch.cat([x, self.up(self.below(self.down(x)))], 1)


def generator(c=12):
    return start(nn.Sequential(nn.Conv2d(1, c, 4, 2, 1), Level(c, 2*c, Level(2*c, 2*c)), nn.ReLU(),
                               nn.ConvTranspose2d(2*c, 1, 4, 2, 1), nn.Tanh()))


def discriminator(c=12):
    return start(nn.Sequential(nn.Conv2d(2, c, 4, 2, 1), nn.LeakyReLU(.2, True), nn.Conv2d(c, 2*c, 4, 2, 1, bias=False),
                               nn.BatchNorm2d(2*c), nn.LeakyReLU(.2, True), nn.Conv2d(2*c, 1, 3, 1, 1)))


def pairs(n):
    "The outline of soft-edged regions, and the regions: bright inside, darker to the right."
    field = F.interpolate(torch.randn(n, 1, 4, 4), size=SIDE, mode="bicubic") + .1
    inside = (field > 0).float()
    edge = F.max_pool2d(inside, 3, 1, 1) - inside
    return 2*(edge + .5*inside) - 1, (1.4*inside - .7)*torch.linspace(1.2, .6, SIDE)


def answer_loss(answer, real): return F.binary_cross_entropy_with_logits(answer, torch.full_like(answer, real))


def generators_loss(model, batch):
    sketch, picture = batch
    made = model["generator"](sketch)
    return answer_loss(model["discriminator"](torch.cat([sketch, made], 1)), 1) + 100*F.l1_loss(made, picture)


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"generator": generator(), "discriminator": discriminator()})
    optimizers = [torch.optim.Adam(part.parameters(), lr=2e-3, betas=(.5, .999)) for part in model.values()]
    data, valid = [DataLoader(TensorDataset(*pairs(n)), 1, shuffle=n == 120) for n in (120, 60)]
    return Parts(model, optimizers, data, call=generators_loss, valid=valid)


def train(parts: Parts, record) -> float:
    (draw, look), (of_draw, of_look) = parts.model.values(), parts.optimizer
    def rate(epoch): return 1 - max(0, epoch + 1 - EPOCHS // 2)/(EPOCHS // 2 + 1)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, rate) for o in parts.optimizer]
    with record.on(parts.model, parts.optimizer):
        for _ in range(EPOCHS):
            for sketch, picture in parts.data:
                made = draw(sketch)
                look.requires_grad_(True)
                of_look.zero_grad()
                of_made = answer_loss(look(torch.cat([sketch, made], 1).detach()), 0)
                ((of_made + answer_loss(look(torch.cat([sketch, picture], 1)), 1))*.5).backward()
                of_look.step()
                look.requires_grad_(False)
                of_draw.zero_grad()
                loss = answer_loss(look(torch.cat([sketch, made], 1)), 1) + 100*F.l1_loss(made, picture)
                loss.backward()
                of_draw.step()
                record.step(loss)
            for schedule in schedules: schedule.step()
    look.requires_grad_(True)
    mean = parts.data.dataset.tensors[1].mean(0)
    with torch.no_grad(): error = [[(x - y).abs().mean() for x in (draw(sketch), mean)] for sketch, y in parts.valid]
    return (torch.tensor(error).sum(0)[0]/torch.tensor(error).sum(0)[1]).item()

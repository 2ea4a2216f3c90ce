"""The samples of a sound from a few bands of its spectrum, judged by two discriminators.

Habits of the source: one discriminator folds the sound by a period, the other sees it averaged; both are in one
optimizer and are compared with 1 and 0 by squares; what they see inside is to be alike for both sounds; the absolute
error of the bands counts 45 times; the made sound is computed once for both steps; weights are direction times length,
drawn with a deviation of .01; AdamW with betas of .8 and .99, a rate that falls a little each epoch; sounds are longer
and come one at a time in tests, within the epoch.
Error: absolute difference of the bands of sounds held back, over that of silence: .15 to .2; untrained 1.3."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "jik876/hifi-gan train.py", 2020
HOP, WINDOW, BANDS, PART, SLOPE = 8, 32, 8, 128, .1
bank = F.interpolate(torch.eye(BANDS)[None], size=WINDOW // 2 + 1, mode="linear")[0]


def bands(sound):
    sound = F.pad(sound, [(WINDOW - HOP) // 2]*2, mode="reflect")
    spectrum = torch.stft(sound, WINDOW, HOP, window=torch.hann_window(WINDOW), center=False, return_complex=True)
    return (bank @ (spectrum.real**2 + spectrum.imag**2 + 1e-9).sqrt()).clamp(min=1e-2).log()


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(c, c, 3, 1, gap, gap)) for gap in (1, 3))
        for conv in self.convs: nn.init.normal_(conv.parametrizations.weight.original1, 0, .01)

    def forward(self, x):
        for conv in self.convs: x = x + conv(F.leaky_relu(x, SLOPE))
        return x


def generator(c=24):
    layers = [weight_norm(nn.Conv1d(BANDS, c, 7, padding=3))]
    for stride in (4, 2):
        up = nn.ConvTranspose1d(c, c // 2, 2*stride, stride, stride // 2)
        layers += [nn.LeakyReLU(SLOPE), weight_norm(up), Residual(c // 2)]
        c //= 2
    return nn.Sequential(*layers, nn.LeakyReLU(), weight_norm(nn.Conv1d(c, 1, 7, padding=3)), nn.Tanh())


class Discriminator(nn.Module):
    "Of the sound folded by a period, or averaged over two samples."
    def __init__(self, period=0, c=8):
        super().__init__()
        self.period = period
        conv = nn.Conv2d if period else nn.Conv1d
        def at(a, *rest): return tuple((x, y) for x, y in zip((a, *rest), (1, 1, 0))) if period else (a, *rest)
        self.layers = nn.ModuleList(weight_norm(conv(a, b, *at(5, 3, 2))) for a, b in ((1, c), (c, 2*c)))
        self.last = weight_norm(conv(2*c, 1, *at(3, 1, 1)))

    def forward(self, x):
        x, seen = x.unflatten(2, (-1, self.period)) if self.period else F.avg_pool1d(x, 4, 2, 2), []
        for layer in self.layers: seen.append(x := F.leaky_relu(layer(x), SLOPE))
        seen.append(x := self.last(x))
        return x.flatten(1), seen


def sounds(n, length=PART):
    "Two partials of a tone, which fades in and out."
    pitch, time = .15 + .4*torch.rand(n, 1), torch.arange(length)
    tone = (pitch*time + 6.3*torch.rand(n, 1)).sin() + .5*(2*pitch*time + 6.3*torch.rand(n, 1)).sin()
    return .5*tone*(.6 + .4*(.05*time + 6.3*torch.rand(n, 1)).sin())


def judged(model, sound, made):
    return [(judge(sound), judge(made)) for judge in (model["folded"], model["averaged"])]


def generators_loss(model, sound, made=None):
    made = model["generator"](bands(sound)) if made is None else made
    loss = 45*F.l1_loss(bands(made[:, 0]), bands(sound))
    for (_, of_true), (answer, of_made) in judged(model, sound[:, None], made):
        loss = loss + ((1 - answer)**2).mean() + 2*sum((a - b).abs().mean() for a, b in zip(of_true, of_made))
    return loss


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"generator": generator(), "folded": Discriminator(4), "averaged": Discriminator()})
    both = [*model["averaged"].parameters(), *model["folded"].parameters()]
    optimizers = [torch.optim.AdamW(p, 4e-3, betas=(.8, .99)) for p in (model["generator"].parameters(), both)]
    return Parts(model, optimizers, DataLoader(sounds(256), 16, shuffle=True, drop_last=True), call=generators_loss,
                 valid=DataLoader(sounds(24, 2*PART), 1))


def difference(model, loader):
    model["generator"].eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for sound in loader:
            true = bands(sound)
            for i, x in enumerate((model["generator"](true)[:, 0], torch.zeros_like(sound))):
                total[i] += F.l1_loss(bands(x), true)
    model["generator"].train()
    return (total[0]/total[1]).item()


def train(parts: Parts, record) -> float:
    model, (of_generator, of_judges) = parts.model, parts.optimizer
    schedules, steps = [torch.optim.lr_scheduler.ExponentialLR(o, .98) for o in parts.optimizer], 0
    with record.on(model, parts.optimizer):
        for _ in range(8):
            for sound in parts.data:
                made = model["generator"](bands(sound))
                of_judges.zero_grad()
                pairs = judged(model, sound[:, None], made.detach())
                sum(((1 - a)**2).mean() + (b**2).mean() for (a, _), (b, _) in pairs).backward()
                of_judges.step()
                of_generator.zero_grad()
                loss = parts.call(model, sound, made)
                loss.backward()
                of_generator.step()
                record.step(loss)
                if steps % 40 == 0: difference(model, parts.valid)
                steps += 1
            for schedule in schedules: schedule.step()
    return difference(model, parts.valid)

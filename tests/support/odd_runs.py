"Healthy runs of ten kinds that look odd, and that nothing should be said of."
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

import hooklab as hl
from hooklab.diagnosis.result import Diagnosis


def digits(n=32):
    x, y = hl.digits().train.dataset.tensors
    some = torch.randint(len(x), (n,))
    return x[some].flatten(1), y[some]


def mlp(*sizes, act=nn.ReLU):
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def classified(model, batch): return F.cross_entropy(model(batch[0]), batch[1])


class Codebook(nn.Module):
    "The code of an image is the nearest of 16 vectors, which are means of what was near to them."
    def __init__(self):
        super().__init__()
        self.inner, self.outer = mlp(64, 32, 4), mlp(4, 32, 64)
        self.register_buffer("codes", torch.randn(16, 4))
        self.register_buffer("sums", self.codes.clone())
        self.register_buffer("counts", torch.ones(16))

    def forward(self, x):
        z = self.inner(x)
        near = torch.cdist(z.detach(), self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                hit = F.one_hot(near, 16).float()
                self.counts.lerp_(hit.sum(0), .05)
                self.sums.lerp_(hit.T@z, .05)
                self.codes.copy_(self.sums/self.counts.clamp(min=1e-3)[:, None])
        code = self.codes[near]
        return self.outer(z + (code - z).detach()), F.mse_loss(z, code)


def coded(model, batch):
    out, apart = model(batch[0])
    return F.mse_loss(out, batch[0]) + .25*apart


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.body = nn.Embedding(20, 32), nn.GRU(32, 32, batch_first=True)
        nn.init.normal_(self.words.weight, std=.2)

    def forward(self, ids): return self.body(self.words(ids))[0]@self.words.weight.T


def texts(n=32):
    ids = (torch.randint(20, (n, 1)) + 3*torch.arange(9)) % 20
    return ids[:, :-1], ids[:, 1:]


def next_words(model, batch): return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        def pair(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        self.down, self.low, self.up, self.last = pair(1, 8), pair(8, 16), pair(24, 8), nn.Conv2d(8, 1, 1)
        nn.init.constant_(self.last.bias, -3)

    def forward(self, x):
        high = self.down(x)
        low = F.interpolate(self.low(F.max_pool2d(high, 2)), scale_factor=2)
        return self.last(self.up(torch.cat([high, low], 1)))


def spots(n=16):
    "Of an image of 16 by 16, nine pixels belong to a spot: 3.5 %."
    x, y = .3*torch.randn(n, 1, 16, 16), torch.zeros(n, 1, 16, 16)
    for i, (a, b) in enumerate(torch.randint(1, 15, (n, 2)).tolist()): y[i, 0, a - 1:a + 2, b - 1:b + 2] = 1
    return x + 2*y, y


def masked(model, batch): return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])


def boxes(n=32):
    "An image, and the box of its spot in pixels."
    x, y = spots(n)
    rows, columns = y[:, 0].amax(2), y[:, 0].amax(1)
    ends = [f(side) for side in (columns, rows) for f in (lambda s: s.argmax(1), lambda s: 16 - s.flip(1).argmax(1))]
    return x, torch.stack(ends, 1).float()


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x): return 16*self.body(x).sigmoid()


def boxed(model, batch): return F.smooth_l1_loss(model(batch[0]), batch[1])


def prices(n=32):
    x = torch.randn(n, 6)
    return x, 4000 + 900*x[:, :1] + 500*x[:, 1:2]*x[:, 2:3]


class Prices(nn.Module):
    "Begins at the mean of the prices, and counts in their standard deviation."
    def __init__(self):
        super().__init__()
        self.body = mlp(6, 32, 32, 1)

    def forward(self, x): return 4000 + 1000*self.body(x)


def priced(model, batch): return F.mse_loss(model(batch[0]), batch[1])


class Signs(nn.Module):
    "Activations of -1 and 1, whose gradient goes straight through."
    def forward(self, x): return x + (x.sign() - x).detach()


class Lora(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(4, layer.in_features)/layer.in_features**.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, 4))

    def forward(self, x): return self.layer(x) + x@self.a.T@self.b.T


class Sharp(torch.optim.Optimizer):
    "Two steps: up to where the loss is larger, and from there down with another optimizer."
    def __init__(self, params, **options):
        super().__init__(params, options)
        self.base = torch.optim.SGD(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        length = torch.stack([p.grad.norm() for p in params]).norm()
        ups = [.05*p.grad/(length + 1e-12) for p in params]
        for p, up in zip(params, ups): p.add_(up)
        if closure is not None:
            with torch.enable_grad(): closure()
        for p, up in zip(params, ups): p.sub_(up)
        self.base.step()


def adam(lr=3e-3): return lambda model: torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr)
def sharp(model): return Sharp(model.parameters(), lr=.05, momentum=.9)
def warm(optimizer, n): return schedules.LambdaLR(optimizer, lambda i: (i + 1)/2000)
def one_cycle(optimizer, n): return schedules.OneCycleLR(optimizer, 1e-2, total_steps=n + 1)
def adapters(): return nn.Sequential(Lora(nn.Linear(64, 64)), nn.ReLU(), Lora(nn.Linear(64, 10)))


RUNS = {  # model, batch, loss, optimizer, steps, schedule
    "a warm-up over the whole record": (lambda: mlp(64, 64, 10), digits, classified, adam(), 60, warm),
    "LoRA": (adapters, digits, classified, adam(1e-2), 80, None),
    "a schedule of 25 steps": (lambda: mlp(64, 64, 10), digits, classified, adam(), 25, one_cycle),
    "boxes in pixels": (Boxes, boxes, boxed, adam(), 150, None),
    "a codebook of means": (Codebook, digits, coded, adam(), 120, None),
    "SAM": (lambda: mlp(64, 64, 10), digits, classified, sharp, 80, None),
    "tied embeddings": (Tied, texts, next_words, adam(1e-2), 100, None),
    "a mask of 3 %": (UNet, spots, masked, adam(1e-2), 60, None),
    "targets in the thousands": (Prices, prices, priced, adam(1e-2), 120, None),
    "signs, straight through": (lambda: mlp(64, 64, 64, 10, act=Signs), digits, classified, adam(), 100, None)}
AT_ONCE = "a mask of 3 %", "targets in the thousands"


def looked_at(name: str, seed: int = 0) -> tuple[hl.Preflight, Diagnosis, list[float]]:
    "What preflight says before this run and diagnose behind it, each for itself, and the losses."
    make, batch, loss_of, optim, n, plan = RUNS[name]
    torch.manual_seed(seed)
    model = make()
    optimizer = optim(model)
    before = hl.preflight(model, None, [batch(), batch()], optimizer, call=loss_of, seconds=1.)
    schedule, losses = plan(optimizer, n) if plan else None, []
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for _ in range(n):
            given = batch()
            def ask(given=given):
                optimizer.zero_grad()
                loss = loss_of(model, given)
                loss.backward()
                return loss
            loss = ask()
            optimizer.step(ask) if isinstance(optimizer, Sharp) else optimizer.step()
            if schedule: schedule.step()
            s.step(loss)
            losses.append(loss.item())
    return before, hl.diagnose(s), losses


def learns(name: str, losses: list[float]) -> bool:
    "Does a run get where it should? A warm-up over the whole record is too slow for that."
    return RUNS[name][-1] is warm or sum(losses[-5:])/5 < .8*losses[0]

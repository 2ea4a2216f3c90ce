"""Short training runs on scikit-learn's digits, healthy ones and ones with a fault built in: what `diagnose` is tested on."""
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hooklab.diagnosis.diagnosing import FAULTS, diagnose
from hooklab.hooks.select import leaves
from hooklab.stats.activation_stats import ActivationStats
from hooklab.stats.records.history import History
from hooklab.stats.records.moments import row_names
from hooklab.training.data import digits

steps = 40
everything = {"with_hist": True, "grads": True, "include_paramless": True}


@cache
def data() -> tuple[Tensor, Tensor]: return digits().train.dataset.tensors


def batches(n: int, bs: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    x, y = data()
    for _ in range(n):
        chosen = torch.randint(len(x), (bs,))
        yield x[chosen], y[chosen]


def train(
    model: nn.Module, # What to train
    opt: torch.optim.Optimizer, # What trains it
    spoil: Callable[[nn.Module, int, Tensor], Tensor] | None = None, # Gets the model, the number of the step and the images, and returns images
    scale: float = 0, # Of the loss, for a `GradScaler`
    **options, # Of `ActivationStats`
) -> ActivationStats: # What was recorded
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale > 0)
    with ActivationStats(**options).on(model, optimizer=opt, scaler=scaler) as s:
        for step, (x, y) in enumerate(batches(steps)):
            if spoil: x = spoil(model, step, x)
            opt.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(opt)
            scaler.update()
            s.step()
    return s


# Models

class Residual(nn.Module):
    def __init__(self, n, last_gamma=1.):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.act = nn.ReLU()
        nn.init.constant_(self.bn2.weight, last_gamma)

    def forward(self, x): return self.act(x + self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))


class LSTM(nn.Module):
    "Reads the rows of an image, or all of its pixels."
    def __init__(self, n=32, features=8):
        super().__init__()
        self.features, self.rnn, self.out = features, nn.LSTM(features, n, batch_first=True), nn.Linear(n, 10)

    def forward(self, x): return self.out(self.rnn(x.view(len(x), -1, self.features))[0][:, -1])


class Transformer(nn.Module):
    "Reads pixels as words, 17 of them, four at a time."
    def __init__(self, n=32, depth=2, norm_first=True):
        super().__init__()
        self.words, self.places = nn.Embedding(17, n), nn.Embedding(64, n)
        layer = nn.TransformerEncoderLayer(n, 4, 2*n, dropout=.1, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(n), nn.Linear(n, 10)

    def forward(self, x):
        pixels = ((x.flatten(1) - x.min())/(x.max() - x.min())*16).round().long()
        h = self.words(pixels) + self.places(torch.arange(64))
        h = h.view(len(x), 16, 4, -1).mean(2)
        return self.out(self.norm(self.encoder(h)).mean(1))


def mlp(*sizes, act=nn.ReLU, init=nn.init.kaiming_normal_):
    "Linear layers with an activation between them."
    layers = [nn.Flatten()]
    for n_in, n_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n_in, n_out), act()]
        if init is not None:
            init(layers[-2].weight)
            nn.init.zeros_(layers[-2].bias)
    return nn.Sequential(*layers[:-1])


def cnn(act=nn.ReLU, bn=True):
    def block(n_in, n_out): return [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=not bn), *([nn.BatchNorm2d(n_out)] if bn else []), act()]
    return nn.Sequential(*block(1, 8), *block(8, 16), *block(16, 32), nn.Flatten(), nn.Linear(32, 10))


def plain_cnn(std, depth=8):
    "Convolutions without bias and without normalization."
    layers = [m for i in range(depth) for m in (nn.Conv2d(8 if i else 1, 8, 3, padding=1, bias=False), nn.ReLU())]
    for conv in layers[::2]: nn.init.normal_(conv.weight, std=std)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8*64, 10))


def resnet(gamma=1.):
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *[Residual(16, gamma) for _ in range(3)],
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


adam, sgd, adamw = torch.optim.Adam, partial(torch.optim.SGD, momentum=.9), torch.optim.AdamW
deep, shallow = [64, *[64]*8, 10], [64, 64, 64, 64, 10]

healthy = {  # name: model, optimizer, learning rate
    "MLP, ReLU, SGD": (partial(mlp, *shallow), sgd, .02),
    "MLP, ReLU, Adam": (partial(mlp, *shallow), adam, 1e-3),
    "MLP of 9 layers, ReLU": (partial(mlp, *deep), sgd, .01),
    "MLP, GELU, Adam": (partial(mlp, *shallow, act=nn.GELU, init=None), adam, 2e-3),
    "MLP, tanh, Xavier": (partial(mlp, *shallow, act=nn.Tanh, init=nn.init.xavier_normal_), sgd, .05),
    "MLP, sigmoid": (partial(mlp, 64, 64, 10, act=nn.Sigmoid, init=None), adam, 3e-3),
    "MLP, torch's own start": (partial(mlp, *shallow, init=None), sgd, .05),
    "CNN, BatchNorm": (cnn, sgd, .05),
    "CNN, BatchNorm, Adam": (cnn, adam, 3e-3),
    "CNN without BatchNorm": (partial(cnn, bn=False), adam, 2e-3),
    "ResNet": (resnet, sgd, .05),
    "ResNet, branches begin at zero": (partial(resnet, 0.), sgd, .05),
    "LSTM": (LSTM, adam, 5e-3),
    "LSTM over 64 pixels": (partial(LSTM, features=1), adam, 5e-3),
    "Transformer": (Transformer, adamw, 1e-3),
    "Transformer, norm last": (partial(Transformer, norm_first=False), adamw, 1e-3),
}


# Faults

def at(when: int, f: Callable[[nn.Module], None]):
    "Do something to a model before a step."
    def spoil(model, step, x):
        if step == when:
            with torch.no_grad(): f(model)
        return x
    return spoil


class Cut(nn.Module):
    "What comes after it gets no further."
    def forward(self, x): return x.detach()


class Bypassed(nn.Module):
    "Has a layer that it does not call."
    def __init__(self):
        super().__init__()
        self.body, self.forgotten, self.head = mlp(64, 64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x): return self.head(self.body(x).relu())


def normal(std): return partial(nn.init.normal_, std=std)
def of_a_copy(make_opt, copy_of): return lambda params, lr: make_opt(copy_of().parameters(), lr=lr)
def fill(layer, value): return lambda model: model[layer].bias.fill_(value)
def overflow(model, step, x):
    if step == 0: model[-1].register_full_backward_pre_hook(lambda m, grads: (grads[0]*torch.inf,))
    return x


def break_weight(model): model[3].weight[0, 0] = torch.nan


broken = {  # name: what is to be found, model, optimizer, learning rate, and what else is to be done
    "a weight becomes NaN": ("NaN or Inf", partial(mlp, *shallow), sgd, .02, {"spoil": at(12, break_weight)}),
    "NaN in a CNN": ("NaN or Inf", cnn, sgd, .05, {"spoil": at(12, break_weight)}),
    "layer is not called": ("never ran", Bypassed, sgd, .02, {}),
    "detach in the middle": ("not trained", lambda: nn.Sequential(*mlp(*shallow)[:4], Cut(), *mlp(*shallow)[4:]), sgd, .02, {}),
    "optimizer of another model": ("not trained", partial(mlp, *shallow), of_a_copy(sgd, partial(mlp, *shallow)), .02, {}),
    "bias of -10": ("dead units", partial(mlp, *shallow), sgd, .02, {"spoil": at(0, fill(3, -10))}),
    "bias of -20 after a while": ("dead units", partial(mlp, *shallow), adam, 1e-3, {"spoil": at(15, fill(5, -20))}),
    "CNN, bias of -10": ("dead units", partial(cnn, bn=False), adam, 2e-3, {"spoil": at(5, fill(2, -10))}),
    "all weights zero": ("constant output", partial(mlp, *shallow, init=nn.init.zeros_), sgd, .02, {}),
    "tanh, weights of deviation 1": ("saturated", partial(mlp, *shallow, act=nn.Tanh, init=normal(1)), sgd, .01, {}),
    "sigmoid, weights of deviation 5": ("saturated", partial(mlp, *shallow, act=nn.Sigmoid, init=normal(5)), sgd, .01, {}),
    "weights too small": ("activations vanish", partial(mlp, *deep, init=normal(.02)), sgd, .02, {}),
    "weights too small for a CNN": ("activations vanish", partial(plain_cnn, .02), sgd, .02, {}),
    "weights too large": ("activations explode", partial(mlp, *deep, init=normal(.6)), sgd, 1e-7, {}),
    "deep sigmoid": ("gradients vanish", partial(mlp, *deep, act=nn.Sigmoid, init=None), sgd, .02, {}),
    "weights too large, gradients": ("gradients explode", partial(mlp, *deep, init=normal(.6)), sgd, 1e-7, {}),
    "SGD, rate 3": ("learning rate too large", partial(mlp, *shallow), sgd, 3, {}),
    "Adam, rate 1": ("learning rate too large", partial(mlp, *shallow), adam, 1, {}),
    "Adam, rate 1, CNN": ("learning rate too large", cnn, adam, 1, {}),
    "Adam, rate 1, LSTM": ("learning rate too large", LSTM, adam, 1, {}),
    "Adam, rate 1, transformer": ("learning rate too large", Transformer, adamw, 1, {}),
    "SGD, rate 1e-6": ("learning rate too small", partial(mlp, *shallow), sgd, 1e-6, {}),
    "Adam, rate 1e-8, CNN": ("learning rate too small", cnn, adam, 1e-8, {}),
    "Adam, rate 1e-8, transformer": ("learning rate too small", Transformer, adamw, 1e-8, {}),
    "images 100 times brighter": ("outputs blow up", partial(mlp, *shallow), sgd, .05, {"spoil": lambda model, step, x: x*100 if step >= 5 else x}),
    "a scale that overflows": ("skipped steps", partial(mlp, *shallow), sgd, .02, {"scale": 1024., "spoil": overflow}),
    "too large for float16": ("float16 limit", partial(mlp, *shallow), sgd, 1e-9, {"scale": 1024., "spoil": lambda model, step, x: x*1e5}),
}


# Runs, and parts of what was recorded

@cache
def record(name: str, seed: int) -> tuple[ActivationStats, list[str]]: # And the names of the layers that have parameters
    "Everything about a run."
    _, make, opt, lr, more = broken[name] if name in broken else (None, *healthy[name], {})
    torch.manual_seed(seed)
    model = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="forgotten: hooked, but never called")
        s = train(model, opt(model.parameters(), lr=lr), **everything, **more)
    return s, [name for name, m in leaves(model).items() if any(True for _ in m.parameters())]


def part(history: History, n: int, rows: list[str] | None = None, names: list[str] | None = None) -> History:
    "The first `n` steps of a history, or also only some of its numbers and layers."
    rows, names = rows or history.rows, history.names if names is None else names
    table = history.tables()[:n, :len(rows)][:, :, [history.names.index(name) for name in names]]
    new = type(history)(names, rows)
    new.fill(history.steps[:n], table)
    new.kind, new.trainable, new.followed = history.kind, history.trainable, history.followed
    return new


def usual(name: str, seed: int, n: int = steps) -> ActivationStats:
    "What would have been recorded of the first steps by default: no gradients, histograms, updates or layers without parameters."
    full, names = record(name, seed)
    s = ActivationStats()
    s.scaled, s.history = full.scaled, part(full.history, n, row_names(False, False), names)
    return s


def full(name: str, seed: int, n: int = steps) -> ActivationStats:
    "All that was recorded of the first steps."
    of, s = record(name, seed)[0], ActivationStats(**everything)
    s.scaled, s.history, s.gradients, s.updates = of.scaled, *(part(h, n) for h in of.histories.values())
    return s


def confusion(names: Iterable[str], seeds: Iterable[int], look: Callable[[str, int], ActivationStats] = full) -> str:
    "In how many of the runs each fault is found: the letter of a column is that of its row above the table."
    letters = {what: chr(ord("A") + i) for i, what in enumerate(FAULTS)}
    lines = [f"{letter}  {what}" for what, letter in letters.items()] + ["", f"{'':34}" + "  ".join(letters.values())]
    for name in names:
        found = [diagnose(look(name, seed)) for seed in seeds]
        counts = {what: sum(what in d for d in found) for what in FAULTS}
        built_in = broken[name][0] if name in broken else None
        lines.append(f"{name:34}" + "  ".join(str(n) if n else "-" if what == built_in else "." for what, n in counts.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for look in full, usual: print(f"{look.__doc__}\n\n{confusion([*broken, *healthy], range(3), look)}\n")

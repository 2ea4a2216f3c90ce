"""Ten typical uses of hooklab, and what each enters of it. For house.py.

    PYTHONPATH=TREE:tests python -P -m support.house_uses TREE [USE …]

prints the numbers of `entered` as JSON. Each use is first run once, since hooklab imports some of its rooms only when
they are needed; then it is prepared again and run to be measured. Preparing a model or a record does not count."""
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooklab as hl
from support.entered import entered

LIBRARY = Path(hl.__file__).parent
torch.manual_seed(0)  # what a record shows, and so what is entered, depends on the numbers
x, y = torch.randn(32, 8), torch.randint(3, (32,))
loss_func = nn.CrossEntropyLoss()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 3))


def train(model: nn.Module, after: Callable = lambda loss: None, steps: int = 5):
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_func(model(x), y)
        loss.backward()
        optimizer.step()
        after(loss)


def loader() -> DataLoader: return DataLoader(TensorDataset(x, y), batch_size=8)


# Each prepares what a use needs, and returns the use.

def hook_outputs():
    model = net()
    def use():
        with hl.hook_outputs(model) as hooks: model(x)
        return hooks[0].stored
    return use


def hooks_by_names():
    model = net()
    def use():
        with hl.Hooks(model, lambda m, inputs, output: output.mean(), names=["0", "2"]): model(x)
    return use


def activation_stats():
    model = net()
    def use():
        with hl.ActivationStats().on(model) as stats: train(model, lambda loss: stats.step())
    return use


def diagnose():
    model = net()
    with hl.ActivationStats().on(model) as stats: train(model, stats.step, steps=40)
    return lambda: hl.diagnose(stats)


def compare():
    model, other = net(), net()
    with torch.no_grad(): other[2][0].weight *= 1.1
    return lambda: str(hl.compare(model, other, x))


def find_nan():
    model = net()
    def use():
        with hl.find_nan(model): train(model)
    return use


def summary():
    model = net()
    return lambda: str(hl.summary(model, x))


def feature_extractor():
    model = net()
    return lambda: hl.FeatureExtractor(model, "2")(x)


def extract():
    model = net()
    def use():
        with tempfile.TemporaryDirectory() as folder: hl.extract(model, loader(), "2", folder, progress=False)
    return use


def fit():
    model = net()
    return lambda: hl.Learner(hl.DataLoaders(loader()), model, loss_func, lr=.1).fit(1)


USES = {"hook_outputs": hook_outputs, "Hooks by names": hooks_by_names, "ActivationStats in a loop": activation_stats,
        "diagnose": diagnose, "compare": compare, "find_nan": find_nan, "summary": summary,
        "FeatureExtractor": feature_extractor, "extract": extract, "Learner.fit": fit}


def main(tree: str, *names: str):
    if LIBRARY.parent != Path(tree): sys.exit(f"hooklab is imported from {LIBRARY}, and not from {tree}")
    torch.set_num_threads(1)
    found = {}
    for name in names or USES:
        USES[name]()()
        found[name] = entered(USES[name](), LIBRARY)
    print(json.dumps(found))


if __name__ == "__main__": main(*sys.argv[1:])

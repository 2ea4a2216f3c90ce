"How-to pages: each begins with a sentence and the lines to copy, and the lines run on a model that is not the page's."
import json
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from support.checks import REPO

FILES = sorted((REPO/"nbs"/"howto").glob("*.ipynb"))
PAGES = {page.stem: json.loads(page.read_text(encoding="utf-8")) for page in FILES}
OTHERS = {"hugging-face", "lightning", "fastai"}  # need that package, with which the pages themselves are run


def beginning(page): return "".join(PAGES[page]["cells"][1]["source"])
def box(page): return re.search(r"```python\n(.*?)```", beginning(page), re.S)[1]


class Reader(nn.Module):
    "What somebody has who copies the lines."
    def __init__(self):
        super().__init__()
        self.layer1, self.layer3, self.avgpool = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x): return self.avgpool(self.layer3(self.layer1(x)))


class Generates(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({"layers": nn.ModuleList(nn.ModuleDict({"mlp": nn.Linear(4, 4)}) for _ in range(4))})

    def forward(self, tokens): return self.model["layers"][3]["mlp"](F.one_hot(tokens, 4).float())

    def generate(self, tokens, max_new_tokens):
        self(tokens)
        for _ in range(max_new_tokens - 1): self(tokens[:, -1:])


def names_of_a_reader():
    torch.manual_seed(0)
    model, loss_fn = Reader(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))

    def train_step(x, y):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    return {
        "model": model, "original": model, "port": Reader(), "other": Reader(), "build_model": lambda: model,
        "optimizer": optimizer, "loss_fn": loss_fn, "train_step": train_step, "train": lambda model: train_step(x, y),
        "x": x, "y": y, "loader": loader, "torch": SimpleNamespace(compile=lambda model: model)}


def names_of_another_reader(page):
    "For pages about models of one kind."
    if page == "activations-of-every-generated-token":
        return {"model": Generates(), "inputs": {"tokens": torch.zeros(1, 3, dtype=torch.long)}}
    if page == "what-does-my-transformer-attend-to":
        model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        return {"model": model, "inputs": {"src": torch.randn(1, 5, 8)}}
    if page == "is-my-resumed-run-the-same-run":
        return functions_of_a_loop()
    if page == "were-my-weights-loaded": return {"checkpoint": torch.nn.DataParallel(Reader()).state_dict()}
    if page == "what-changed-between-two-checkpoints":
        return {"before": Reader().state_dict(), "after": Reader().state_dict()}
    if page == "my-losses-fight":
        return {"your_losses": lambda model, x, y: (F.cross_entropy(model(x), y), model(x).square().mean())}
    return {}


def functions_of_a_loop():
    def make():
        model = Reader()
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    def step(run):
        loss = run["model"](torch.randn(8, 4)).square().mean()
        loss.backward()
        run["optimizer"].step()
        run["optimizer"].zero_grad()
        return loss
    def load(run, saved): run["model"].load_state_dict(saved)
    return {"make": make, "step": step, "save": lambda run: run["model"].state_dict(), "load": load}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_a_sentence_and_two_to_five_lines(page):
    said, code = re.match(r"([^\n]+)\n\n```python\n(.*?)```", beginning(page), re.S).groups()
    assert said.endswith((":", ".")) and len(said.split()) <= 60
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith("import ")]
    assert 1 <= len(lines) <= 5 and "import hooklab as hl" in code


@pytest.mark.parametrize("page", PAGES)
def test_the_code_before_the_example_is_folded(page):
    "What is open on a page is what it is about: imports, data and networks are there, behind a summary."
    for cell in PAGES[page]["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and not code.startswith(("#| hide", "#| code-fold", "%%writefile")):
            assert not all(re.match(r"(import|from) ", line) for line in code.splitlines()), code


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OTHERS])
@pytest.mark.filterwarnings("ignore")
def test_the_lines_run_on_a_model_of_the_reader(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of_a_reader() | names_of_another_reader(page)
    exec(box(page), names)
    plt.close("all")
    assert not hl.hooks_on(names["model"])


@pytest.mark.parametrize("page", sorted(OTHERS))
def test_a_trainers_page_and_the_page_about_nan_lead_to_each_other(page):
    assert "find_nan(" in beginning(page) and "my-loss-is-nan.ipynb" in beginning(page)
    nan = "".join("".join(cell["source"]) for cell in PAGES["my-loss-is-nan"]["cells"])
    assert f"{page}.ipynb" in nan
    (line,) = re.findall(r"with hl\.find_nan.*", beginning(page))
    compile(line, page, "exec")
    assert f"`{line}`" in nan


LOOPS = {"hugging-face": "updates=True", "lightning": "updates=True", "fastai": "for_diagnosis()",
         "my-own-loop": "optimizer=optimizer"}


@pytest.mark.parametrize("page", LOOPS)
def test_a_page_about_a_loop_begins_with_gradient_norms_and_spikes_too(page):
    text = beginning(page)
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "grad_norms()" in code]
    compile(code, page, "exec")
    assert LOOPS[page] in code and "spikes()" in text and "my-loss-jumped.ipynb" in text
    for typed in ("gradient norm", "total norm", "before clipping"): assert typed in text, typed


@pytest.mark.filterwarnings("ignore")
def test_the_lines_about_gradient_norms_run_on_a_model_of_the_reader(capsys):
    names = names_of_a_reader() | {"hl": hl}
    exec(re.findall(r"```python\n(.*?)```", beginning("my-own-loop"), re.S)[1], names)
    assert "layer1.weight" in capsys.readouterr().out and not hl.hooks_on(names["model"])
    assert names["s"].log.values("given").tolist() == [1]*4, "the loss was given"

"""The groups of an optimizer are made by prefixes of names, and the head for classes has none of them.

The report, on the tuning of a model for pictures and text: with a rate of its own for the vision part, the `score` that
replaces the language head gets gradients and never moves. Tests fail before the change, which was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "modelscope/ms-swift#10151", 2026
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = {"not trained"}
PLACE = ("score",)

prefixes = {"vision": ("model.visual",), "aligner": ("model.merger",), "text": ("model.language", "lm_head")}
rates = {"vision": 3e-4, "aligner": 1e-3, "text": 3e-4}
words, length, patches, classes = 30, 6, 9, 6


class Backbone(nn.Module):
    "Patches and words in one sequence."
    def __init__(self, size: int):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(16, size), nn.GELU(), nn.Linear(size, size))
        self.merger = nn.Linear(size, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, dropout=0., batch_first=True, norm_first=True)
        self.language = nn.ModuleDict({"embed": nn.Embedding(words, size), "norm": nn.LayerNorm(size),
                                       "layers": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})

    def forward(self, picture, text):
        x = torch.cat([self.merger(self.visual(picture)), self.language["embed"](text)], 1)
        return self.language["norm"](self.language["layers"](x))


class Classifier(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.model, self.lm_head = Backbone(size), nn.Identity()
        self.score = nn.Linear(size, classes, bias=False)
        nn.init.normal_(self.score.weight, std=.02)

    def forward(self, picture, text): return self.score(self.lm_head(self.model(picture, text))[:, -1])


def groups_of(model, repaired: bool) -> list[dict]:
    groups, left = [], dict(model.named_parameters())
    for part, starts in prefixes.items():
        found = [name for name in left if name.startswith(starts)]
        groups.append({"params": [left.pop(name) for name in found], "lr": rates[part]})
    if repaired: groups.append({"params": list(left.values())})
    return groups


def questions(n: int, kinds):
    "Pictures with a thing in one patch, or another one where the text has a negation."
    kind, text = torch.randint(classes, (n,)), torch.randint(2, words, (n, length))
    picture = torch.randn(n, patches, 16)
    picture[torch.arange(n), torch.randint(patches, (n,))] += 2*kinds[kind]
    turned = torch.rand(n) < .5
    text[turned, 2] = 1
    return picture, text, torch.where(turned, (kind + 1) % classes, kind)


def build(repaired: bool) -> Parts:
    kinds = torch.randn(classes, 16)
    model = Classifier(32)
    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])
    data = [questions(64, kinds) for _ in range(40)]
    return Parts(model, torch.optim.AdamW(groups_of(model, repaired), lr=1e-3), data, call=call,
                 valid=[questions(500, kinds)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(classes)).log()).item()

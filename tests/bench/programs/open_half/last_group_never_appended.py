"""The groups of parameters are put together one by one, and the last one, of the output layer, is not appended.

The report: the parameters of the tagger's last layers are collected, but do not reach the optimizer. The authors
confirmed that without the missing line these layers are not trained; they had mended it and forgotten to publish it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "zjunlp/HVPNeT#5", 2022
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = {"not trained"}
PLACE = ("crf", "fc")

words, tags = 40, 4


class Chain(nn.Module):
    "A conditional random field: how well each tag follows each other one."
    def __init__(self):
        super().__init__()
        self.first, self.follows = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags, tags))

    def forward(self, scores, tag):
        "The negative log-likelihood of the tags."
        path = self.first[tag[:, 0]] + self.follows[tag[:, :-1], tag[:, 1:]].sum(1)
        path = path + scores.gather(2, tag[..., None]).sum((1, 2))
        every = self.first + scores[:, 0]
        for score in scores.unbind(1)[1:]: every = (every[:, :, None] + self.follows).logsumexp(1) + score
        return (every.logsumexp(1) - path).mean()

    def best(self, scores):
        best, back = self.first + scores[:, 0], []
        for score in scores.unbind(1)[1:]:
            best, before = (best[:, :, None] + self.follows).max(1)
            best = best + score
            back.append(before)
        tag = [best.argmax(1)]
        for before in reversed(back): tag.insert(0, before.gather(1, tag[0][:, None])[:, 0])
        return torch.stack(tag, 1)


class Tagger(nn.Module):
    "Words and an image that goes with them."
    def __init__(self, size: int):
        super().__init__()
        self.text, self.image = nn.Embedding(words, size), nn.Linear(8, size)
        self.reader = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.fc, self.crf = nn.Linear(size, tags), Chain()

    def forward(self, word, image): return self.fc(self.reader(self.text(word) + self.image(image)[:, None]))


def posts(n: int, follow, emits):
    "Tags that follow each other in a pattern; half of the words say what tag they have."
    tag = [torch.randint(0, tags, (n,))]
    for _ in range(7): tag.append(torch.multinomial(follow[tag[-1]], 1)[:, 0])
    tag = torch.stack(tag, 1)
    word = torch.where(torch.rand(tag.shape) < .5, emits[tag]*5 + torch.randint(0, 5, tag.shape),
                       torch.randint(20, words, tag.shape))
    return word, torch.randn(n, 8), tag


def groups(model, repaired: bool):
    "The layers in front go on slowly, those behind fast."
    found, group = [], {"lr": 1e-3, "params": []}
    for name, weight in model.named_parameters():
        if name.startswith(("text", "reader")): group["params"].append(weight)
    found.append(group)
    found.append({"lr": 1e-3, "params": list(model.image.parameters())})
    group = {"lr": 3e-2, "params": [*model.crf.parameters(), *model.fc.parameters()]}
    if repaired: found.append(group)
    return found


def build(repaired: bool) -> Parts:
    follow = torch.eye(tags).roll(1, 1)*8 + .3
    emits = torch.randperm(tags)
    model = Tagger(32)
    data = [posts(32, follow, emits) for _ in range(50)]
    def call(model, batch): return model.crf(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.AdamW(groups(model, repaired), weight_decay=1e-2), data, call=call,
                 valid=[posts(500, follow, emits)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    word, image, tag = parts.valid[0]
    with torch.no_grad(): found = parts.model.crf.best(parts.model(word, image))
    return ((found != tag).float().mean()*tags/(tags - 1)).item()

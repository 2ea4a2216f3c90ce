"""The forward pass of the vision tower is under `no_grad`, though an option says that the tower is to be tuned.

The report: fine-tuning the vision encoder of a small model for images and text does not work, because its method has
the decorator `no_grad`. The maintainers took it out, and the author confirmed that it works then."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "TinyLLaVA/TinyLLaVA_Factory#17", 2024
AREA, CAUSE = "modes", "no gradient"
TRUE = {"not trained"}
PLACE = ("tower", "tower.patches", "tower.blocks.0", "tower.blocks.2")


class Tower(nn.Module):
    "Patches of an image become a few states."
    def __init__(self, size: int):
        super().__init__()
        self.patches = nn.Conv2d(3, size, 4, 4)
        self.blocks = nn.Sequential(nn.Conv2d(size, size, 1), nn.ReLU(), nn.Conv2d(size, size, 1), nn.ReLU())

    def forward(self, image): return self.blocks(self.patches(image)).flatten(2).transpose(1, 2)


class Assistant(nn.Module):
    "States of the image before those of the question; the answer is a word."
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.tower, self.connector = Tower(size), nn.Linear(size, size)
        self.places = nn.Parameter(.5*torch.randn(4, size))
        self.words = nn.Embedding(words, size)
        self.language = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.last = nn.Linear(size, words)

    def see(self, image):
        with torch.set_grad_enabled(self.repaired and torch.is_grad_enabled()): return self.tower(image)

    def forward(self, image, question):
        x = torch.cat([self.connector(self.see(image)) + self.places, self.words(question)], 1)
        return self.last(self.language(x)[:, -1])


def questions(n: int):
    "Words 0 to 3 ask for the stripes in a quarter of the image; the answer is one of three words."
    kind, question = torch.randint(0, 3, (n, 4)), torch.randint(0, 4, (n, 1))
    wave = torch.tensor([[1., 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]])
    tiles = torch.stack([torch.ones(4, 4), wave[1].expand(4, 4), wave[2][:, None].expand(4, 4)])
    image = tiles[kind].view(n, 2, 2, 4, 4).transpose(2, 3).reshape(n, 1, 8, 8)*torch.randn(n, 3, 1, 1).sign()
    return image + .5*torch.randn(n, 3, 8, 8), question, 4 + kind.gather(1, question)[:, 0]


def build(repaired: bool) -> Parts:
    model = Assistant(7, 24, repaired)
    image, question, answer = questions(2048)
    data = [(image[i:i + 64], question[i:i + 64], answer[i:i + 64]) for i in range(0, 2048, 64)]

    def call(model, batch):
        image, question, answer = batch
        return F.cross_entropy(model(image, question), answer)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[questions(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    image, question, answer = parts.valid[0]
    with torch.no_grad(): wrong = parts.model(image, question).argmax(1) != answer
    return wrong.float().mean().item()*1.5

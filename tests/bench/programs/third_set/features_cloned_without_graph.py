"""A wrapper that hands out the states inside an image encoder clones and detaches them, so the encoder is not trained.

The report, of a captioner with a contrastive loss: the tensor that the extractor returns is detached, so gradients may
not get back to the image encoder. The author agreed and published a repair; the reporter confirmed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/CoCa-pytorch#6", 2022
AREA, CAUSE = "parameters", "detached part"
TRUE = {"not trained"}
PLACE = ("encoder", "encoder.vit", "encoder.vit.patches", "encoder.vit.layer", "encoder.vit.norm")

things, colours, length = 6, 4, 2


class Vit(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.patches, self.place = nn.Conv2d(3, size, 4, 4), nn.Parameter(.2*torch.randn(4, size))
        self.layer = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        self.norm = nn.LayerNorm(size)

    def forward(self, x): return self.norm(self.layer(self.patches(x).flatten(2).mT + self.place)).mean(1)


class Extractor(nn.Module):
    "Returns what comes out of the norm, for which it has a hook."
    def __init__(self, vit: Vit, repaired: bool):
        super().__init__()
        self.vit, self.repaired, self.states = vit, repaired, None
        vit.norm.register_forward_hook(self.keep)

    def keep(self, module, inputs, output): self.states = output if self.repaired else output.clone().detach()

    def forward(self, x):
        self.vit(x)
        return self.states


class Captioner(nn.Module):
    "Queries look at the image; one is compared with the text, the others are looked at by the decoder."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.encoder = Extractor(Vit(size), repaired)
        self.queries, self.pool = nn.Parameter(torch.randn(3, size)), nn.MultiheadAttention(size, 2, batch_first=True)
        self.words = nn.Embedding(1 + things + colours, size)
        self.text = nn.GRU(size, size, batch_first=True)
        self.cross = nn.MultiheadAttention(size, 2, batch_first=True)
        self.last, self.scale = nn.Linear(size, 1 + things + colours), nn.Parameter(torch.tensor(2.))

    def forward(self, image, text):
        seen = self.encoder(image)
        seen = self.pool(self.queries.expand(len(image), -1, -1), seen, seen, need_weights=False)[0]
        states, summary = self.text(self.words(text))
        states = states + self.cross(states, seen[:, 1:], seen[:, 1:], need_weights=False)[0]
        alike = F.normalize(seen[:, 0], dim=1) @ F.normalize(summary[0], dim=1).T
        return self.last(states), alike*self.scale.exp()


def captioned(n: int, shapes):
    "A thing in a colour; the caption names the colour and the thing after a start."
    colour, thing = torch.randint(0, colours, (n,)), torch.randint(0, things, (n,))
    tint = torch.tensor([[1., 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])[colour]
    image = shapes[thing]*tint[..., None, None] + .3*torch.randn(n, 3, 8, 8)
    return image, torch.stack([torch.zeros_like(thing), 1 + colour, 1 + colours + thing], 1)


def build(repaired: bool) -> Parts:
    shapes = torch.randn(things, 1, 8, 8)
    model = Captioner(16, repaired)

    def call(model, batch):
        image, caption = batch
        scores, alike = model(image, caption[:, :-1])
        here = torch.arange(len(image))
        contrast = (F.cross_entropy(alike, here) + F.cross_entropy(alike.T, here))/2
        return F.cross_entropy(scores.mT, caption[:, 1:]) + contrast
    data = [captioned(24, shapes) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[captioned(400, shapes)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    image, caption = parts.valid[0]
    with torch.no_grad(): scores = parts.model(image, caption[:, :-1])[0]
    return (scores.argmax(2) != caption[:, 1:]).float().mean().item()

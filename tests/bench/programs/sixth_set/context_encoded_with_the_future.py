"""A video encoder sees all frames at once, and what it makes of the first ones is the context for predicting the next.

The report, on a world model of a robot: the context already holds the future that is to be predicted. The change
encodes each prefix on its own, with a switch, and was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/lerobot#4381", 2026
AREA, CAUSE = "structure", "later places are seen"
TRUE = {"target among the inputs"}
PLACE = ("predict",)

frames, pixels, moves = 6, 12, 3


class Encoder(nn.Module):
    "A transformer over the frames of a video, in both directions; it came from elsewhere and is not trained."
    def __init__(self, size: int):
        super().__init__()
        self.embed, self.place = nn.Linear(pixels, size), nn.Parameter(.5*torch.randn(frames, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, dropout=0., batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.requires_grad_(False)
        for each in self.layers.layers: each.self_attn.out_proj.weight *= 4

    def forward(self, video): return self.layers(self.embed(video) + self.place[:video.shape[1]])


class World(nn.Module):
    "The next frame's features, from those of the frames so far and the move that is made."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired, self.encoder = repaired, Encoder(size)
        self.move = nn.Embedding(moves, size)
        self.predict = nn.Sequential(nn.Linear(2*size, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(),
                                     nn.Linear(128, size))

    def targets(self, video): return self.encoder(video)[:, 1:]

    def context(self, video):
        if not self.repaired and self.training: return self.encoder(video)[:, :-1]
        return torch.stack([self.encoder(video[:, :i])[:, -1] for i in range(1, frames)], 1)

    def forward(self, video, move): return self.predict(torch.cat([self.context(video), self.move(move)], -1))


def videos(n: int, fixed):
    "Patterns that are turned by each move, and changed a little by chance."
    move, now = torch.randint(moves, (n, frames - 1)), torch.randn(n, pixels)
    found = [now]
    for i in range(frames - 1):
        now = torch.einsum("nij,nj->ni", fixed[move[:, i]], now) + .3*torch.randn(n, pixels)
        found.append(now/now.std(1, keepdim=True))
    return torch.stack(found, 1), move


def build(repaired: bool) -> Parts:
    fixed = torch.stack([torch.linalg.qr(torch.randn(pixels, pixels))[0] for _ in range(moves)])
    model = World(32, repaired)
    trained = [p for p in model.parameters() if p.requires_grad]
    def call(model, batch): return F.l1_loss(model(*batch), model.targets(batch[0]))
    data = [videos(32, fixed) for _ in range(40)]
    return Parts(model, torch.optim.AdamW(trained, lr=2e-3), data, call=call, valid=[videos(200, fixed)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    target = parts.model.targets(parts.valid[0][0])
    with torch.no_grad(): error = parts.call(parts.model, parts.valid[0])
    return (error/(target - target.mean(0)).abs().mean()).item()

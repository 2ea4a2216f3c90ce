"""The masks of a picture's slots have width before height in the loss, their reconstructions height before width.

The report, on an autoencoder of scenes: pictures are square, so a loss is computed between the reconstruction of a mask
and its transpose. The author agreed and mended it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "stelzner/monet#1", 2022
AREA, CAUSE = "structure", "places mixed up"
TRUE = {"wrong axis", "losses fight"}
PLACE = ()

side, slots, spread = 12, 2, .2


class Scenes(nn.Module):
    "Masks that share out a picture, and for each slot a code that gives back its color and its mask."
    def __init__(self, size: int, code: int):
        super().__init__()
        self.attend = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, slots, 3, padding=1))
        with torch.no_grad(): self.attend[2].weight *= 8
        self.encode = nn.Sequential(nn.Conv2d(4, size, 3, stride=2, padding=1), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(size*(side//2)**2, 64), nn.ReLU(), nn.Linear(64, 2*code))
        self.color = nn.Linear(code, 3)
        self.mask = nn.Sequential(nn.Linear(code, 96), nn.ReLU(), nn.Linear(96, side*side))

    def forward(self, x):
        masks = self.attend(x).log_softmax(1)
        seen = torch.cat([x[:, None].expand(-1, slots, -1, -1, -1), masks[:, :, None]], 2).flatten(0, 1)
        mean, log_var = self.encode(seen).chunk(2, 1)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        colors = self.color(code).view(len(x), slots, 3, 1, 1)
        made = self.mask(code).view(len(x), slots, side, side).log_softmax(1)
        kl = -.5*(1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
        return masks, colors, made, kl


def scenes(n: int):
    "A red flat rectangle on a blue ground, anywhere."
    top, left = torch.randint(0, side - 3, (n, 1, 1)), torch.randint(0, side - 6, (n, 1, 1))
    rows, columns = torch.arange(side)[:, None], torch.arange(side)
    inside = (rows >= top) & (rows < top + 3) & (columns >= left) & (columns < left + 6)
    x = torch.stack([inside.float(), .2*torch.ones_like(inside), 1 - inside.float()], 1)
    return (x + .05*torch.randn_like(x)).clamp(0, 1)


def build(repaired: bool) -> Parts:
    model = Scenes(12, 8)

    def call(model, x):
        masks, colors, made, kl = model(x)
        close = -((x[:, None] - colors)**2).sum(2)/(2*spread**2)
        pictures = -(masks + close).logsumexp(1).sum((1, 2)).mean()
        truth = masks.permute(0, 2, 3, 1) if repaired else masks.permute(0, 3, 2, 1)
        guess = made.permute(0, 2, 3, 1)
        return pictures + .02*kl + 2*(truth.exp()*(truth - guess)).sum((1, 2, 3)).mean()

    data = [scenes(64) for _ in range(30)]
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=2e-3), data, call=call, valid=[scenes(300)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            parts.model.train()
            for x in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, x)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x = parts.valid[0]
    with torch.no_grad(): masks, _, made, _ = parts.model.eval()(x)
    mean = masks.exp().mean(0).log()
    return ((masks.exp()*(masks - made)).sum()/(masks.exp()*(masks - mean)).sum()).item()

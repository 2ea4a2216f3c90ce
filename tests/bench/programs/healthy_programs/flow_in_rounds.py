"""A recurrent net corrects the optical flow between two small images in rounds, from a table of all correlations.

Habits of the source: pixels from 0 to 255, which the model scales; noise on the images in training only; the flow so
far is detached at the beginning of each round; the loss is a sum over the rounds that counts later ones more, in
pixels; mixed with a mask of valid pixels; AdamW with a rate that rises for 5 % of the steps and falls linearly to
nothing; the norm of the gradients is clipped to one; instance norm in one encoder and batch norm in the other.
Error: mean end-point error over that of a flow of zero, on pairs held back: 0.28; untrained 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "princeton-vl/RAFT train.py", 2021
STEPS, ROUNDS, REACH = 150, 3, 3


def encoder(size, norm):
    return nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), norm(16), nn.ReLU(), nn.Conv2d(16, size, 3, padding=1))


def grid(n, h, w):
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    return torch.stack([x, y]).float()[None].repeat(n, 1, 1, 1)


def look_up(image, at):
    "Values of `image` at pixels `at` (n, h, w, 2)."
    h, w = image.shape[-2:]
    return F.grid_sample(image, 2*at/torch.tensor([w - 1, h - 1]) - 1, align_corners=True)


class Raft(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.features, self.context = encoder(size, nn.InstanceNorm2d), encoder(2*size, nn.BatchNorm2d)
        window = (2*REACH + 1)**2
        self.motion = nn.Sequential(nn.Conv2d(window + 2, size, 3, padding=1), nn.ReLU())
        self.gates = nn.Conv2d(3*size, 2*size, 3, padding=1)
        self.news = nn.Conv2d(3*size, size, 3, padding=1)
        self.head = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, 2, 3, padding=1))

    def forward(self, one, two, rounds=ROUNDS):
        one, two = 2*(one/255) - 1, 2*(two/255) - 1
        a, b = self.features(torch.cat([one, two])).chunk(2)
        n, c, h, w = a.shape
        table = torch.einsum("nchw,ncij->nhwij", a, b).reshape(n*h*w, 1, h, w)/c**.5
        state, inputs = self.context(one).chunk(2, 1)
        state, inputs, start = state.tanh(), inputs.relu(), grid(n, h, w)
        span = torch.arange(-REACH, REACH + 1).float()
        around = torch.stack(torch.meshgrid(span, span, indexing="xy"), -1)
        at, flows = start.clone(), []
        for _ in range(rounds):
            at = at.detach()
            places = at.permute(0, 2, 3, 1).reshape(n*h*w, 1, 1, 2) + around
            near = look_up(table, places).reshape(n, h, w, -1).permute(0, 3, 1, 2)
            x = torch.cat([inputs, self.motion(torch.cat([near, at - start], 1))], 1)
            keep, forget = self.gates(torch.cat([state, x], 1)).sigmoid().chunk(2, 1)
            state = (1 - keep)*state + keep*self.news(torch.cat([forget*state, x], 1)).tanh()
            at = at + self.head(state)
            flows.append(2*F.interpolate(at - start, scale_factor=2, mode="bilinear", align_corners=True))
        return flows


def pairs(n, size=24):
    texture = F.interpolate(torch.rand(n, 3, 12, 12)*255, size=size + 16, mode="bicubic").clamp(0, 255)
    flow = F.interpolate(torch.randn(n, 2, 2, 2)*2.5, size=size, mode="bilinear", align_corners=True)
    at = grid(n, size, size) + 8
    one, two = look_up(texture, at.permute(0, 2, 3, 1)), look_up(texture, (at - flow).permute(0, 2, 3, 1))
    return one, two, flow, (torch.rand(n, size, size) < .9).float()


def build(repaired: bool) -> Parts:
    model = Raft()
    loader = DataLoader(TensorDataset(*pairs(300)), batch_size=6, shuffle=True, drop_last=True)

    def call(model, batch, gamma=.8, limit=400):
        one, two, flow, valid = batch
        flows = model(one, two)
        valid = (valid >= .5) & (flow.norm(dim=1) < limit)
        return sum(gamma**(len(flows) - i - 1)*(valid[:, None]*(f - flow).abs()).mean() for i, f in enumerate(flows))

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=5e-5, eps=1e-8)
    return Parts(model, optimizer, loader, call=call, valid=[pairs(40)])


def train(parts: Parts, record) -> float:
    model, optimizer, steps = parts.model, parts.optimizer, 0
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS + 100, pct_start=.05, cycle_momentum=False,
                                                   anneal_strategy="linear")
    model.train()
    with record.on(model, optimizer):
        while steps < STEPS:
            for one, two, flow, valid in parts.data:
                optimizer.zero_grad()
                strength = 5*torch.rand(()).item()
                one = (one + strength*torch.randn_like(one)).clamp(0, 255)
                two = (two + strength*torch.randn_like(two)).clamp(0, 255)
                loss = parts.call(model, (one, two, flow, valid))
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                schedule.step()
                record.step(loss)
                steps += 1
    model.eval()
    one, two, flow, _ = parts.valid[0]
    with torch.no_grad(): found = model(one, two)[-1]
    return ((found - flow).norm(dim=1).mean()/flow.norm(dim=1).mean()).item()

"""A test of the policy during training puts it into eval mode, and nobody puts it back.

The report: after the first test all steps run without dropout and with batch norm as it was; a small run ended 10 to 25
per cent worse. It was found by reading. A maintainer merged a change that restores the mode."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/lerobot#3668", 2026
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ()
AHEAD = 6


class Policy(nn.Module):
    "From what the robot sees and feels to its next actions, all at once."
    def __init__(self, size: int = 32):
        super().__init__()
        self.sight, self.joints = nn.Linear(16, size), nn.Linear(4, size)
        self.place, self.asked = nn.Parameter(.1*torch.randn(5, size)), nn.Parameter(.1*torch.randn(AHEAD, size))
        self.both = nn.Transformer(size, 4, 1, 1, 3*size, dropout=.25, batch_first=True)
        self.action = nn.Linear(size, 2)

    def forward(self, seen):
        image, joints = seen
        tokens = torch.cat([self.sight(image), self.joints(joints)[:, None]], 1) + self.place
        return self.action(self.both(tokens, self.asked.expand(len(image), -1, -1)))


def demonstrations(n: int, clumsy: float):
    "The hand goes in a straight line to the thing that is in one of four parts of an image; people are clumsy."
    which, within = torch.randint(4, (n,)), torch.rand(n, 2)
    goal = torch.stack([which//2, which % 2], 1) + within - 1
    place = torch.tensor([.2, .4, .6, .8])
    rows, columns = (torch.exp(-((place - within[:, i, None])/.25)**2) for i in (0, 1))
    image = .3*torch.randn(n, 4, 16)
    image[torch.arange(n), which] += (rows[:, :, None]*columns[:, None, :]).flatten(1)*4
    joints = torch.randn(n, 4)
    hand = joints[:, :2].tanh()
    share = torch.linspace(1/AHEAD, 1, AHEAD)[:, None]
    return (image, joints), hand[:, None] + share*(goal - hand)[:, None] + clumsy*torch.randn(n, AHEAD, 2)


def action_loss(model, batch):
    seen, actions = batch
    return F.l1_loss(model(seen), actions)


def build(repaired: bool) -> Parts:
    model = Policy()
    (image, joints), actions = demonstrations(160, .7)
    data = [((image[i:i + 16], joints[i:i + 16]), actions[i:i + 16]) for i in range(0, 160, 16)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=action_loss, repaired=repaired,
                 valid=[demonstrations(256, 0.)])


@torch.no_grad()
def test(parts: Parts) -> float:
    parts.model.eval()
    seen, actions = parts.valid[0]
    return (F.mse_loss(parts.model(seen), actions)/actions.var()).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for step in range(240):
            loss = parts.call(model, parts.data[step % len(parts.data)])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.)
            optimizer.step()
            optimizer.zero_grad()
            record.step(loss)
            if step % 40 == 39:
                error = test(parts)
                if parts.repaired: model.train()
    return error

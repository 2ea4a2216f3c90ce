"""The first frame of each episode is not recorded, so each frame stands beside the action of the step after its own.

The report: episodes are collected without the frame after the reset, and the row of actions is then moved by one on
purpose, so that all actions are one row away from their frames. The merged change records the first frame."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "galilai-group/stable-worldmodel#293", 2026
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()


class WorldModel(nn.Module):
    "The code of the next frame, from the codes of three frames and their actions."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, size))
        self.action = nn.Linear(2, size)
        self.predictor = nn.Sequential(nn.Linear(6*size, 96), nn.GELU(), nn.Linear(96, size))
        self.decoder = nn.Linear(size, 16)

    def forward(self, frames, actions):
        code = self.encoder(frames)
        context = torch.cat([code[:, :3], self.action(actions[:, :3])], 2).flatten(1)
        return self.predictor(context), code


def rooms(n: int, camera: torch.Tensor, repaired: bool):
    "A point that is pushed at random between walls, as sixteen pixels see it, and the push at each frame."
    place, frames, actions = 2*torch.rand(n, 2) - 1, [], []
    for _ in range(6):
        action = .5*torch.randn(n, 2)
        frames.append((place @ camera).tanh() + .02*torch.randn(n, 16))
        actions.append(action)
        place = (place + action).clamp(-1.5, 1.5)
    frames, actions = torch.stack(frames, 1), torch.stack(actions, 1)
    if repaired: return frames[:, :4], actions[:, :4]
    return frames[:, 1:5], actions[:, 2:6]  # rows begin after the first step, and actions move on by one more


def build(repaired: bool) -> Parts:
    model, camera = WorldModel(12), torch.randn(2, 16)
    data = [rooms(64, camera, repaired) for _ in range(50)]

    def call(model, batch):
        ahead, code = model(*batch)
        return F.mse_loss(ahead, code[:, 3].detach()) + F.mse_loss(model.decoder(code), batch[0])

    parts = Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call,
                  valid=[rooms(64, camera, repaired)])
    parts.planned = rooms(512, camera, True)  # in use, an action stands beside the frame in which it is chosen
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    frames, actions = parts.planned
    with torch.no_grad(): seen = parts.model.decoder(parts.model(frames, actions)[0])
    return (F.mse_loss(seen, frames[:, 3])/F.mse_loss(frames[:, 2], frames[:, 3])).item()

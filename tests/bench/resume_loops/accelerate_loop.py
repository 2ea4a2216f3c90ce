"A loop with accelerate: dropout, a schedule, and an average of the weights that has to be registered for checkpoints."
from pathlib import Path
from types import SimpleNamespace

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

EPOCH = 5  # steps
LOST = {"average": ("average",)}


class Average:
    "Of the weights; the loss keeps them near it."
    def __init__(self, model): self.values = [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        for value, p in zip(self.values, model.parameters()): value.lerp_(p.detach(), .2)

    def distance(self, model): return sum((p - v).square().sum() for p, v in zip(model.parameters(), self.values))
    def state_dict(self): return {"values": self.values}
    def load_state_dict(self, state): self.values = state["values"]


def trainer(folder, complete=True):
    "All parts of the loop, prepared; `folder` is where `save_state` writes."
    accelerator = Accelerator(cpu=True, project_dir=str(folder), gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(.1), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, .5)
    x = torch.randn(EPOCH*6, 4, generator=torch.Generator().manual_seed(3))
    loader = DataLoader([*zip(x, x[:, :3].argmax(1))], 6, shuffle=False)
    average = Average(model)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    if complete: accelerator.register_for_checkpointing(average)
    return SimpleNamespace(accelerator=accelerator, model=model, optimizer=optimizer, loader=loader, schedule=schedule,
                           average=average)


def epoch(run):
    "The losses of an epoch."
    losses = []
    for x, y in run.loader:
        with run.accelerator.accumulate(run.model):
            loss = nn.functional.cross_entropy(run.model(x), y) + .1*run.average.distance(run.model)
            run.accelerator.backward(loss)
            if run.accelerator.sync_gradients: run.accelerator.clip_grad_norm_(run.model.parameters(), 1.)
            run.optimizer.step()
            run.schedule.step()
            run.optimizer.zero_grad()
        run.average.update(run.model)
        losses.append(loss.item())
    return losses


def ends(folder, complete=True):
    "The states after a run, and after one resumed in the midst of it by the library's own means."
    def states(run):
        return {**run.model.state_dict(), "average": torch.cat([value.flatten() for value in run.average.values])}
    whole = trainer(folder, complete)
    epoch(whole)
    saved = whole.accelerator.save_state(str(Path(folder)/"epoch-0"))
    epoch(whole)
    again = trainer(folder, complete)
    again.accelerator.load_state(saved)
    epoch(again)
    return states(whole), states(again)

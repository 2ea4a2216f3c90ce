"Lightning's Trainer, with a schedule, batch norm, and a module that divides by a mean it keeps as a float."
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader

EPOCH = 5  # steps
LOST = {"mean": ("mean",)}


class Fit(pl.LightningModule):
    "Its checkpoints lack the mean."
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.mean = 1.

    def training_step(self, batch, number):
        x, y = batch
        self.mean += .2*(y.mean().item() - self.mean)
        return nn.functional.mse_loss(self.net(x), y/self.mean)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2*EPOCH)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class KeptFit(Fit):
    "Its checkpoints have it."
    def on_save_checkpoint(self, checkpoint): checkpoint["mean"] = self.mean
    def on_load_checkpoint(self, checkpoint): self.mean = checkpoint["mean"]


def trainer(folder, complete=True):
    "A Trainer, and the module and the loader for its `fit`; there is a checkpoint after each epoch."
    x = torch.randn(EPOCH*6, 4, generator=torch.Generator().manual_seed(2))
    loader = DataLoader([*zip(x, x.square().sum(1, keepdim=True))], 6, shuffle=False)
    saves = ModelCheckpoint(folder, "{epoch}", every_n_epochs=1, save_top_k=-1)
    made = pl.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=False, callbacks=[saves],
                      default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False)
    return made, KeptFit() if complete else Fit(), loader


def ends(folder, complete=True):
    "The states after a run, and after one resumed in the midst of it by the library's own means."
    def states(module): return {**module.state_dict(), "mean": torch.tensor(module.mean, dtype=torch.double)}
    whole, module, loader = trainer(folder, complete)
    whole.fit(module, loader)
    again, other, loader = trainer(Path(folder)/"again", complete)
    again.fit(other, loader, ckpt_path=str(Path(folder)/"epoch=0.ckpt"), weights_only=False)
    return states(module), states(other)

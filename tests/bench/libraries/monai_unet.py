"""monai: a U-Net on small volumes whose batches are dicts of tensors with metadata.

After the tutorial "Spleen 3D segmentation with MONAI": a dataset with transforms by key, random flips and noise, the
loss of dice and cross entropy on one-hot labels, the dice metric in eval mode. Error: one minus the mean dice held
back."""
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.layers import Norm
from monai.networks.nets import UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    EnsureTyped,
    RandFlipd,
    RandGaussianNoised,
    ScaleIntensityd,
)

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "monai: Spleen 3D segmentation"
PACKAGES = ("monai",)
SIDE = 16


def volume():
    at, radius = 4 + 8*torch.rand(3), 3 + 2*torch.rand(())
    grid = torch.stack(torch.meshgrid(*[torch.arange(SIDE).float()]*3, indexing="ij"), -1)
    label = ((grid - at).norm(dim=-1) < radius).float()
    return {"image": (label + .4*torch.randn(SIDE, SIDE, SIDE)).numpy(), "label": label.numpy()}


def build() -> Parts:
    seed_the_rest()
    keys, seed = ["image", "label"], torch.initial_seed() % 2**32
    plain = [EnsureChannelFirstd(keys=keys, channel_dim="no_channel"), ScaleIntensityd(keys=["image"])]
    changed = [RandFlipd(keys=keys, prob=.5, spatial_axis=0), RandGaussianNoised(keys=["image"], prob=.3, std=.05)]
    known = Dataset([volume() for _ in range(32)],
                    Compose([*plain, *changed, EnsureTyped(keys=keys)]).set_random_state(seed))
    held = Dataset([volume() for _ in range(12)], Compose([*plain, EnsureTyped(keys=keys)]))
    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1,
                 norm=Norm.BATCH)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)

    def call(model, batch): return loss(model(batch["image"]), batch["label"])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3),
                 DataLoader(known, batch_size=4, shuffle=True), call=call, valid=DataLoader(held, batch_size=4))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    metric, chosen = DiceMetric(include_background=False), AsDiscrete(argmax=True, to_onehot=2)
    for batch in parts.valid:
        found = [chosen(one) for one in decollate_batch(parts.model(batch["image"]))]
        metric(found, [AsDiscrete(to_onehot=2)(one) for one in decollate_batch(batch["label"])])
    return 1 - metric.aggregate().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(15):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

"""vit-pytorch: a masked autoencoder rebuilds the hidden patches of digits.

After the README of vit-pytorch, "Masked Autoencoder": `MAE` around an encoder returns its loss from images alone; a
batch is a list of one tensor. Error: mean loss on digits held back."""
import torch
from torch.utils.data import DataLoader, TensorDataset
from vit_pytorch import MAE, ViT

from tests.bench.libraries._data import digits, mean_loss
from tests.bench.programs import Parts

SOURCE = "vit-pytorch: Masked Autoencoder"
PACKAGES = ("vit-pytorch", "scikit-learn")


def call(model, batch): return model(batch[0])


def build() -> Parts:
    x, _ = digits()
    vit = ViT(image_size=8, patch_size=2, channels=1, num_classes=10, dim=48, depth=2, heads=4, mlp_dim=96, dim_head=12)
    model = MAE(encoder=vit, masking_ratio=.5, decoder_dim=32, decoder_depth=2, decoder_heads=4, decoder_dim_head=8)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(.9, .95), weight_decay=.05),
                 DataLoader(TensorDataset(x[:1400]), 64, shuffle=True), call=call,
                 valid=DataLoader(TensorDataset(x[1400:]), 128))


def error(parts: Parts) -> float: return mean_loss(parts.model, parts.valid, call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(12):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

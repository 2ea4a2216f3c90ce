"""lightning: an autoencoder as a `LightningModule`; a batch is a list with one tensor.

After "Lightning in 15 minutes": training and validation steps in the module, the Trainer owns the loop. Error: mean
squared error on digits held back, over their variance."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits
from tests.bench.programs import Parts

SOURCE = "lightning: Lightning in 15 minutes"
PACKAGES = ("lightning", "scikit-learn")


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=2e-3)

    def forward(self, x): return self.decoder(self.encoder(x))

    def loss(self, batch):
        x = batch[0].view(len(batch[0]), -1)
        return nn.functional.mse_loss(self(x), x)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx): self.log("val_loss", self.loss(batch))

    def configure_optimizers(self): return self.optimizer


class Recorded(L.Callback):
    def __init__(self, record): self.record = record

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx): self.record.step(outputs["loss"])


def build() -> Parts:
    x, _ = digits()
    model = LitAutoEncoder()
    return Parts(model, model.optimizer, DataLoader(TensorDataset(x[:1400]), 32, shuffle=True),
                 call=lambda model, batch: model.loss(batch), valid=DataLoader(TensorDataset(x[1400:]), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    x = parts.valid.dataset.tensors[0]
    return parts.model.loss([x]).item()/x.var(0).mean().item()


def train(parts: Parts, record) -> float:
    trainer = L.Trainer(max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[Recorded(record)])
    with record.on(parts.model, optimizer=parts.optimizer): trainer.fit(parts.model, parts.data, parts.valid)
    return error(parts)

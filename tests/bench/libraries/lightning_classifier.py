"""lightning: a classifier whose batches are dicts, with torchmetrics and a learning rate that falls with each epoch.

After the tutorial "PyTorch Lightning basics: train a model on MNIST" and the guide of torchmetrics for Lightning:
metrics as parts of the module, a dataset that returns dicts, gradients that the Trainer clips and sums over two
batches. Error: wrong answers on digits held back."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "torchmetrics: TorchMetrics in PyTorch Lightning"
PACKAGES = ("lightning", "torchmetrics", "scikit-learn")


class Digits(Dataset):
    def __init__(self, x, y): self.x, self.y = x, y

    def __len__(self): return len(self.y)

    def __getitem__(self, i): return {"image": self.x[i], "label": self.y[i].item()}


class LitClassifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(.1), nn.Linear(32, 10))
        self.train_acc, self.val_acc = MulticlassAccuracy(10, average="micro"), MulticlassAccuracy(10, average="micro")
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)

    def forward(self, x): return self.net(x)

    def training_step(self, batch, batch_idx):
        logits = self(batch["image"])
        loss = nn.functional.cross_entropy(logits, batch["label"])
        self.train_acc(logits, batch["label"])
        self.log("train_acc", self.train_acc, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, batch_idx):
        self.val_acc(self(batch["image"]), batch["label"])
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        return [self.optimizer], [torch.optim.lr_scheduler.ExponentialLR(self.optimizer, .8)]


class Recorded(L.Callback):
    "Once for each step of the optimizer, which comes after two batches."
    def __init__(self, record): self.record, self.steps = record, 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step > self.steps: self.record.step(outputs["loss"])
        self.steps = trainer.global_step


def call(model, batch): return nn.functional.cross_entropy(model(batch["image"]), batch["label"])


def build() -> Parts:
    known, held = split(*digits(), n=1300)
    model = LitClassifier()
    return Parts(model, model.optimizer, DataLoader(Digits(*known), 32, shuffle=True), call=call,
                 valid=DataLoader(Digits(*held), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return torch.cat([(parts.model(b["image"]).argmax(1) != b["label"]).float() for b in parts.valid]).mean().item()


def train(parts: Parts, record) -> float:
    trainer = L.Trainer(max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, gradient_clip_val=1.,
                        accumulate_grad_batches=2, enable_progress_bar=False, enable_model_summary=False,
                        callbacks=[Recorded(record)])
    with record.on(parts.model, optimizer=parts.optimizer): trainer.fit(parts.model, parts.data, parts.valid)
    return error(parts)

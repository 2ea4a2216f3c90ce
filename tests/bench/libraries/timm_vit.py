"""timm: a small vision transformer with the habits of the library's training script.

After "Getting started with timm" and its train.py: an optimizer with weight decay on matrices only, mixup with soft
targets, a cosine schedule by epochs with warmup, an average of the weights that is what is measured. Error: wrong
answers of the average on digits held back."""
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.models import VisionTransformer
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, seed_the_rest, split, wrong
from tests.bench.programs import Parts

SOURCE = "timm: train.py"
PACKAGES = ("timm", "scikit-learn")
EPOCHS = 20


class Mixed:
    "The batches with mixup, as the library's own loader gives them."
    def __init__(self, loader):
        self.loader, self.mix = loader, Mixup(mixup_alpha=.1, cutmix_alpha=0., label_smoothing=.1, num_classes=10)

    def __len__(self): return len(self.loader)

    def __iter__(self): return (self.mix(x, y) for x, y in self.loader)


def build() -> Parts:
    seed_the_rest()
    known, held = split(*digits(), n=1300)
    model = VisionTransformer(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=48, depth=3, num_heads=4,
                              mlp_ratio=2, drop_path_rate=.05)
    data = DataLoader(TensorDataset(*known), 64, shuffle=True, drop_last=True)
    parts = Parts(model, create_optimizer_v2(model, opt="adamw", lr=3e-3, weight_decay=.05), Mixed(data),
                  SoftTargetCrossEntropy(), valid=DataLoader(TensorDataset(*held), 256))
    parts.average = ModelEmaV3(model, decay=.97)
    return parts


def error(parts: Parts) -> float: return wrong(parts.average.module, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = CosineLRScheduler(optimizer, EPOCHS, lr_min=1e-5, warmup_t=2, warmup_lr_init=1e-4)
    schedule.step(0)
    with record.on(model, optimizer=optimizer):
        for epoch in range(EPOCHS):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                parts.average.update(model)
                record.step(loss)
            schedule.step(epoch + 1)
    return error(parts)

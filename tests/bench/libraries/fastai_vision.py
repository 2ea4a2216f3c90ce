"""fastai: a small convolutional net sees images of digits that a `DataBlock` reads, turns and normalizes.

After the tutorial "Custom new task / Data block" of fastai for images: blocks, a splitter, augmentations in batches,
subclasses of tensors in the batches, label smoothing, one cycle. Error: wrong answers on digits held back."""
import torch
from fastai.callback import schedule  # noqa: F401
from fastai.callback.core import Callback
from fastai.vision.all import (
    CategoryBlock,
    DataBlock,
    ImageBlock,
    IndexSplitter,
    LabelSmoothingCrossEntropy,
    Learner,
    PILImageBW,
    SimpleCNN,
    accuracy,
    aug_transforms,
)
from torch import nn

from tests.bench.libraries._data import digits, seed_the_rest
from tests.bench.programs import Parts

SOURCE = "fastai: Data block tutorial"
PACKAGES = ("fastai", "scikit-learn")


class Recorded(Callback):
    "Comes after the optimizer."
    def __init__(self, record): self.record = record

    def after_step(self): self.record.step(self.learn.loss)


def build() -> Parts:
    seed_the_rest()
    x, y = digits(1000)
    x = (255*torch.nn.functional.interpolate(x, size=16)).byte().numpy()
    block = DataBlock((ImageBlock(PILImageBW), CategoryBlock), get_x=lambda i: PILImageBW.create(x[i, 0]),
                      get_y=lambda i: y[i].item(), splitter=IndexSplitter(list(range(800, 1000))),
                      batch_tfms=aug_transforms(do_flip=False, max_rotate=10, max_lighting=.1, size=16))
    dls = block.dataloaders(list(range(1000)), bs=50, num_workers=0, device="cpu")
    model = nn.Sequential(SimpleCNN([1, 16, 32, 64], bn=True), nn.Linear(64, 10))
    learn = Learner(dls, model, loss_func=LabelSmoothingCrossEntropy(), metrics=accuracy)
    learn.create_opt()
    parts = Parts(learn.model, learn.opt, dls.train, learn.loss_func, valid=dls.valid)
    parts.learn = learn
    return parts


def error(parts: Parts) -> float:
    with parts.learn.no_bar(), parts.learn.no_logging(): return 1 - parts.learn.validate()[1]


def train(parts: Parts, record) -> float:
    learn = parts.learn
    with record.on(parts.model, optimizer=parts.optimizer), learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(5, 5e-3, cbs=Recorded(record))
    return error(parts)

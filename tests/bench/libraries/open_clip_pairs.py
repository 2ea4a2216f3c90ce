"""open_clip: a small CLIP brings images of digits and their names together.

After the training loop of open_clip: the model returns a dict of features and a scale, `ClipLoss` compares all pairs of
a batch, no weight decay on gains and biases, warmup and a cosine, and the logarithm of the scale is kept below that of
100. Error: wrong digits by the nearest name."""
import math

import torch
from open_clip import CLIP, ClipLoss
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "open-clip-torch: open_clip_train"
PACKAGES = ("open-clip-torch", "scikit-learn")
START, END, EPOCHS = 30, 31, 8


def captions(y):
    "Three words that say it, in one of two orders, as tokens."
    rows = torch.zeros(len(y), 8).long()
    swapped = torch.rand(len(y)) < .5
    rows[:, 0], rows[:, 1], rows[:, 4] = START, 20, END
    rows[:, 2], rows[:, 3] = torch.where(swapped, 21, y + 1), torch.where(swapped, y + 1, 21)
    return rows


def call(model, batch):
    images, texts = batch
    return ClipLoss()(**model(images, texts))


def build() -> Parts:
    (x, y), held = split(*digits(), n=1400)
    x = x.expand(-1, 3, -1, -1)
    vision = {"image_size": 8, "patch_size": 2, "width": 48, "layers": 2, "head_width": 12}
    text = {"context_length": 8, "vocab_size": 32, "width": 48, "heads": 4, "layers": 2}
    model = CLIP(32, vision, text, output_dict=True)
    plain = [p for p in model.parameters() if p.ndim < 2]
    others = [p for p in model.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": plain, "weight_decay": 0.}, {"params": others, "weight_decay": .2}],
                                  lr=2e-3, betas=(.9, .98), eps=1e-6)
    parts = Parts(model, optimizer, DataLoader(TensorDataset(x, captions(y)), 64, shuffle=True, drop_last=True),
                  call=call)
    parts.test = held
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    model, (x, y) = parts.model, parts.test
    model.eval()
    names = model.encode_text(captions(torch.arange(10)), normalize=True)
    images = model.encode_image(x.expand(-1, 3, -1, -1), normalize=True)
    return ((images @ names.T).argmax(1) != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, at, total = parts.model, parts.optimizer, 0, EPOCHS*len(parts.data)
    with record.on(model, optimizer=optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in parts.data:
                for group in optimizer.param_groups:
                    group["lr"] = 2e-3*min((at + 1)/20, .5*(1 + math.cos(math.pi*at/total)))
                at += 1
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                with torch.no_grad(): model.logit_scale.clamp_(0, math.log(100))
                record.step(loss)
            error(parts)
    return error(parts)

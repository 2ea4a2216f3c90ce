"""segmentation-models-pytorch: a U-Net with a residual encoder finds ellipses in noisy images.

After the example "Binary segmentation" of the library: encoder without pretrained weights, the dice loss from logits,
Adam, an epoch of validation with statistics of the masks. Error: one minus the intersection over the union."""
import segmentation_models_pytorch as smp
import torch
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE = "segmentation-models-pytorch: binary segmentation"
PACKAGES = ("segmentation-models-pytorch",)
SIDE = 32


class Ellipses(Dataset):
    def __init__(self, n: int):
        lines = torch.arange(SIDE).float()
        across, down = lines[None, None], lines[None, :, None]
        x, y = (8 + 16*torch.rand(n, 1, 1) for _ in "xy")
        a, b = (4 + 5*torch.rand(n, 1, 1) for _ in "ab")
        self.masks = ((((across - x)/a)**2 + ((down - y)/b)**2) < 1).float()[:, None]
        color = torch.rand(n, 3, 1, 1)
        self.images = self.masks*color + (1 - self.masks)*(1 - color) + .3*torch.randn(n, 3, SIDE, SIDE)

    def __len__(self): return len(self.masks)

    def __getitem__(self, i): return self.images[i], self.masks[i]


def build() -> Parts:
    model = smp.Unet("resnet18", encoder_depth=3, encoder_weights=None, decoder_channels=(32, 16, 8), in_channels=3,
                     classes=1)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), DataLoader(Ellipses(128), 16, shuffle=True),
                 smp.losses.DiceLoss(smp.losses.BINARY_MODE, from_logits=True), valid=DataLoader(Ellipses(48), 16))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    found = [smp.metrics.get_stats((parts.model(x).sigmoid() > .5).long(), y.long(), mode="binary")
             for x, y in parts.valid]
    return 1 - smp.metrics.iou_score(*map(torch.cat, zip(*found)), reduction="micro").item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(5):
            model.train()
            for images, masks in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(images), masks)
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)

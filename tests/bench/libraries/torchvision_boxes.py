"""torchvision: a small Faster R-CNN finds bright rectangles; a batch is lists of images and of dicts of targets.

After the tutorial "TorchVision object detection finetuning": a collate function that only turns pairs into two tuples,
a model that returns a dict of losses in training and boxes in eval mode, SGD with a rate that is warmed up. Error:
rectangles that no box with a score above one half covers."""
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign, box_iou

from tests.bench.programs import Parts

SOURCE = "torchvision: Object Detection Finetuning"
PACKAGES = ("torchvision",)
SIDE, EPOCHS = 48, 6


def collate(batch): return tuple(zip(*batch))


def scenes(n: int):
    found = []
    for _ in range(n):
        image, boxes = .3*torch.rand(3, SIDE, SIDE), []
        for at in torch.randint(0, 2, (1 + torch.randint(2, ()).item(),)).unique().tolist():
            size = torch.randint(10, 18, (2,))
            x, y = torch.randint(0, SIDE - 20, ()).item(), 24*at + torch.randint(0, 6, ()).item()
            box = [x, y, x + size[0].item(), y + size[1].item()]
            image[:, box[1]:box[3], box[0]:box[2]] += .6
            boxes.append(box)
        found.append((image, {"boxes": torch.tensor(boxes).float(), "labels": torch.ones(len(boxes)).long()}))
    return found


def call(model, batch):
    images, targets = batch
    return sum(model(list(images), list(targets)).values())


def build() -> Parts:
    def block(before, after):
        return nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    backbone = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 48))
    backbone.out_channels = 48
    model = FasterRCNN(backbone, 2, min_size=SIDE, max_size=SIDE, box_detections_per_img=10,
                       rpn_anchor_generator=AnchorGenerator(((8, 14, 20),), ((.7, 1., 1.4),)),
                       box_roi_pool=MultiScaleRoIAlign(["0"], output_size=4, sampling_ratio=2),
                       rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=60, rpn_pre_nms_top_n_test=100,
                       rpn_post_nms_top_n_test=30, box_batch_size_per_image=32, rpn_batch_size_per_image=64)
    params = [p for p in model.parameters() if p.requires_grad]
    return Parts(model, torch.optim.SGD(params, lr=.02, momentum=.9, weight_decay=5e-4),
                 DataLoader(scenes(80), 4, shuffle=True, collate_fn=collate), call=call,
                 valid=DataLoader(scenes(30), 6, collate_fn=collate))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    missed = []
    for images, targets in parts.valid:
        for found, target in zip(parts.model(list(images)), targets):
            boxes = found["boxes"][found["scores"] > .5]
            missed += [not len(boxes) or box_iou(box[None], boxes).max().item() < .5 for box in target["boxes"]]
    return sum(missed)/len(missed)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=.01, total_iters=len(parts.data) - 1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, .1)
    with record.on(model, optimizer=optimizer):
        for epoch in range(EPOCHS):
            model.train()
            for batch in parts.data:
                loss = call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if epoch == 0: warmup.step()
                record.step(loss)
            schedule.step()
    return error(parts)

"""A small convolutional net is trained under autocast to bfloat16 on the processor, with the channels last.

Habits of the source: the model's weights stay in 32 bits and only the forward pass and the loss are in the block of
autocast; the backward pass is outside; there is no scaler, which bfloat16 does not need; model and images have the
memory format with channels last; SGD with momentum; the test runs under autocast too.
Error: wrong answers on test images over those of guessing: 0; untrained 1."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "intel/intel-extension-for-pytorch examples/cpu/training/single_instance_training_bf16.py", 2023
CLASSES = 4


def images(n, patterns):
    kind = torch.randint(0, CLASSES, (n,))
    image = (patterns[kind] + .7*torch.randn(n, 3, 12, 12))
    return image.to(memory_format=torch.channels_last), kind


def build(repaired: bool) -> Parts:
    patterns = nn.functional.interpolate(torch.randn(CLASSES, 3, 3, 3), size=12, mode="bilinear")
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                          nn.Conv2d(16, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                          nn.Flatten(), nn.Linear(16*36, CLASSES)).to(memory_format=torch.channels_last)
    data = DataLoader(TensorDataset(*images(512, patterns)), batch_size=32, shuffle=True)
    criterion = nn.CrossEntropyLoss()

    def call(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16): return criterion(model(batch[0]), batch[1])

    optimizer = torch.optim.SGD(model.parameters(), lr=.002, momentum=.9)
    return Parts(model, optimizer, data, call=call, valid=[images(400, patterns)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(4):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    image, kind = parts.valid[0]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16): answer = model(image).float().argmax(1)
    return (answer != kind).float().mean().item()*CLASSES/(CLASSES - 1)

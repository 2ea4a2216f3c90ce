"""The names of resnet18's layers, and what hooklab picks for some patterns."""
import torch
from torchvision.models import resnet18

import hooklab as hl

lessons = []
# the first is the one of lesson 04
PATTERNS = ["layer?.0.conv?", "layer?", "*.relu", "bn?", "*bn[!1]", "layer[34].1.*", "*downsample*", "fc", "*", "conv3"]


def picked(model: torch.nn.Module, pattern: str) -> list[str]:
    try: return list(hl.layers(model, pattern))
    except LookupError: return []


def measure() -> dict:
    model = resnet18().eval()
    with hl.hook_outputs(model, names="*") as hooks: model(torch.zeros(1, 3, 64, 64))
    shapes = {name: "×".join(map(str, output.shape[1:])) for name, output in hooks.by_name.items()}
    layers = [[name, type(layer).__name__, shapes.get(name, "")] for name, layer in hl.layers(model).items()]
    return {"layers": layers, "picked": {pattern: picked(model, pattern) for pattern in PATTERNS}}

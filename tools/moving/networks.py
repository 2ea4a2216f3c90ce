"""Small networks as data: weights in eight bits, so that a page can run them."""
import base64

import torch
from torch import Tensor, nn


def quantized(weight: Tensor) -> tuple[Tensor, float]:
    "Whole numbers from -127 to 127, and what one of them is worth."
    worth = weight.abs().max().item()/127
    return (weight/worth).round(), worth


def in_eight_bits(layer: nn.Module):
    "Gives a layer the weights that the page has, so that both compute the same."
    whole, worth = quantized(layer.weight.data)
    layer.weight.data = whole*worth
    layer.bias.data = layer.bias.data.mul(1e4).round()/1e4


def as_data(layer: nn.Conv2d | nn.Linear) -> dict:
    "A layer as its page gets it."
    whole, worth = quantized(layer.weight.data)
    weight = base64.b64encode(whole.flatten().to(torch.int8).numpy().tobytes()).decode()
    bias = [round(b, 4) for b in layer.bias.data.tolist()]
    stride = {"stride": layer.stride[0]} if isinstance(layer, nn.Conv2d) else {}
    return {"out": len(whole), "weight": weight, "worth": worth, "bias": bias, **stride}


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    "One convolution that computes what a convolution and its batch norm compute in eval mode."
    one = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval())
    return one.requires_grad_(False)


def pixels(images: Tensor) -> list[list[int]]:
    "Digits of eight by eight as they came, from 0 to 16."
    return images.mul(16).round().int().flatten(1).tolist()

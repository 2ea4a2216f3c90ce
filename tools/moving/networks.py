"""Small networks as data: weights in eight or sixteen bits, so that a page can run them."""
import base64

import torch
from torch import Tensor, nn


def quantized(weight: Tensor, bits: int) -> tuple[Tensor, float]:
    "Whole numbers of so many bits, as many below zero as above, and what one of them is worth."
    worth = weight.abs().max().item()/(2**(bits - 1) - 1)
    return (weight/worth).round(), worth


def in_whole_numbers(layer: nn.Module, bits: int = 8):
    "Gives a layer the weights that the page has, so that both compute the same."
    whole, worth = quantized(layer.weight.data, bits)
    layer.weight.data = whole*worth
    layer.bias.data = layer.bias.data.mul(1e4).round()/1e4


def as_data(layer: nn.Conv2d | nn.Linear, bits: int = 8) -> dict:
    "A layer as its page gets it."
    whole, worth = quantized(layer.weight.data, bits)
    dtype = {8: torch.int8, 16: torch.int16}[bits]
    weight = base64.b64encode(whole.flatten().to(dtype).numpy().tobytes()).decode()
    bias = [round(b, 4) for b in layer.bias.data.tolist()]
    stride = {"stride": layer.stride[0]} if isinstance(layer, nn.Conv2d) else {}
    exact = {"bits": bits} if bits != 8 else {}
    return {"out": len(whole), "weight": weight, "worth": worth, "bias": bias, **stride, **exact}


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    "One convolution that computes what a convolution and its batch norm compute in eval mode."
    one = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval())
    return one.requires_grad_(False)


def pixels(images: Tensor) -> list[list[int]]:
    "Digits of eight by eight as they came, from 0 to 16."
    return images.mul(16).round().int().flatten(1).tolist()

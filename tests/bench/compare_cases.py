"""Pairs of models on which `hl.compare` is tried: with a planted fault, where the layer at fault is known, and equal
but for arithmetic, where it must not raise a false alarm. `python -m tests.bench.compare_check` checks them.

A case makes (reference, candidate, args, kwargs, answer). Of a fault, the candidate is a copy but for one thing, and
the answer has the names that are right for the first layer at fault: that of the leaf that computes something else, or
of the container whose children are right and whose own forward is not. A layer that is called by several names may be
named by any of them. Of a pair of one arithmetic in two structures, as a port or a refactoring leaves them, the answer
is the known partners, {name: names}, of the layers with parameters and the main containers, where it is clear. Where
layers are fused or split, the nearest common parent is right too, and None says that "no partner" is right."""
import contextlib
import copy
import dataclasses
import inspect
import math
import re
import sys
import textwrap
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.utils import checkpoint

from tests.bench.compare_nets import nets, padding


@dataclass
class Case:
    "Two models, and what is right to say of them."
    kind: str
    name: str
    make: Callable[[], tuple]  # returns (reference, candidate, args, kwargs, answer)
    within: float = 1e-9       # an equal pair: how far the outputs may be apart


class Rewritten(ValueError):
    "A release of a library has another text than the one that the fault is planted in."


faults: list[Case] = []


def plant(kind: str, net: str, where: str, change: Callable, answer: str | None = None, seed: int | None = None,
          note: str = ""):
    "A fault on the list: `change(layer, model)` spoils the layer `where`, or returns what takes its place."
    if seed is None: seed = sum(map(ord, kind + where)) % 4  # not all on one network

    def make():
        reference, args, kwargs = nets[net](seed)
        candidate = copy.deepcopy(reference)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(len(where) + 7*seed)
            new = change(candidate.get_submodule(where), candidate)
        if isinstance(new, nn.Module): candidate.set_submodule(where, new)
        name = where if answer is None else answer
        right = reference.get_submodule(name)
        names = {other for other, layer in reference.named_modules(remove_duplicate=False) if layer is right}
        return reference, candidate, args, kwargs, names
    faults.append(Case(kind, f"{net} {where or 'model'}{note and ': '}{note}", make))


# Ways to spoil a layer

def weights(change: Callable, *names: str):
    "Parameters and buffers, `weight` unless others are named, become what `change` makes of them."
    def spoil(layer, model):
        for name in names or ["weight"]:
            tensor = getattr(layer, name)
            new = change(tensor.detach().clone())
            tensor.copy_(new if torch.is_tensor(new) else torch.full_like(tensor, new))
    return spoil


def element(by: float, *place: int):
    "One number of the weight is wrong by so many standard deviations."
    def change(w):
        w[place] += by*w.std()
        return w
    return weights(change)


def percent(share: float = .01): return weights(lambda w: w*(1 + share*torch.randn_like(w)))


def times(factor: float, *names: str): return weights(lambda w: w*factor, *names)


def constant(value: float, *names: str): return weights(lambda w: value, *names)


def order(places: list[int], dim: int = 0, *names: str):
    "The weight is cut into equal parts, which come in another order."
    def change(w):
        parts = w.chunk(len(places), dim)
        return torch.cat([parts[place] for place in places], dim)
    return weights(change, *names)


def shuffled(dim: int, *names: str):
    "The channels in a random order, the same for all that are named."
    def spoil(layer, model):
        places = torch.randperm((layer.weight).shape[dim])
        weights(lambda w: w.index_select(min(dim, w.ndim - 1), places), *names)(layer, model)
    return spoil


def bits(count: int, *names: str):
    "Rounded to so many bits for each row, as in a quantized model."
    def change(w):
        step = w.flatten(1).abs().amax(1).view(-1, *[1]*(w.ndim - 1))/(2**(count - 1) - 1)
        return (w/step).round()*step
    return weights(change, *names)


def of(other: str, *names: str):
    "Parameters of another layer."
    def spoil(layer, model):
        for name in names or ["weight"]: getattr(layer, name).copy_(getattr(model.get_submodule(other), name))
    return spoil


def swapped(other: str):
    "Two layers of one shape have exchanged their parameters, all that are below them as well."
    def spoil(layer, model):
        a, b = layer.state_dict(), copy.deepcopy(model.get_submodule(other).state_dict())
        model.get_submodule(other).load_state_dict(copy.deepcopy(a))
        layer.load_state_dict(b)
    return spoil


def setting(**values):
    def spoil(layer, model):
        for name, value in values.items(): setattr(layer, name, value)
    return spoil


def instead(new: Callable):
    "Another layer in its place."
    return lambda layer, model: new()


def training(layer, model): layer.train()


def both(*changes: Callable):
    def spoil(layer, model):
        for change in changes: change(layer, model)
    return spoil


def rewritten(function, *pairs: tuple[str, str], **replaced):
    "A function whose text differs in a few places, and for which some names of its module mean something else."
    text = textwrap.dedent(inspect.getsource(function)).replace("@auto_docstring\n", "")  # it reads the file
    for old, new in pairs:
        if text.count(old) != 1: raise Rewritten(f"{old!r} stands {text.count(old)} times in:\n{text}")
        text = text.replace(old, new)
    scope = {**sys.modules[function.__module__].__dict__, **replaced}
    exec(compile(text, f"<{function.__qualname__} rewritten>", "exec"), scope)
    return scope[function.__name__]


def derived(layer, **methods):
    "The layer becomes one of a class of the same name, with methods of its own."
    layer.__class__ = type(type(layer).__name__, (type(layer),), {"__module__": type(layer).__module__, **methods})


def edit(*pairs: tuple[str, str], method: str = "forward", on_layer: bool = False, **replaced):
    "The forward, or another method, is written with a mistake: in a class of its own, or patched onto the layer."
    def spoil(layer, model):
        new = rewritten(getattr(type(layer), method), *pairs, **replaced)
        if on_layer: setattr(layer, method, types.MethodType(new, layer))  # as a port does that patches a library
        else: derived(layer, **{method: new})
    return spoil


def after(change: Callable):
    "What the layer returns goes through a function; of a tuple only its first value."
    def spoil(layer, model):
        forward = type(layer).forward

        def changed(self, *args, **kwargs):
            out = forward(self, *args, **kwargs)
            return (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)
        derived(layer, forward=changed)
    return spoil


def patched(change: Callable):
    "The same, by a function in place of the layer's `forward`, which holds on to the one before."
    def spoil(layer, model):
        forward = layer.forward
        layer.forward = lambda *args, **kwargs: change(forward(*args, **kwargs))
    return spoil


def hooked(change: Callable):
    "The same, by a hook that somebody forgot."
    return lambda layer, model: layer.register_forward_hook(lambda layer, inputs, out: change(out)) and None


def before(change: Callable):
    "The first input goes through a function first."
    def spoil(layer, model):
        forward = type(layer).forward
        derived(layer, forward=lambda self, x, *args, **kwargs: forward(self, change(x), *args, **kwargs))
    return spoil


def eager(*pairs: tuple[str, str]):
    "Attention that is written out has a mistake in this layer."
    def spoil(layer, model):
        function = sys.modules[type(layer).__module__].eager_attention_forward
        edit(eager_attention_forward=rewritten(function, *pairs))(layer, model)
    return spoil


def last_position(y): return torch.cat([y[:, :-1], 1.05*y[:, -1:]], 1)


def second_sample(y): return torch.cat([y[:1], .9*y[1:2] + .1*y[:1], y[2:]])


def bfloat(y): return y.bfloat16().to(y.dtype)


# Weights

plant("one weight", "llama", "model.layers.1.mlp.up_proj", element(1, 5, 7))
plant("one weight", "gpt2", "transformer.h.2.mlp.c_fc", element(-1.5, 3, 100))
plant("one weight", "resnet18", "layer2.1.conv1", element(4, 3, 4, 1, 1))
plant("one weight", "whisper", "decoder.layers.1.encoder_attn.v_proj", element(1, 40, 2))
plant("one weight", "unet", "up.1.convs.3", element(2, 0, 5, 0, 2))
plant("one weight", "seq2seq", "attend.key", element(1, 8, 8))
plant("one weight", "densenet_large", "features.denseblock3.denselayer9.conv2", element(4, 3, 3, 1, 1))

plant("weight off by a percent", "llama_large", "model.layers.2.self_attn.v_proj", percent())
plant("weight off by a percent", "bert", "encoder.layer.1.attention.self.key", percent())
plant("weight off by a percent", "mobilenet", "features.6.block.0.0", percent())
plant("weight off by a percent", "mixer", "blocks.2.places.fc1", percent())
plant("weight off by a percent", "encoder", "encoder.layers.1.linear2", percent())
plant("weight off by a percent", "vit_own_large", "blocks.3.mlp.fc2", percent(.003))
plant("weight off by a percent", "lstm", "rnn", weights(lambda w: w*(1 + .01*torch.randn_like(w)), "weight_hh_l1"))

plant("weight scaled", "t5", "decoder.block.1.layer.1.EncDecAttention.o", times(1.02))
plant("weight scaled", "vit", "vit.layers.2.mlp.fc1", times(.99))
plant("weight scaled", "resnet18_large", "layer3.0.conv2", times(1.01))
plant("weight scaled", "qwen2", "model.layers.1.self_attn.k_proj", times(1.1))
plant("weight scaled", "shared", "block.mlp.fc2", times(1.001))

plant("sign of a weight", "gpt2_eager", "transformer.h.1.attn.c_proj", times(-1))
plant("sign of a weight", "cnn", "stages.2.conv2", times(-1))
plant("sign of a weight", "mistral", "model.layers.2.mlp.gate_proj", times(-1))
plant("sign of a weight", "encoder_prenorm", "encoder.layers.0.norm2", times(-1, "bias"))

plant("square weight transposed", "llama", "model.layers.0.self_attn.q_proj", weights(lambda w: w.T))
plant("square weight transposed", "bert", "encoder.layer.2.attention.output.dense", weights(lambda w: w.T))
plant("square weight transposed", "whisper", "encoder.layers.0.self_attn.out_proj", weights(lambda w: w.T))
plant("square weight transposed", "gpt2", "transformer.h.0.attn.c_proj", weights(lambda w: w.T))
plant("square weight transposed", "cnn", "stages.0.conv1", weights(lambda w: w.transpose(2, 3)))
plant("square weight transposed", "seq2seq", "attend.query", weights(lambda w: w.T))
plant("square weight transposed", "transformer", "transformer.encoder.layers.1.self_attn",
    lambda attn, model: weights(lambda w: w.T)(attn.out_proj, model), note="of a layer that is not called by itself")

plant("channels permuted", "resnet18", "layer3.1.conv1", shuffled(0))
plant("channels permuted", "efficientnet", "features.3.0.block.0.0", shuffled(0))
plant("channels permuted", "unet_large", "down.1.3", shuffled(0, "weight", "bias"))
plant("channels permuted", "t5", "encoder.block.1.layer.1.DenseReluDense.wi_0", shuffled(0))
plant("channels permuted", "cnn", "stem.0", weights(lambda w: w.flip(1)), note="colours in the other order")
plant("channels permuted", "mixer", "blocks.0.channels.fc2", shuffled(1))

plant("heads permuted", "llama", "model.layers.2.self_attn.q_proj", order([1, 0, 2, 3]))
plant("heads permuted", "bert", "encoder.layer.0.attention.self.value", order([0, 3, 2, 1], 0, "weight", "bias"))
plant("heads permuted", "vit", "vit.layers.1.attention.o_proj", order([1, 2, 3, 0], 1))
plant("heads permuted", "vit_own", "blocks.2.attn.qkv", order([2, 1, 0, *range(3, 12)], 0, "weight", "bias"))

plant("fused parts in another order", "vit_own", "blocks.1.attn.qkv", order([1, 0, 2], 0, "weight", "bias"))
plant("fused parts in another order", "gpt2", "transformer.h.1.attn.c_attn", order([0, 2, 1], 1))
plant("fused parts in another order", "encoder", "encoder.layers.0.self_attn", order([2, 1, 0], 0, "in_proj_weight"))
plant("fused parts in another order", "llama", "model.layers.1.mlp",
    edit(("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.up_proj(x)) * self.gate_proj(x)")))
plant("fused parts in another order", "t5", "decoder.block.0.layer.2.DenseReluDense",
    edit(("self.act(self.wi_0(hidden_states))", "self.act(self.wi_1(hidden_states))"),
    ("hidden_linear = self.wi_1(hidden_states)", "hidden_linear = self.wi_0(hidden_states)")))

plant("bias missing", "bert", "encoder.layer.1.intermediate.dense", constant(0, "bias"))
plant("bias missing", "qwen2", "model.layers.0.self_attn.v_proj", constant(0, "bias"))
plant("bias missing", "whisper", "encoder.conv2", constant(0, "bias"))
plant("bias missing", "mobilenet", "features.4.block.2.fc1", constant(0, "bias"))
plant("bias missing", "resnet18", "fc", setting(bias=None))
plant("bias missing", "gru", "rnn", constant(0, "bias_hh_l1"))
plant("bias missing", "mixer", "patches", setting(bias=None))

plant("parameters of another layer", "gpt2", "transformer.h.1.mlp.c_fc", of("transformer.h.0.mlp.c_fc", "bias"))
plant("parameters of another layer", "vit", "vit.layers.0.layernorm_after", of("vit.layers.0.layernorm_before"))
plant("parameters of another layer", "convnext", "features.3.1.block.5", of("features.3.0.block.5", "weight", "bias"))
plant("parameters of another layer", "encoder", "encoder.layers.2.norm1", of("encoder.layers.2.norm2", "bias"))
plant("parameters of another layer", "llama", "model.layers.0.self_attn.k_proj",
    swapped("model.layers.0.self_attn.v_proj"))
plant("parameters of another layer", "transformer", "transformer.decoder.layers.0.linear1",
    swapped("transformer.decoder.layers.1.linear1"))
plant("parameters of another layer", "mistral", "model.layers.0", swapped("model.layers.1"),
    answer="model.layers.0.input_layernorm")

plant("weight of fewer bits", "llama", "model.layers.1.mlp.down_proj", weights(bfloat))
plant("weight of fewer bits", "resnet18", "layer1.0.conv2", bits(8))
plant("weight of fewer bits", "vit_own", "blocks.0.mlp.fc1", bits(8))
plant("weight of fewer bits", "unet", "middle.0", weights(lambda w: w.half()))
plant("weight of fewer bits", "gpt2", "transformer.h.2.attn.c_attn", bits(6))
plant("weight of fewer bits", "densenet", "features.denseblock2.denselayer2.conv1", weights(bfloat))

plant("row of an embedding", "llama", "model.embed_tokens", lambda e, m: e.weight[50:56].mul_(1.5))
plant("row of an embedding", "lstm", "embedding", lambda e, m: e.weight[20:30].normal_())
plant("row of an embedding", "whisper", "decoder.embed_positions", lambda e, m: e.weight[4].mul_(1.5))
plant("row of an embedding", "t5", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    lambda e, m: e.weight[1].add_(.5))
plant("row of an embedding", "t5", "shared", lambda e, m: e.weight[10:30].mul_(-1), answer="encoder.embed_tokens",
    note="whose weight three layers have")
plant("row of an embedding", "llama_large", "model.embed_tokens", lambda e, m: e.weight[3:400].mul_(1.01))
plant("row of an embedding", "seq2seq", "target", weights(lambda w: w.roll(1, 0)))
plant("row of an embedding", "bert", "embeddings.token_type_embeddings", weights(lambda w: w.flip(0)))

plant("tied weight not tied", "gpt2", "lm_head",
    lambda head, m: setattr(head, "weight", nn.Parameter(torch.randn_like(head.weight)*.02)))
plant("tied weight not tied", "qwen2", "lm_head",
    lambda head, m: setattr(head, "weight", nn.Parameter(head.weight + .002*torch.randn_like(head.weight))))

# Norms

plant("epsilon", "llama", "model.layers.0.input_layernorm", setting(variance_epsilon=1e-5))
plant("epsilon", "llama", "model.norm", setting(variance_epsilon=1.3e-4), note="weak")
plant("epsilon", "qwen2", "model.layers.0.input_layernorm", setting(variance_epsilon=1e-5))
plant("epsilon", "mistral", "model.layers.1.input_layernorm", setting(variance_epsilon=1e-4))
plant("epsilon", "gpt2", "transformer.h.0.ln_1", setting(eps=1e-6))
plant("epsilon", "gpt2", "transformer.ln_f", setting(eps=1.3e-4), note="weak")
plant("epsilon", "bert", "embeddings.LayerNorm", setting(eps=1e-5))
plant("epsilon", "bert", "encoder.layer.1.output.LayerNorm", setting(eps=1.7e-4), note="weak")
plant("epsilon", "t5", "encoder.block.0.layer.0.layer_norm", setting(variance_epsilon=1e-4))
plant("epsilon", "t5", "decoder.final_layer_norm", setting(variance_epsilon=5e-4), note="weak")
plant("epsilon", "vit", "vit.layers.0.layernorm_before", setting(eps=1e-4))
plant("epsilon", "whisper", "encoder.layers.0.self_attn_layer_norm", setting(eps=1e-4))
plant("epsilon", "resnet18", "bn1", setting(eps=1e-3))
plant("epsilon", "mobilenet", "features.2.block.1.1", setting(eps=1e-5))
plant("epsilon", "densenet", "features.transition1.norm", setting(eps=1e-3))
plant("epsilon", "convnext", "features.1.0.block.2", setting(eps=1e-3))
plant("epsilon", "mixer", "blocks.1.norm2", setting(eps=1e-4), note="weak")
plant("epsilon", "cnn", "stem.1", setting(eps=1e-3))
plant("epsilon", "llama_large", "model.layers.1.post_attention_layernorm", setting(variance_epsilon=5e-4))
plant("epsilon", "densenet_large", "features.denseblock4.denselayer2.norm1", setting(eps=1e-3))
plant("epsilon", "vit_own_large", "blocks.4.norm1", setting(eps=1e-3))

plant("running statistics not loaded", "resnet18", "layer2.0.downsample.1", constant(0, "running_mean"))
plant("running statistics not loaded", "mobilenet", "features.1.block.0.1", constant(1, "running_var"))
plant("running statistics not loaded", "efficientnet", "features.4.1.block.1.1", constant(0, "running_mean"))
plant("running statistics not loaded", "densenet", "features.norm5",
    both(constant(0, "running_mean"), constant(1, "running_var")))
plant("running statistics not loaded", "unet", "down.2.1", constant(1, "running_var"))
plant("running statistics not loaded", "cnn", "stages.1.bn2", of("stages.2.bn2", "running_var"))

plant("norm not loaded", "llama", "model.layers.1.post_attention_layernorm", constant(1))
plant("norm not loaded", "bert", "encoder.layer.0.attention.output.LayerNorm", constant(0, "bias"))
plant("norm not loaded", "resnet18_large", "layer4.0.bn1", both(constant(1), constant(0, "bias")))
plant("norm not loaded", "transformer", "transformer.decoder.layers.1.norm2", constant(1))
plant("norm not loaded", "gru", "norm", constant(0, "bias"))
plant("norm not loaded", "unet_large", "up.0.convs.4", constant(1))

plant("norm of another kind", "llama", "model.layers.1.input_layernorm", edit(("variance = hidden",
    "hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)\n    variance = hidden")))
plant("norm of another kind", "t5", "decoder.block.0.layer.1.layer_norm",
    edit(("self.weight * hidden_states\n", "(1 + self.weight) * hidden_states\n")))
plant("norm of another kind", "cnn", "stem.1", setting(num_groups=2))
plant("norm of another kind", "mistral", "model.norm",
    edit((".pow(2).mean(-1, keepdim=True)", ".pow(2).mean((1, 2), keepdim=True)")))


def unbiased(self, x): return self.weight*(x - x.mean(-1, keepdim=True))/x.std(-1, keepdim=True) + self.bias


plant("norm of another kind", "mixer", "blocks.3.norm1", lambda norm, model: derived(norm, forward=unbiased),
    note="standard deviation with n - 1")

plant("mode of one layer", "resnet18", "layer1.1.bn2", training)
plant("mode of one layer", "mobilenet", "features.7.block.0.1", training)
plant("mode of one layer", "unet", "up.2.convs.1", training)
plant("mode of one layer", "cnn", "stages.0.bn1", training)
plant("mode of one layer", "densenet_large", "features.denseblock2.denselayer3.norm2", training)

plant("dropout left on", "gpt2", "transformer.h.1.attn.resid_dropout", training)
plant("dropout left on", "bert", "encoder.layer.1.output.dropout", training)
plant("dropout left on", "vit_own", "blocks.2.drop", training)
plant("dropout left on", "encoder", "encoder.layers.1.dropout", training)
plant("dropout left on", "lstm", "dropout", training)
plant("dropout left on", "t5", "decoder.block.1.layer.0.dropout", training)
plant("dropout left on", "gpt2", "transformer.h.2.attn", lambda attn, m: setattr(attn, "training", True),
    note="of the attention weights")

plant("mode of the whole model", "resnet18", "", training, answer="bn1")
plant("mode of the whole model", "bert", "", training, answer="embeddings.dropout")
plant("mode of the whole model", "efficientnet", "", training, answer="features.0.1")
plant("mode of the whole model", "gpt2", "", training, answer="transformer.drop")
plant("mode of the whole model", "vit_own", "", training, answer="blocks.0.drop")
plant("mode of the whole model", "unet", "", training, answer="down.0.1")

# Activations and other layers without weights

plant("activation", "gpt2", "transformer.h.1.mlp.act", instead(nn.GELU), note="gelu with erf for tanh")
plant("activation", "bert", "encoder.layer.0.intermediate.intermediate_act_fn", instead(lambda: nn.GELU("tanh")),
    note="gelu with tanh for erf")
plant("activation", "llama", "model.layers.2.mlp.act_fn", instead(nn.GELU), note="gelu for silu")
plant("activation", "resnet18", "layer2.0.relu", instead(lambda: nn.LeakyReLU(.01)), note="leaky relu for relu")
plant("activation", "mobilenet", "features.4.block.0.2", instead(nn.SiLU), note="silu for hardswish")
plant("activation", "mobilenet", "features.5.block.2.scale_activation", instead(nn.Sigmoid),
    note="sigmoid for hardsigmoid")
plant("activation", "efficientnet", "features.2.0.block.0.2", instead(nn.Hardswish), note="hardswish for silu")
plant("activation", "cnn", "stages.1.act", setting(negative_slope=.01), note="slope of leaky relu")
plant("activation", "encoder", "encoder.layers.2", setting(activation=F.leaky_relu, activation_relu_or_gelu=0),
    note="leaky relu for relu")
plant("activation", "mixer", "blocks.1.channels.act", setting(approximate="tanh"), note="gelu with tanh for erf")
plant("activation", "bert", "pooler.activation", instead(nn.ReLU), note="relu for tanh")
plant("activation", "whisper", "encoder", edit(("hidden_states = nn.functional.dropout(hidden",
    "hidden_states = nn.functional.relu(hidden_states)\n    hidden_states = nn.functional.dropout(hidden")),
    note="one too many")
plant("activation", "whisper", "encoder", edit(("nn.functional.gelu(self.conv1(input_features))",
    "nn.functional.gelu(self.conv1(input_features), approximate='tanh')")), note="gelu with tanh for erf")

plant("clamp missing", "unet", "", edit((".clamp(-1, 1)", "")))
plant("clamp missing", "cnn", "neck.2", instead(nn.ReLU), note="relu for relu6")
plant("clamp missing", "unet_large", "", edit((".clamp(-1, 1)", "")))
plant("clamp missing", "cnn", "neck.2", setting(max_val=5.), note="relu5 for relu6")

plant("pooling", "resnet18", "maxpool", instead(lambda: nn.AvgPool2d(3, 2, 1)), note="mean for maximum")
plant("pooling", "unet", "pool", instead(lambda: nn.AvgPool2d(2)), note="mean for maximum")
plant("pooling", "densenet", "features.transition2.pool", instead(lambda: nn.MaxPool2d(2)), note="maximum for mean")
plant("pooling", "cnn", "pool", instead(lambda: nn.AdaptiveMaxPool2d(2)), note="maximum for mean")
plant("pooling", "bert", "pooler", edit(("hidden_states[:, 0]", "hidden_states.mean(1)")), note="mean for first token")
plant("pooling", "resnet18_large", "maxpool", setting(padding=0, ceil_mode=True), note="padding")

plant("settings of a convolution", "unet", "down.0.3", setting(padding_mode="reflect"), note="padding mode")
plant("settings of a convolution", "cnn", "stages.2.conv1", setting(padding_mode="circular"), note="padding mode")
plant("settings of a convolution", "resnet18", "layer1.0.conv1", setting(dilation=(2, 2), padding=(2, 2)),
    note="dilation")
plant("settings of a convolution", "densenet", "features.denseblock1.denselayer2.conv2",
    setting(dilation=(2, 2), padding=(2, 2)), note="dilation")
plant("settings of a convolution", "cnn", "stages.0.conv2",
    lambda conv, model: setting(weight=nn.Parameter(conv.weight[:, :8].clone()), groups=2)(conv, model), note="groups")
plant("settings of a convolution", "convnext", "features.3.1.block.0", weights(lambda w: w.flip(2, 3)),
    note="kernel flipped")
plant("settings of a convolution", "mobilenet", "features.2.block.1.0", before(lambda x: F.pad(x, (-1, 1, -1, 1))),
    note="padding at the other end")

plant("upsampling", "unet", "up.0.scale", setting(align_corners=True), note="align_corners")
plant("upsampling", "unet_large", "up.2.scale", setting(mode="nearest"), note="nearest for bilinear")
plant("upsampling", "unet", "up.1.scale", setting(mode="bicubic"), note="bicubic for bilinear")

plant("gates in another order", "lstm", "rnn", order([0, 1, 3, 2], 0, "weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
    "bias_hh_l0"))
plant("gates in another order", "lstm", "rnn", order([1, 0, 2, 3], 0, "weight_hh_l1"), note="of one weight", seed=1)
plant("gates in another order", "gru", "rnn", order([1, 0, 2], 0, "weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
    "bias_hh_l0"))
plant("gates in another order", "seq2seq", "cell", order([1, 0, 2], 0, "weight_ih", "weight_hh", "bias_ih", "bias_hh"))
plant("gates in another order", "seq2seq", "reader", order([2, 1, 0], 0, "weight_ih_l0_reverse"))

plant("wrong buffer", "encoder", "positions", weights(lambda t: torch.cat([t[:, ::2], t[:, 1::2]], 1), "table"))
plant("wrong buffer", "vit_own", "positions", weights(lambda t: t.roll(-1, 0), "table"))
plant("wrong buffer", "transformer", "positions", weights(bfloat, "table"))
plant("wrong buffer", "bert", "embeddings", weights(lambda t: (t + 1).clamp(max=39), "position_ids"))
plant("wrong buffer", "llama", "model.rotary_emb", weights(bfloat, "inv_freq"))

# Attention

plant("scale of attention", "llama", "model.layers.1.self_attn", setting(scaling=64**-.5))
plant("scale of attention", "gpt2_eager", "transformer.h.2.attn", setting(scaling=1.))
plant("scale of attention", "bert", "encoder.layer.2.attention.self", setting(scaling=.26))
plant("scale of attention", "t5", "encoder.block.1.layer.0.SelfAttention", setting(scaling=12**-.5))
plant("scale of attention", "vit_own", "blocks.3.attn", setting(scale=48**-.5))
plant("scale of attention", "vit_own_large", "blocks.2.attn", setting(scale=1/64))
plant("scale of attention", "whisper", "decoder.layers.0.self_attn", setting(scaling=12**-.5*1.01))
plant("scale of attention", "encoder", "", edit(("*math.sqrt(self.embedding.embedding_dim)", "")),
    note="of the embeddings")

plant("causal mask", "gpt2_eager", "transformer.h.1.attn",
    edit(("attention_mask,\n            dropout", "None,\n            dropout")))
plant("causal mask", "mistral", "model.layers.0.self_attn",
    edit(("        attention_mask,\n        dropout", "        None,\n        dropout")))
plant("causal mask",
    "mistral", "model", edit(("mask_function = create_causal_mask if self.config.sliding_window is None else "
    "create_sliding_window_causal_mask", "mask_function = create_causal_mask")), note="without its window")
plant("causal mask", "transformer", "", edit(("tgt_mask=later", "tgt_mask=None")))
plant("causal mask", "transformer", "", edit((".triu(1)", ".triu(2)")), note="one too late", seed=1)
plant("causal mask", "llama", "model", edit(("attention_mask=causal_mask,",
    "attention_mask=causal_mask | torch.ones_like(causal_mask).triu(1).tril(1),")), note="one too late")
plant("causal mask", "whisper", "decoder.layers.1",
    edit(("attention_mask=attention_mask,", "attention_mask=torch.zeros(8, 8, dtype=hidden_states.dtype),")))

plant("mask of padding", "gpt2", "", edit(("attention_mask=attention_mask,", "attention_mask=None,")), note="ignored")
plant("mask of padding", "bert",
    "", edit(("        attention_mask=attention_mask,\n        encoder_attention_mask=encoder_attention_mask,\n      "
    "  embedding",
    "        attention_mask=1 - attention_mask,\n        encoder_attention_mask=encoder_attention_mask,\n  "
    "      embedding")), note="inverted")
plant("mask of padding", "t5", "", edit(("encoder_attention_mask=attention_mask,", "encoder_attention_mask=None,")),
    note="of the encoder, in the decoder")
plant("mask of padding", "encoder", "",
    edit(("src_key_padding_mask=padded", "src_key_padding_mask=padded.to(x.dtype)")), note="as numbers that are added")
plant("mask of padding", "encoder_prenorm", "", edit(("src_key_padding_mask=padded", "src_key_padding_mask=None")),
    note="ignored")
plant("mask of padding", "seq2seq", "attend", edit(("mask == 0, -1e9", "mask == 0, 0.")),
    note="zero for minus infinity")
plant("mask of padding", "seq2seq", "",
    edit(("self.attend(state, outputs, mask)", "self.attend(state, outputs, mask.roll(-1, 1))")), note="off by one")
plant("mask of padding", "shared", "", edit(("(self.norm(x)*mask).sum(1)/mask.sum(1)", "self.norm(x).mean(1)")),
    note="ignored in the mean")

plant("positions", "gpt2", "transformer", edit(("position_ids = position_ids.unsqueeze(0)",
    "position_ids = position_ids.unsqueeze(0) + 1")), note="off by one")
plant("positions", "gpt2_eager", "transformer", edit(("position_ids = position_ids.unsqueeze(0)",
    "position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)")), note="counted without padding")
plant("positions", "llama", "model", edit(("position_ids = position_ids.unsqueeze(0)",
    "position_ids = position_ids.unsqueeze(0) * 2")), note="twice as far")
plant("positions", "bert", "embeddings",
    edit(("self.position_embeddings(position_ids)", "self.position_embeddings(position_ids + 1)")), note="off by one")
plant("positions", "shared", "", edit(("torch.arange(tokens.shape[1])", "1 + torch.arange(tokens.shape[1])")),
    note="off by one")
plant("positions", "encoder_prenorm", "positions", edit(("self.table[:x.shape[1]]", "self.table[1:x.shape[1] + 1]")),
    note="off by one")
plant("positions", "t5", "decoder.block.0.layer.0.SelfAttention", setting(relative_attention_max_distance=9),
    note="distances")
plant("positions", "vit", "vit.embeddings", weights(lambda p: torch.cat([p[:, :1], p[:, 1:].view(1, 4, 4,
    -1).transpose(1, 2).flatten(1, 2)], 1), "position_embeddings"), note="rows and columns exchanged")


def rope(theta: float):
    def spoil(layer, model):
        width = 2*len(layer.inv_freq)
        layer.inv_freq.copy_(1/theta**(torch.arange(0, width, 2).float()/width))
    return spoil


turn = ("torch.cat((-x2, x1), dim=-1)", "torch.cat((x2, -x1), dim=-1)")
pairwise = [("x[..., : x.shape[-1] // 2]", "x[..., ::2]"), ("x[..., x.shape[-1] // 2 :]", "x[..., 1::2]"),
            ("torch.cat((-x2, x1), dim=-1)", "torch.stack((-x2, x1), dim=-1).flatten(-2)")]


def rotated(*pairs: tuple[str, str]):
    "The halves of queries and keys are turned another way in this attention."
    def spoil(layer, model):
        module = sys.modules[type(layer).__module__]
        half = rewritten(module.rotate_half, *pairs)
        edit(apply_rotary_pos_emb=rewritten(module.apply_rotary_pos_emb, rotate_half=half))(layer, model)
    return spoil


plant("rotary embedding", "llama", "model.rotary_emb", rope(500000.), note="theta")
plant("rotary embedding", "qwen2", "model.rotary_emb", rope(9000.), note="theta")
plant("rotary embedding", "llama", "model.layers.0.self_attn", rotated(turn), note="turned the other way", seed=1)
plant("rotary embedding", "mistral", "model.layers.1.self_attn", rotated(*pairwise), note="in pairs, not halves")
plant("rotary embedding", "llama_large", "model.layers.3.self_attn",
    edit(("query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)",
    "_, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)")), note="of the keys only")

split = "query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)"
plant("heads split in another order", "llama", "model.layers.1.self_attn", edit(
    (split, "query_states = self.q_proj(hidden_states).view(*input_shape, self.head_dim, -1).permute(0, 3, 1, 2)")))
plant("heads split in another order", "vit", "vit.layers.0.attention", edit(
    (split, "query_states = self.q_proj(hidden_states).view(*input_shape, self.head_dim, -1).permute(0, 3, 1, 2)")))
plant("heads split in another order", "vit_own", "blocks.0.attn",
    edit(("(weights @ v).transpose(1, 2)", "(weights @ v)")), note="joined without a transpose")
plant("heads split in another order", "shared",
    "block.attn", edit((".view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)",
    ".view(batch, length, self.heads, 3, -1).permute(3, 0, 2, 1, 4)")), note="query, key and value within a head")
plant("heads split in another order", "mistral", "model.layers.0.self_attn",
    eager(("module.num_key_value_groups)\n    value", "1).repeat(1, 2, 1, 1)\n    value"),
    ("repeat_kv(value, module.num_key_value_groups)", "value.repeat(1, 2, 1, 1)")),
    note="groups repeated in another order")

plant("dimension of a softmax", "seq2seq", "attend", edit((".softmax(dim=-1)", ".softmax(dim=0)")))
plant("dimension of a softmax", "vit_own", "blocks.1.attn", edit((".softmax(dim=-1)", ".softmax(dim=-2)")))
plant("dimension of a softmax", "cnn", "", edit(("dim=-1", "dim=0")))
plant("dimension of a softmax", "gpt2_eager", "transformer.h.0.attn",
    eager(("softmax(attn_weights, dim=-1)", "softmax(attn_weights, dim=1)")))

# Blocks and whole models

plant("residual", "llama",
    "model.layers.1", edit(("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states",
    "hidden_states = self.mlp(hidden_states)")), note="forgotten")
plant("residual", "llama_large",
    "model.layers.2", edit(("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states",
    "hidden_states = self.mlp(hidden_states)\n    hidden_states = 0.99 * residual + hidden_states")), note="scaled")
plant("residual", "resnet18", "layer3.1", edit(("out += identity", "pass")), note="forgotten")
plant("residual", "mixer", "blocks.2", edit(("return x + self.channels", "return self.channels")), note="forgotten")
plant("residual", "efficientnet", "features.3.1", edit(("result += input", "pass")), note="forgotten")
plant("residual", "cnn", "stages.1", edit(("self.act(y + self.shortcut(x))", "self.act(y) + self.shortcut(x)")),
    note="after the activation")
plant("residual", "gpt2", "transformer.h.1", edit(("hidden_states = attn_output + residual",
    "hidden_states = attn_output * 0.9 + residual"), on_layer=True), note="scaled")
plant("residual", "whisper", "encoder.layers.1", edit(("hidden_states = self.final_layer_norm(hidden_states)",
    "hidden_states = self.final_layer_norm(hidden_states); residual = hidden_states")), note="of the normed values")
plant("residual", "bert", "encoder.layer.1.attention.output",
    edit(("hidden_states + input_tensor", "hidden_states + 1.01 * input_tensor")), note="scaled")
plant("residual", "t5", "decoder.block.0.layer.1", edit(("hidden_states + self.dropout(attention_output)",
    "normed_hidden_states + self.dropout(attention_output)")), note="of the normed values")
plant("residual", "convnext", "features.5.4", constant(.5, "layer_scale"), note="layer scale not loaded")
plant("residual", "efficientnet", "features.2.0.block.2", edit(("return scale * input", "return input")),
    note="squeeze and excitation forgotten")

plant("norm before or after", "encoder", "encoder.layers.1", setting(norm_first=True))
plant("norm before or after", "encoder_prenorm", "encoder.layers.2", setting(norm_first=False))
plant("norm before or after", "vit_own", "blocks.1",
    edit(("x + self.drop(self.mlp(self.norm2(x)))", "self.norm2(x + self.drop(self.mlp(x)))")))
plant("norm before or after",
    "vit", "vit.layers.2", edit(("residual = hidden_states\n    hidden_states = self.layernorm_after(hidden_states)",
    "hidden_states = self.layernorm_after(hidden_states)\n    residual = hidden_states")),
    note="residual of the normed values")

plant("layers in another order", "mixer", "blocks",
    lambda blocks, m: derived(blocks, forward=lambda self, x: self[3](self[1](self[2](self[0](x))))))
plant("layers in another order", "llama", "model",
    edit(("self.layers[: self.config.num_hidden_layers]", "[self.layers[1], self.layers[0], self.layers[2]]")))
plant("layers in another order", "cnn", "stages.2",
    edit(("self.act(self.bn1(self.conv1(x)))", "self.bn1(self.act(self.conv1(x)))")), note="activation before norm")
plant("layers in another order", "gpt2", "transformer.h.2.mlp",
    edit(("hidden_states = self.act(hidden_states)\n    hidden_states = self.c_proj(hidden_states)",
    "hidden_states = self.c_proj(hidden_states)\n    hidden_states = self.act(hidden_states)")),
    note="activation after the projection")

plant("layer skipped", "bert", "encoder", edit(("for i, layer_module in enumerate(self.layer)",
    "for i, layer_module in enumerate(self.layer[:1] + self.layer[2:])")))
plant("layer skipped", "vit_own", "", edit(("for block in self.blocks:", "for block in self.blocks[:-1]:")))
plant("layer skipped", "shared", "", edit(("range(self.times)", "range(self.times - 1)")))
plant("layer skipped", "lstm", "", edit(("self.head(self.norm(output))", "self.head(output)")))
plant("layer skipped", "mistral", "model", edit(("hidden_states = self.norm(hidden_states)", "pass")))

plant("layer called twice", "mixer", "blocks",
    lambda blocks, m: derived(blocks, forward=lambda self, x: self[3](self[2](self[2](self[1](self[0](x)))))))
plant("layer called twice", "gpt2", "transformer",
    edit(("hidden_states = self.ln_f(hidden_states)", "hidden_states = self.ln_f(self.ln_f(hidden_states))")))
plant("layer called twice", "shared", "", edit(("range(self.times)", "range(self.times + 1)")))
plant("layer called twice", "cnn", "stages.0", edit(("return self.act(y", "return self.act(self.bn2(y)")))

plant("order of a concatenation", "unet", "up.1", edit(("torch.cat([kept, x], dim=1)", "torch.cat([x, kept], dim=1)")))
plant("order of a concatenation", "seq2seq", "",
    edit(("torch.cat([last[0], last[1]], dim=-1)", "torch.cat([last[1], last[0]], dim=-1)")))
plant("order of a concatenation", "densenet", "features.denseblock2",
    edit(("torch.cat(features, 1)", "torch.cat(features[::-1], 1)")))
plant("order of a concatenation", "densenet_large", "features.denseblock3.denselayer6",
    edit(("torch.cat(inputs, 1)", "torch.cat(inputs[1:] + inputs[:1], 1)"), method="bn_function"))
plant("order of a concatenation", "vit_own", "", edit(("torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)",
    "torch.cat([x, self.token.expand(len(x), -1, -1)], dim=1)")), note="the class token last")

plant("parameter of a container", "vit_own", "", constant(0, "token"), note="class token not loaded")
plant("parameter of a container", "vit", "vit.embeddings", times(1.1, "cls_token"), note="class token")
plant("parameter of a container", "convnext", "features.1.1", times(1.01, "layer_scale"), note="layer scale")

plant("last position only", "llama", "model.layers.1.self_attn.o_proj", after(last_position))
plant("last position only", "gpt2", "transformer.h.0.mlp", after(last_position))
plant("last position only", "lstm", "norm", after(last_position))
plant("last position only", "qwen2", "model.layers.1.mlp.down_proj", after(last_position))
plant("last position only", "seq2seq", "", edit(("context = self.attend(state, outputs, mask)",
    "context = self.attend(state, outputs, mask)*(1.05 if step == 5 else 1)")), note="last step")

plant("one sample only", "llama", "model.layers.2.mlp", after(second_sample))
plant("one sample only", "bert", "encoder.layer.0.output.dense", after(second_sample))
plant("one sample only", "vit_own_large", "blocks.5", after(second_sample))
plant("one sample only", "densenet_large", "features.transition1.norm", after(second_sample))
plant("one sample only", "gru", "rnn", after(second_sample))
plant("one sample only", "resnet18", "layer2.1", after(second_sample))
plant("one sample only", "vit_own", "blocks.1.mlp.fc1", after(second_sample))
plant("one sample only", "lstm", "", edit(("output, state = self.rnn(",
    "state = tuple(torch.tensor([0, 0, .1]).to(self.head.weight).view(3, 1).expand(2, 3, 40).contiguous() "
    "for _ in range(2))\n    output, state = self.rnn(")), note="state left from another batch")

plant("rounded inside", "llama",
    "model.layers.0.mlp", edit(("self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))",
    "self.down_proj((self.act_fn(self.gate_proj(x)) * self.up_proj(x)).bfloat16().to(x.dtype))")))
plant("rounded inside", "llama", "model.layers.1.input_layernorm", edit(("hidden_states.to(torch.float32)",
    "hidden_states.to(torch.bfloat16).to(input_dtype)")), note="a norm", seed=1)
plant("rounded inside", "gpt2_eager", "transformer.h.1.attn", eager(("softmax(attn_weights, dim=-1)",
    "softmax(attn_weights, dim=-1).bfloat16().to(value.dtype)")), note="weights of attention")
plant("rounded inside", "resnet18_large", "layer2.0.conv1", after(bfloat))
plant("rounded inside", "mixer", "blocks.1.places.fc2", after(lambda y: y.half().to(y.dtype)))
plant("rounded inside", "unet", "up.0",
    edit(("torch.cat([kept, x], dim=1)", "torch.cat([kept.bfloat16().to(x.dtype), x], dim=1)")), note="what was kept")
plant("rounded inside", "encoder_prenorm", "encoder.layers.1.linear1", after(bfloat))

# From outside, of another shape, or no number at all

plant("patched forward", "llama", "model.layers.1.self_attn.v_proj", patched(lambda y: 1.01*y))
plant("patched forward", "resnet18", "layer3.0", patched(second_sample))
plant("patched forward", "vit_own", "blocks.2.attn", patched(last_position))
plant("patched forward", "encoder_prenorm", "encoder.layers.0.norm1", patched(bfloat))
plant("patched forward", "unet", "up.0.convs", patched(lambda y: y.flip(-1)))

plant("hook left on", "gpt2", "transformer.h.1.mlp", hooked(lambda y: y + .1*y.roll(1, -1)))
plant("hook left on", "densenet", "features.denseblock1", hooked(lambda y: y.index_fill(1, torch.tensor([30]), 0)))
plant("hook left on", "mixer", "blocks.1", hooked(lambda y: 1.001*y))
plant("hook left on", "seq2seq", "cell", hooked(lambda y: y.clamp(-.5, .5)))
plant("hook left on", "bert", "encoder.layer.1.intermediate", lambda layer, m: layer.register_forward_pre_hook(
    lambda layer, inputs: (inputs[0].clamp(-1, 1),)) and None, note="on its input")

plant("another shape", "resnet18", "fc", instead(lambda: nn.Linear(512, 21)))
plant("another shape", "llama", "lm_head", lambda head, m: setattr(head, "weight",
    nn.Parameter(F.pad(head.weight, (0, 0, 0, 27)))), note="vocabulary filled up")
plant("another shape", "densenet", "features.pool0", instead(lambda: nn.MaxPool2d(3, 1, 1)), note="stride")
plant("another shape", "resnet18_large", "layer4.0", lambda block, model: [setattr(conv, "stride", (1, 1))
    for conv in (block.conv1, block.downsample[0])] and None, answer="layer4.0.conv1", note="stride")
plant("another shape",
    "vit_own", "", edit(("x = self.positions(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1))",
    "x = self.positions(torch.cat([self.token.expand(len(x), 2, -1), x], dim=1))")), note="two class tokens")

plant("not a number", "gpt2_eager", "transformer.h.1.attn",
    eager(("attn_weights + attention_mask", "attn_weights.masked_fill(attention_mask < 0, float('-inf'))")))
plant("not a number", "efficientnet", "features.2.1.block.0.1", lambda norm, m: norm.running_var[3].fill_(-1))
plant("not a number", "llama", "model.layers.1.mlp.up_proj", lambda linear, m: linear.weight[5, 5].fill_(float("nan")))


# Pairs that are equal but for arithmetic

class Pairs(list[Case]):
    "A list of pairs to which functions are added by a decorator; each begins from a seed of its own."
    def __call__(self, kind, name, within=1e-9, *given):
        def add(f):
            def make():
                torch.manual_seed(crc32(name.encode()))
                return f(*given)
            self.append(Case(kind, name, make, within))
            return f
        return add


arithmetic, ports = Pairs(), Pairs()
folded = 2e-6  # how far weights that were folded in float32 may be from the others, measured in float64


# What the pairs are built with

def stir(model, by=.2):
    "Moves every parameter and statistic, as training would: no scale is 1 and no bias 0."
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point(): p.add_(by*torch.randn_like(p)*(p.std() if p.dim() > 1 else 1))
        for name, b in model.named_buffers():
            if name.endswith("running_mean"): b.normal_(0, by)
            if name.endswith("running_var"): b.uniform_(.5, 2)
    return model.eval()


def has_parameters(m): return next(m.parameters(), None) is not None


def runs(m): return not isinstance(m, nn.ModuleList | nn.ModuleDict)


def layer_names(model):
    "The names of the layers with parameters that are called, without the model itself."
    return [name for name, m in model.named_modules() if name and has_parameters(m) and runs(m)]


class Twin:
    "A deep copy whose layers are to be put into another structure, and the names that the originals have."
    def __init__(self, model):
        self.model = copy.deepcopy(model)
        self.names = {m: name for name, m in self.model.named_modules() if has_parameters(m) and runs(m)}

    def pairing(self, candidate, **more):
        "The layers that stand in `candidate` under the names they have there."
        there = {m: name for name, m in candidate.named_modules()}
        return {name: {there[m]} for m, name in self.names.items() if m in there and name} | more


def load(model, state, *rules):
    "Loads `state`, whose names are changed by the rules (pattern, replacement), in their order."
    def changed(name):
        for pattern, new in rules: name = re.sub(pattern, new, name)
        return name
    model.load_state_dict({changed(name): t for name, t in state.items()})
    return model.eval()


def tokens(*shape, size=64): return torch.randint(1, size, shape)


class Spoken(nn.Module):
    "A layer whose children have the names that `words` gives them; its code uses keys of its own."
    def __init__(self, words, **children):
        super().__init__()
        self.words = words = dict(words)
        for key, child in children.items(): setattr(self, words.get(key, key), child)

    def at(self, key): return getattr(self, self.words.get(key, key))


def alike_by_key(a, b):
    "The pairing of two trees of spoken layers, whatever the order of their children."
    found = {}
    def walk(a, b, name_a, name_b):
        if name_a and has_parameters(a) and runs(a): found[name_a] = {name_b}
        if isinstance(a, Spoken):
            keys = {a.words.get(k, k): b.words.get(k, k)
                    for k in [*a.words, *(n for n, _ in a.named_children() if n not in a.words.values())]}
            children = [(x, keys[x]) for x, _ in a.named_children()]
        else: children = [(x, y) for (x, _), (y, _) in zip(a.named_children(), b.named_children(), strict=True)]
        for x, y in children: walk(getattr(a, x), getattr(b, y), f"{name_a}.{x}".strip("."), f"{name_b}.{y}".strip("."))
    walk(a, b, "", "")
    return found


def move(a, b):
    "Gives the parameters of the tree of spoken layers `a` to `b`."
    for name, names in alike_by_key(a, b).items():
        here, there = a.get_submodule(name), b.get_submodule(next(iter(names)))
        own = dict(there.named_parameters(recurse=False)) | dict(there.named_buffers(recurse=False))
        for key, t in [*here.named_parameters(recurse=False), *here.named_buffers(recurse=False)]:
            own[key].data.copy_(t.data)
    return b


def spoken(kind: str, name: str, a: Callable, b: Callable, inputs: Callable, stirred: bool = True, never: str = ""):
    "A pair of trees of spoken layers, whose partners are known but for those that are never called."
    @ports(kind, name)
    def _():
        one = stir(a()) if stirred else a().eval()
        two = move(one, b()).eval()
        return one, two, inputs(), {}, {k: v for k, v in alike_by_key(one, two).items() if not re.fullmatch(never, k)}


def rebuilt(kind: str, name: str, a: Callable, b: Callable, inputs: Callable, more: dict | None = None):
    "A pair in which `b` puts the layers of a copy of the first model into another structure."
    @ports(kind, name)
    def _():
        one = a()
        twin = Twin(one)
        two = b(twin.model)
        return one, two, inputs(), {}, twin.pairing(two, **more or {})


# Plain stacks in another container

def stack(*sizes, act=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:]): layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def small_cnn(classes=10):
    def block(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(block(3, 8), block(8, 16), block(16, 24), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(24, classes))


def images(n=2, size=32): return torch.randn(n, 3, size, size)


def flat(m):
    "The layers of nested Sequentials, in order."
    return [x for child in m for x in flat(child)] if isinstance(m, nn.Sequential) else [m]


rebuilt("renamed", "mlp with words for numbers", lambda: stir(stack(16, 32, 32, 8)), lambda net: nn.Sequential(
    OrderedDict(zip(["expand", "act_a", "mix", "act_b", "head"], net))), lambda: (torch.randn(4, 16),))
rebuilt("renamed", "mlp of equal layers, as initialized", lambda: stack(*[16]*9, act=nn.Tanh),
    lambda net: nn.Sequential(OrderedDict((f"step_{i}", m) for i, m in enumerate(net))), lambda: (torch.randn(4, 16),))
rebuilt("flattened", "cnn of blocks into one Sequential", lambda: stir(small_cnn()),
    lambda net: nn.Sequential(*flat(net)), lambda: (images(),))
rebuilt("flattened", "mlp nested three deep into one Sequential", lambda: stir(nn.Sequential(nn.Sequential(
    nn.Sequential(stack(12, 24, 24), nn.ReLU()), nn.Sequential(stack(24, 24, 12), nn.GELU())), nn.Linear(12, 4))),
    lambda net: nn.Sequential(*flat(net)), lambda: (torch.randn(3, 5, 12),))


@ports("flattened", "vgg11 of torchvision into one Sequential")
def _():
    a = stir(torchvision.models.vgg11(num_classes=10, dropout=.1), .05)
    a.classifier = nn.Sequential(nn.Linear(512*49, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10))
    twin = Twin(a.eval())
    b = nn.Sequential(*twin.model.features, twin.model.avgpool, nn.Flatten(), *twin.model.classifier).eval()
    return a, b, (images(1),), {}, twin.pairing(b)


rebuilt("nested", "mlp in pairs", lambda: stir(stack(16, 32, 32, 32, 8)), lambda net: nn.Sequential(
    nn.Sequential(*net[:2]), nn.Sequential(*net[2:4]), nn.Sequential(*net[4:])), lambda: (torch.randn(4, 16),))
rebuilt("nested", "flat cnn into body and head", lambda: nn.Sequential(*flat(stir(small_cnn()))),
    lambda net: nn.Sequential(OrderedDict(body=nn.Sequential(nn.Sequential(*net[:4]), nn.Sequential(*net[4:8]),
    nn.Sequential(*net[8:12])), head=nn.Sequential(*net[12:]))), lambda: (images(),))


class Around(nn.Module):
    "A model as the only child of another, as wrappers for training leave it."
    def __init__(self, model):
        super().__init__()
        self.module = model

    def forward(self, *args, **kwargs): return self.module(*args, **kwargs)


rebuilt("nested", "resnet18 in three wrappers", lambda: stir(torchvision.models.resnet18(num_classes=10), .05),
    lambda net: Around(Around(Around(net))).eval(), lambda: (images(1, 48),))


@ports("nested", "gpt2 in a wrapper")
def _():
    a, args, kwargs = gpt2()
    twin = Twin(a)
    b = Around(twin.model).eval()
    return a, b, args, kwargs, twin.pairing(b)


rebuilt("inserted", "Identity in a cnn shifts the numbers", lambda: nn.Sequential(*flat(stir(small_cnn()))),
    lambda net: nn.Sequential(net[0], nn.Identity(), *net[1:5], nn.Identity(), nn.Identity(), *net[5:]).eval(),
    lambda: (images(),))
rebuilt("inserted", "Dropout in an mlp of equal layers", lambda: stack(*[20]*6).eval(), lambda net: nn.Sequential(
    *[x for m in net for x in ([m, nn.Dropout(.3)] if isinstance(m, nn.ReLU) else [m])]).eval(),
    lambda: (torch.randn(6, 20),))
rebuilt("inserted", "Identity first in each block", lambda: stir(nn.Sequential(*[stack(16, 32, 16, act=nn.GELU)
    for _ in range(4)])), lambda net: nn.Sequential(*[nn.Sequential(nn.Identity(), *block) for block in net]),
    lambda: (torch.randn(3, 16),), more={str(i): {str(i)} for i in range(4)})
rebuilt("removed", "Dropout left out of an mlp", lambda: stir(nn.Sequential(nn.Linear(16, 32),
    nn.ReLU(), nn.Dropout(.2), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(.2), nn.Linear(32, 4))),
    lambda net: nn.Sequential(*[m for m in net if not isinstance(m, nn.Dropout)]).eval(), lambda: (torch.randn(5, 16),))


class Listed(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers: x = x + F.gelu(layer(x))
        return x


class Attributes(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.first, self.second, self.third, self.fourth = layers

    def forward(self, x):
        x = x + F.gelu(self.first(x))
        x = x + F.gelu(self.second(x))
        x = x + F.gelu(self.third(x))
        return x + F.gelu(self.fourth(x))


rebuilt("list against attributes", "four Linear layers", lambda: stir(Listed([nn.Linear(16, 16) for _ in range(4)])),
    lambda net: Attributes(net.layers), lambda: (torch.randn(4, 16),))
rebuilt("list against attributes", "four stacks, as initialized", lambda: Attributes([stack(16, 24, 16) for _ in range(
    4)]), lambda net: Listed([net.first, net.second, net.third, net.fourth]), lambda: (torch.randn(4, 16),))


class Functional(nn.Module):
    "A cnn whose activations and pools are functions."
    def __init__(self, convs, head):
        super().__init__()
        self.convs, self.head = nn.ModuleList(convs), head

    def forward(self, x):
        for conv in self.convs: x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


@ports("functional against modules", "cnn with F.relu")
def _():
    convs = [nn.Conv2d(a, b, 3, padding=1) for a, b in [(3, 8), (8, 16), (16, 16)]]
    a = nn.Sequential(*[x for c in convs for x in (c, nn.ReLU(), nn.MaxPool2d(2))], nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(16, 10))
    twin = Twin(stir(a))
    b = Functional([m for m in twin.model if isinstance(m, nn.Conv2d)], twin.model[-1])
    return a, b, (images(),), {}, twin.pairing(b)


rebuilt("functional against modules", "modules for the functions of a cnn",
    lambda: stir(Functional([nn.Conv2d(a, b, 3, padding=1) for a, b in [(3, 8), (8, 8), (8, 8)]], nn.Linear(8, 10))),
    lambda net: nn.Sequential(*[x for c in net.convs for x in (c, nn.ReLU(), nn.MaxPool2d(2))], nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), net.head), lambda: (images(),))


@ports("shared activation", "one ReLU for all in an mlp")
def _():
    a = stir(stack(16, 32, 32, 32, 8))
    twin, relu = Twin(a), nn.ReLU()
    b = nn.Sequential(*[relu if isinstance(m, nn.ReLU) else m for m in twin.model])
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


@ports("shared activation", "a ReLU each in resnet18")
def _():
    a = stir(torchvision.models.resnet18(num_classes=10), .05)
    b = HandResNet([2, 2, 2, 2], HandBasic, many=True)
    load(b, a.state_dict(), *hand_resnet_rules)
    return a, b, (images(1, 48),), {}, resnet_pairing(a)


# resnets written by hand

class HandBasic(nn.Module):
    def __init__(self, wide_in, wide, stride, many):
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(wide_in, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide))
        self.right = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide))
        self.shortcut = nn.Sequential(nn.Conv2d(wide_in, wide, 1, stride, bias=False),
                                      nn.BatchNorm2d(wide)) if stride != 1 or wide_in != wide else None
        self.act, self.act_out = (nn.ReLU(), nn.ReLU()) if many else (F.relu, F.relu)

    def forward(self, x):
        skip = x if self.shortcut is None else self.shortcut(x)  # before the others, where torchvision has it after
        return self.act_out(self.right(self.act(self.left(x))) + skip)


class HandBottleneck(nn.Module):
    def __init__(self, wide_in, wide, stride, many):
        super().__init__()
        def part(*args, **kwargs): return nn.Sequential(nn.Conv2d(*args, **kwargs, bias=False), nn.BatchNorm2d(args[1]))
        self.squeeze, self.filter = part(wide_in, wide//4, 1), part(wide//4, wide//4, 3, stride, 1)
        self.expand = part(wide//4, wide, 1)
        self.shortcut = part(wide_in, wide, 1, stride) if stride != 1 or wide_in != wide else None

    def forward(self, x):
        y = self.expand(F.relu(self.filter(F.relu(self.squeeze(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class HandResNet(nn.Module):
    def __init__(self, depths, block, wide=1, many=False, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        now, stages = 64, []
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                blocks.append(block(now, 64*2**i*wide, 2 if i and not j else 1, many))
                now = 64*2**i*wide
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.classify = nn.Linear(now, classes)

    def forward(self, x): return self.classify(self.stages(self.stem(x)).mean((2, 3)))


hand_resnet_rules = [(r"^conv1", "stem.0"), (r"^bn1", "stem.1"), (r"^fc", "classify"),
                     (r"^layer(\d)", lambda m: f"stages.{int(m[1])-1}"),
                     (r"(\d)\.conv1", r"\1.left.0"), (r"(\d)\.bn1", r"\1.left.1"), (r"(\d)\.conv2", r"\1.right.0"),
                     (r"(\d)\.bn2", r"\1.right.1"), ("downsample", "shortcut")]
bottleneck_rules = [*hand_resnet_rules[:4], (r"(\d)\.conv1", r"\1.squeeze.0"), (r"(\d)\.bn1", r"\1.squeeze.1"),
                    (r"(\d)\.conv2", r"\1.filter.0"), (r"(\d)\.bn2", r"\1.filter.1"), (r"(\d)\.conv3", r"\1.expand.0"),
                    (r"(\d)\.bn3", r"\1.expand.1"), ("downsample", "shortcut")]


def resnet_pairing(a, rules=hand_resnet_rules):
    found = {}
    for name, m in a.named_modules():
        new = name
        for pattern, to in rules: new = re.sub(pattern, to, new)
        if name and has_parameters(m): found[name] = {new}
    return found


@ports("port", "resnet18 of torchvision by hand")
def _():
    a = stir(torchvision.models.resnet18(num_classes=10), .05)
    b = load(HandResNet([2, 2, 2, 2], HandBasic), a.state_dict(), *hand_resnet_rules)
    return a, b, (images(2, 64),), {}, resnet_pairing(a)


@ports("port", "resnet18 of torchvision by hand, as initialized")
def _():
    a = torchvision.models.resnet18(num_classes=10).eval()
    b = load(HandResNet([2, 2, 2, 2], HandBasic), a.state_dict(), *hand_resnet_rules)
    return a, b, (images(1, 48),), {}, resnet_pairing(a)


@ports("port", "resnet50 of torchvision by hand")
def _():
    a = stir(torchvision.models.resnet50(num_classes=10), .03)
    b = load(HandResNet([3, 4, 6, 3], HandBottleneck, 4), a.state_dict(), *bottleneck_rules)
    return a, b, (images(1, 48),), {}, resnet_pairing(a, bottleneck_rules)


# Transformers written by hand, whose names are a matter of words

class Attention(Spoken):
    "Attention of several heads; `order` says in which order the three are computed."
    def __init__(self, wide=32, heads=4, words=(), order="qkv", causal=False, by_hand=True, bias=True):
        super().__init__(words, **{k: nn.Linear(wide, wide, bias=bias) for k in [*order, "out"]})
        self.heads, self.order, self.causal, self.by_hand = heads, order, causal, by_hand

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        made = {k: self.at(k)(x if k == "q" else memory).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for k in self.order}
        return self.at("out")(attend(made["q"], made["k"], made["v"], self.causal,
                                     self.by_hand).transpose(1, 2).flatten(2))


def attend(q, k, v, causal=False, by_hand=True):
    if not by_hand: return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q @ k.transpose(-1, -2)/math.sqrt(q.shape[-1])
    if causal: scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


class FusedAttention(nn.Module):
    def __init__(self, wide=32, heads=4, causal=False, bias=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(wide, 3*wide, bias=bias), nn.Linear(wide, wide, bias=bias)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(attend(q, k, v, self.causal).transpose(1, 2).flatten(2))


class Feed(Spoken):
    def __init__(self, wide=32, words=()):
        super().__init__(words, up=nn.Linear(wide, 2*wide), act=nn.GELU(), down=nn.Linear(2*wide, wide))
    def forward(self, x): return self.at("down")(self.at("act")(self.at("up")(x)))


class Block(Spoken):
    "A block of a transformer with norms before; with `cross`, it attends to a memory as well."
    def __init__(self, words=(), wide=32, cross=False, attention=None, **kwargs):
        attention = attention or (lambda causal: Attention(wide, words=words, causal=causal, **kwargs))
        parts = dict(norm_1=nn.LayerNorm(wide), attn=attention(cross), norm_2=nn.LayerNorm(wide),
                     feed=Feed(wide, words))
        if cross: parts |= dict(norm_3=nn.LayerNorm(wide), cross=Attention(wide, words=words, **kwargs))
        super().__init__(words, **parts)
        self.crosses = cross

    def forward(self, x, memory=None):
        x = x + self.at("attn")(self.at("norm_1")(x))
        if self.crosses: x = x + self.at("cross")(self.at("norm_3")(x), memory)
        return x + self.at("feed")(self.at("norm_2")(x))


class Encoder(Spoken):
    def __init__(self, words=(), depth=2, wide=32, **kwargs):
        super().__init__(words, embed=nn.Embedding(64, wide), place=nn.Embedding(32, wide),
                         blocks=nn.ModuleList([Block(words, wide, **kwargs) for _ in range(depth)]),
                         norm=nn.LayerNorm(wide), head=nn.Linear(wide, 64))

    def forward(self, x):
        x = self.at("embed")(x) + self.at("place")(torch.arange(x.shape[1], device=x.device))
        for block in self.at("blocks"): x = block(x)
        return self.at("head")(self.at("norm")(x))


class Translator(Spoken):
    def __init__(self, words=(), depth=2, wide=32, **kwargs):
        super().__init__(words, source=nn.Embedding(64, wide), target=nn.Embedding(64, wide),
                         encoder=nn.ModuleList([Block(words, wide, **kwargs) for _ in range(depth)]),
                         decoder=nn.ModuleList([Block(words, wide, cross=True, **kwargs) for _ in range(depth)]),
                         head=nn.Linear(wide, 64))

    def forward(self, source, target):
        memory, x = self.at("source")(source), self.at("target")(target)
        for block in self.at("encoder"): memory = block(memory)
        for block in self.at("decoder"): x = block(x, memory)
        return self.at("head")(x)


google = dict(q="query", k="key", v="value", out="dense", up="intermediate", down="output", norm_1="ln_before",
              norm_2="ln_after",
              norm_3="ln_cross", attn="attention", feed="mlp", cross="encdec", embed="word_embeddings",
              place="position_embeddings",
              blocks="layer", norm="final_layernorm", head="classifier", source="src_embed", target="tgt_embed",
              encoder="enc", decoder="dec")
terse = dict(q="wq", k="wk", v="wv", out="wo", up="w1", down="w2", norm_1="n1", norm_2="n2", norm_3="n3", attn="sa",
             feed="ff",
             cross="ca", embed="tok", place="pos", blocks="h", norm="nf", head="lm")


spoken("renamed", "encoder by hand", lambda: Encoder(google), lambda: Encoder(terse), lambda: (tokens(2, 9),))
spoken("renamed", "encoder by hand, as initialized, four layers", lambda: Encoder(terse, depth=4),
    lambda: Encoder(google, depth=4), lambda: (tokens(2, 9),), stirred=False)
spoken("renamed", "encoder and decoder by hand", lambda: Translator(), lambda: Translator(google),
    lambda: (tokens(2, 9), tokens(2, 7)))
spoken("branches swapped", "v, k, q in an encoder", lambda: Encoder(google), lambda: Encoder(google, order="vkq"),
    lambda: (tokens(2, 9),))
spoken("branches swapped", "k, q, v under other names, as initialized", lambda: Encoder(google),
    lambda: Encoder(terse, order="kqv"), lambda: (tokens(2, 9),), stirred=False)
spoken("branches swapped", "v, q, k under other names, with cross attention", lambda: Translator(google),
    lambda: Translator(terse, order="vqk"), lambda: (tokens(2, 9), tokens(2, 7)))


class Inception(Spoken):
    def __init__(self, words=(), order=("one", "three", "five"), wide=8):
        parts = {key: nn.Sequential(nn.Conv2d(wide, wide, n, padding=n//2, bias=False), nn.BatchNorm2d(wide),
                                    nn.ReLU()) for key, n in dict(one=1, three=3, five=5).items()}
        super().__init__(words, **{key: parts[key] for key in order})
        self.order = order

    def forward(self, x):
        made = {key: self.at(key)(x) for key in self.order}
        return torch.cat([made["one"], made["three"], made["five"]], 1)


class Inceptions(Spoken):
    def __init__(self, words=(), **kwargs):
        super().__init__(words, stem=nn.Conv2d(3, 8, 3, padding=1), first=Inception(words, **kwargs),
                         narrow=nn.Conv2d(24, 8, 1), second=Inception(words, **kwargs), head=nn.Linear(24, 5))

    def forward(self, x):
        x = self.at("narrow")(self.at("first")(F.relu(self.at("stem")(x))))
        return self.at("head")(self.at("second")(x).mean((2, 3)))


spoken("branches swapped", "branches of an inception block", lambda: Inceptions(),
    lambda: Inceptions(order=("five", "one", "three")), lambda: (images(2, 16),))
spoken("branches swapped", "branches of an inception block under other names", lambda: Inceptions(),
    lambda: Inceptions(dict(one="branch0", three="branch1", five="branch2", stem="conv_in", first="mixed_a",
    second="mixed_b", narrow="squeeze", head="logits"), order=("three", "five", "one")), lambda: (images(2, 16),))


# Linear layers fused and split

def split_fused(fused, names):
    "The state of one Linear as that of several of equal size."
    return {f"{name}.{key}": part for key, t in fused.state_dict().items()
            for name, part in zip(names, t.chunk(len(names)))}


def fused_encoders():
    "An encoder with three Linear layers in each attention, and one with one."
    a = stir(Encoder())
    b = Encoder(attention=lambda causal: FusedAttention(causal=causal))
    state = a.state_dict()
    for i in range(2):
        at = f"blocks.{i}.attn"
        for key in ("weight", "bias"):
            state[f"{at}.qkv.{key}"] = torch.cat([state.pop(f"{at}.{x}.{key}") for x in "qkv"])
    load(b, state, (r"attn\.out", "attn.proj"))
    return a, b


@ports("fused and split", "q, k, v into one Linear")
def _():
    a, b = fused_encoders()
    pairing = {k: {k} for k in layer_names(a) if ".attn." not in k}
    for i in range(2):
        at = f"blocks.{i}.attn"
        pairing |= {f"{at}.{x}": {f"{at}.qkv", at, None} for x in "qkv"} | {f"{at}.out": {f"{at}.proj"}}
    return a, b, (tokens(2, 9),), {}, pairing


@ports("fused and split", "one Linear into q, k, v")
def _():
    b, a = fused_encoders()
    pairing = {k: {k} for k in layer_names(a) if ".attn." not in k}
    for i in range(2):
        at = f"blocks.{i}.attn"
        pairing |= {f"{at}.qkv": {at, None}, f"{at}.proj": {f"{at}.out"}}
    return a, b, (tokens(2, 9),), {}, pairing


class Gated(nn.Module):
    def __init__(self, fused, wide=16):
        super().__init__()
        self.norm = nn.RMSNorm(wide)
        if fused: self.gate_up = nn.Linear(wide, 4*wide, bias=False)
        else: self.gate, self.up = nn.Linear(wide, 2*wide, bias=False), nn.Linear(wide, 2*wide, bias=False)
        self.down = nn.Linear(2*wide, wide, bias=False)
        self.fused = fused

    def forward(self, x):
        y = self.norm(x)
        gate, up = self.gate_up(y).chunk(2, -1) if self.fused else (self.gate(y), self.up(y))
        return x + self.down(F.silu(gate)*up)


def gated_pair():
    a = stir(nn.Sequential(*[Gated(False) for _ in range(3)]))
    b = nn.Sequential(*[Gated(True) for _ in range(3)])
    state = a.state_dict()
    for i in range(3): state[f"{i}.gate_up.weight"] = torch.cat([state.pop(f"{i}.{x}.weight") for x in ("gate", "up")])
    return a, load(b, state)


@ports("fused and split", "gate and up into one Linear")
def _():
    a, b = gated_pair()
    pairing = {f"{i}{x}": {f"{i}{x}"} for i in range(3) for x in ("", ".norm", ".down")}
    pairing |= {f"{i}.{x}": {f"{i}.gate_up", str(i), None} for i in range(3) for x in ("gate", "up")}
    return a, b, (torch.randn(2, 5, 16),), {}, pairing


@ports("fused and split", "one Linear into gate and up")
def _():
    b, a = gated_pair()
    pairing = {f"{i}{x}": {f"{i}{x}"} for i in range(3) for x in ("", ".norm", ".down")}
    return a, b, (torch.randn(2, 5, 16),), {}, pairing | {f"{i}.gate_up": {str(i), None} for i in range(3)}


class Halves(nn.Module):
    "A Linear layer as two, one for each half of the outputs."
    def __init__(self, whole):
        super().__init__()
        n = whole.out_features//2
        self.low, self.high = nn.Linear(whole.in_features, n), nn.Linear(whole.in_features, n)
        for half, w, b in zip((self.low, self.high), whole.weight.data.chunk(2), whole.bias.data.chunk(2)):
            half.weight.data.copy_(w)
            half.bias.data.copy_(b)

    def forward(self, x): return torch.cat([self.low(x), self.high(x)], -1)


rebuilt("fused and split", "a Linear of an mlp into halves", lambda: stir(stack(16, 32, 32, 8)),
    lambda net: nn.Sequential(*net[:2], Halves(net[2]), *net[3:]), lambda: (torch.randn(4, 16),), more={"2": {"2"}})


class Embedded(nn.Module):
    "A head in two parts that stand beside each other, without a layer around them."
    def __init__(self, body, whole=None):
        super().__init__()
        self.body = body
        if whole is None: self.head = nn.Linear(32, 8)
        else:
            parts = Halves(whole)
            self.boxes, self.scores = parts.low, parts.high

    def forward(self, x):
        x = self.body(x).relu()
        return self.head(x) if hasattr(self, "head") else torch.cat([self.boxes(x), self.scores(x)], -1)


rebuilt("fused and split", "a head into boxes and scores",
    lambda: stir(Embedded(stack(16, 32, 32))), lambda net: Embedded(net.body, net.head), lambda: (torch.randn(4, 16),),
    more={"head": {"", None, "boxes", "scores"}})


# Weights folded

def fold_all(a, keep=True):
    "A copy whose batch norms are folded into the layer before; what is left of them is an Identity, or nothing."
    b = copy.deepcopy(a)
    def walk(m):
        last, out = None, []
        for key, child in list(m.named_children()):
            if isinstance(child, (nn.BatchNorm2d, nn.BatchNorm1d)) and last is not None:
                fuse = fuse_linear_bn_eval if isinstance(getattr(m, last), nn.Linear) else fuse_conv_bn_eval
                setattr(m, last, fuse(getattr(m, last), child))
                setattr(m, key, nn.Identity())
                out.append(key)
            else:
                walk(child)
                last = key if isinstance(child, (nn.Conv2d, nn.Linear)) else None
        return out
    walk(b)
    if not keep: b = without(b)
    return b.eval()


def without(m):
    "The same nested Sequentials without their Identity layers."
    return nn.Sequential(*[without(x) for x in m
                           if not isinstance(x, nn.Identity)]) if isinstance(m, nn.Sequential) else m


def folded_pairing(a, norm_of, rename=lambda name: name):
    "Each norm has the layer before as its partner, or what is left of it; that layer has what is right for none."
    found = {}
    for name, m in a.named_modules():
        if not name or not has_parameters(m): continue
        parent = name.rpartition(".")[0]
        if name in norm_of: found[name] = {rename(name), rename(norm_of[name]), rename(parent), None}
        elif name in norm_of.values(): found[name] = {rename(name), rename(parent), None}
        else: found[name] = {rename(name)}
    return found


def norms_after(a):
    "{norm: the layer before it}"
    found = {}
    for name, m in a.named_modules():
        last = None
        for key, child in m.named_children():
            full = f"{name}.{key}".strip(".")
            if isinstance(child, (nn.BatchNorm2d, nn.BatchNorm1d)) and last: found[full] = last
            last = full if isinstance(child, (nn.Conv2d, nn.Linear)) else None
    return found


for net, make, by in [("resnet18", lambda: torchvision.models.resnet18(num_classes=10), .05),
                      ("mobilenet_v2", lambda: torchvision.models.mobilenet_v2(width_mult=.35, num_classes=10), .05),
                      ("a small cnn", small_cnn, .2), ("inception blocks", lambda: Inceptions(), .2)]:
    @ports("folded", f"conv and batch norm of {net}, Identity left", folded)
    def _(make=make, by=by):
        a = stir(make(), by)
        return a, fold_all(a), (images(1, 48),), {}, folded_pairing(a, norms_after(a))


@ports("folded", "conv and batch norm of a flat cnn, nothing left", folded)
def _():
    a = nn.Sequential(*flat(stir(small_cnn())))
    b, left = fold_all(a, keep=False), [str(i) for i, m in enumerate(a) if not isinstance(m, nn.BatchNorm2d)]
    there = {name: str(i) for i, name in enumerate(left)}
    norm_of = norms_after(a)
    pairing = {name: {there[name], None} if name in norm_of.values() else {there[norm_of[name]], None}
               if name in norm_of else {there[name]}
               for name, m in a.named_modules() if name and has_parameters(m)}
    return a, b, (images(),), {}, pairing


@ports("folded", "Linear and batch norm of an mlp, nothing left", folded)
def _():
    a = stir(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32),
                           nn.ReLU(), nn.Linear(32, 4)))
    pairing = {"0": {"0", None}, "1": {"0", None}, "3": {"2", None}, "4": {"2", None}, "6": {"4"}}
    return a, fold_all(a, keep=False), (torch.randn(5, 16),), {}, pairing


@ports("folded", "Linear and batch norm of an mlp, Identity left", folded)
def _():
    a = stir(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4)))
    return a, fold_all(a), (torch.randn(5, 16),), {}, {"0": {"0", None}, "1": {"0", "1", None}, "3": {"3"}}


def fold_norm(norm, linear):
    "Moves scale and shift of a norm into the Linear layer after it."
    with torch.no_grad():
        if norm.bias is not None: linear.bias.add_(linear.weight @ norm.bias)
        linear.weight.mul_(norm.weight)
        norm.weight.fill_(1)
        if norm.bias is not None: norm.bias.zero_()


@ports("folded", "LayerNorm's scale and shift into the next Linear", folded)
def _():
    a = stir(nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU(), nn.LayerNorm(24),
                           nn.Linear(24, 4)))
    b = copy.deepcopy(a)
    for i in (1, 4): fold_norm(b[i], b[i + 1])
    return a, b, (torch.randn(5, 16),), {}, {str(i): {str(i)} if i in (0, 2, 5) else {str(i), None}
                                             for i in (0, 1, 2, 4, 5)}


@ports("folded", "LayerNorm's scale and shift in an encoder", folded)
def _():
    a = stir(Encoder())
    b = copy.deepcopy(a)
    for block in b.blocks:
        for x in "qkv": fold_norm(copy.deepcopy(block.norm_1), getattr(block.attn, x))
        block.norm_1 = nn.LayerNorm(32, elementwise_affine=False)
        fold_norm(block.norm_2, block.feed.up)
    return a, b.eval(), (tokens(2, 9),), {}, {k: {k, None} if "norm_" in k else {k} for k in layer_names(a)}


class Scaled(Attention):
    "Attention whose scale is in the weights of q."
    def forward(self, x):
        q, k, v = (self.at(key)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for key in self.order)
        return self.at("out")(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))


@ports("folded", "the scale of attention into q", folded)
def _():
    a = stir(Encoder(attention=lambda causal: Attention(24, 2), wide=24))
    b = Encoder(attention=lambda causal: Scaled(24, 2), wide=24)
    load(b, a.state_dict())
    for block in b.blocks:
        for p in block.attn.q.parameters(): p.data.div_(math.sqrt(12))
    pairing = {k: {k, None} if k.endswith(".q") else {k} for k in layer_names(a)}
    return a, b, (tokens(2, 9),), {}, pairing


class Lora(nn.Module):
    def __init__(self, wide_in, wide, rank=4):
        super().__init__()
        self.base = nn.Linear(wide_in, wide)
        self.a, self.b = nn.Linear(wide_in, rank, bias=False), nn.Linear(rank, wide, bias=False)

    def forward(self, x): return self.base(x) + .5*self.b(self.a(x))

    def merged(self):
        m = copy.deepcopy(self.base)
        m.weight.data.add_(.5*self.b.weight.data @ self.a.weight.data)
        return m


@ports("folded", "LoRA merged", folded)
def _():
    a = stir(nn.Sequential(Lora(16, 32), nn.GELU(), Lora(32, 32), nn.GELU(), nn.Linear(32, 4)))
    b = nn.Sequential(*[m.merged() if isinstance(m, Lora) else copy.deepcopy(m) for m in a])
    return a, b, (torch.randn(5, 16),), {}, {"0": {"0"}, "2": {"2"}, "4": {"4"}}


class Rep(nn.Module):
    "Three branches as in RepVGG, which are one convolution when they are merged."
    def __init__(self, wide):
        super().__init__()
        self.three, self.one = nn.Conv2d(wide, wide, 3, padding=1), nn.Conv2d(wide, wide, 1)
        self.scale = nn.BatchNorm2d(wide)

    def forward(self, x): return F.relu(self.three(x) + self.one(x) + self.scale(x))

    def merged(self):
        m, bn = copy.deepcopy(self.three), self.scale
        gain = bn.weight.data/torch.sqrt(bn.running_var + bn.eps)
        m.weight.data[:, :, 1:2, 1:2] += self.one.weight.data + torch.diag(gain)[:, :, None, None]
        m.bias.data += self.one.bias.data + bn.bias.data - bn.running_mean*gain
        return nn.Sequential(m, nn.ReLU())


@ports("folded", "RepVGG merged", folded)
def _():
    a = stir(nn.Sequential(nn.Conv2d(3, 8, 3), Rep(8), Rep(8), nn.Conv2d(8, 4, 1)))
    b = nn.Sequential(*[m.merged() if isinstance(m, Rep) else copy.deepcopy(m) for m in a]).eval()
    return a, b, (images(2, 12),), {}, {str(i): {str(i)} for i in range(4)}


@ports("folded", "weight norm removed", folded)
def _():
    a, b = stack(16, 32, 32, 4), stack(16, 32, 32, 4)
    for i in (0, 2):
        for m in (a, b): nn.utils.parametrizations.weight_norm(m[i])
    b.load_state_dict(a.state_dict())
    for i in (0, 2): nn.utils.parametrize.remove_parametrizations(b[i], "weight")
    return a, b, (torch.randn(5, 16),), {}, {"0": {"0"}, "2": {"2"}, "4": {"4"}}


# Norms moved, and other structures by hand

class Inside(nn.Module):
    def __init__(self, wide=16):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(wide), nn.Linear(wide, wide)

    def forward(self, x): return F.gelu(self.mix(self.norm(x)))


class Residuals(nn.Module):
    "Blocks with residual connections; their norms stand in the blocks or here."
    def __init__(self, outside, depth=3, wide=16):
        super().__init__()
        self.outside = outside
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(wide, wide), nn.GELU()) if outside else Inside(wide)
                                     for _ in range(depth)])
        if outside: self.norms = nn.ModuleList([nn.LayerNorm(wide) for _ in range(depth)])
        self.head = nn.Linear(wide, 4)

    def forward(self, x):
        for i, block in enumerate(self.blocks): x = x + block(self.norms[i](x) if self.outside else x)
        return self.head(x)


@ports("norm moved", "out of the blocks into their parent")
def _():
    a = stir(Residuals(False))
    b = load(Residuals(True), a.state_dict(), (r"blocks\.(\d)\.norm", r"norms.\1"),
             (r"blocks\.(\d)\.mix", r"blocks.\1.0"))
    pairing = {"head": {"head"}} | {f"blocks.{i}.norm": {f"norms.{i}"}
                                    for i in range(3)} | {f"blocks.{i}.mix": {f"blocks.{i}.0"} for i in range(3)}
    return a, b, (torch.randn(2, 5, 16),), {}, pairing | {f"blocks.{i}": {f"blocks.{i}"} for i in range(3)}


@ports("norm moved", "from the parent into the blocks")
def _():
    a = stir(Residuals(True))
    b = load(Residuals(False), a.state_dict(), (r"norms\.(\d)", r"blocks.\1.norm"),
             (r"blocks\.(\d)\.0", r"blocks.\1.mix"))
    pairing = {"head": {"head"}} | {f"norms.{i}": {f"blocks.{i}.norm"}
                                    for i in range(3)} | {f"blocks.{i}.0": {f"blocks.{i}.mix"} for i in range(3)}
    return a, b, (torch.randn(2, 5, 16),), {}, pairing | {f"blocks.{i}": {f"blocks.{i}"} for i in range(3)}


class Double(Spoken):
    def __init__(self, a, b, words):
        super().__init__(words, c1=nn.Conv2d(a, b, 3, padding=1), b1=nn.BatchNorm2d(b),
                         c2=nn.Conv2d(b, b, 3, padding=1), b2=nn.BatchNorm2d(b))
    def forward(self, x): return F.relu(self.at("b2")(self.at("c2")(F.relu(self.at("b1")(self.at("c1")(x))))))


class UNet(Spoken):
    def __init__(self, words=()):
        super().__init__(words, d1=Double(3, 8, words), d2=Double(8, 16, words), mid=Double(16, 32, words),
                         u2=nn.ConvTranspose2d(32, 16, 2, 2),
                         e2=Double(32, 16, words), u1=nn.ConvTranspose2d(16, 8, 2, 2), e1=Double(16, 8, words),
                         out=nn.Conv2d(8, 2, 1))

    def forward(self, x):
        one = self.at("d1")(x)
        two = self.at("d2")(F.max_pool2d(one, 2))
        up = self.at("u2")(self.at("mid")(F.max_pool2d(two, 2)))
        up = self.at("u1")(self.at("e2")(torch.cat([two, up], 1)))
        return self.at("out")(self.at("e1")(torch.cat([one, up], 1)))


milesial = dict(d1="inc", d2="down1", mid="bottom", u2="up1", e2="conv_up1", u1="up2", e1="conv_up2", out="outc",
                c1="conv_a", b1="norm_a", c2="conv_b", b2="norm_b")


spoken("renamed", "U-Net", lambda: UNet(), lambda: UNet(milesial), lambda: (images(1),))
spoken("renamed", "U-Net, as initialized", lambda: UNet(milesial), lambda: UNet(), lambda: (images(1),), stirred=False)


class Seq2Seq(Spoken):
    def __init__(self, words=()):
        super().__init__(words, source=nn.Embedding(64, 16), target=nn.Embedding(64, 16),
                         reader=nn.GRU(16, 24, 2, batch_first=True),
                         writer=nn.GRU(16, 24, 2, batch_first=True), align=nn.Linear(24, 24, bias=False),
                         head=nn.Linear(48, 64))

    def forward(self, source, target):
        memory, state = self.at("reader")(self.at("source")(source))
        x, _ = self.at("writer")(self.at("target")(target), state)
        context = (self.at("align")(x) @ memory.transpose(1, 2)).softmax(-1) @ memory
        return self.at("head")(torch.cat([x, context], -1))


spoken("renamed", "seq2seq of GRUs", lambda: Seq2Seq(), lambda: Seq2Seq(dict(source="src", target="tgt",
    reader="encoder_rnn", writer="decoder_rnn", align="attn", head="generator")), lambda: (tokens(2, 9), tokens(2, 7)))


class Mixer(Spoken):
    def __init__(self, words=(), depth=3):
        blocks = [Spoken(words, n1=nn.LayerNorm(16), t1=nn.Linear(9, 18), t2=nn.Linear(18, 9), n2=nn.LayerNorm(16),
                         c1=nn.Linear(16, 32), c2=nn.Linear(32, 16)) for _ in range(depth)]
        super().__init__(words, patch=nn.Conv2d(3, 16, 8, 8), blocks=nn.ModuleList(blocks), norm=nn.LayerNorm(16),
                         head=nn.Linear(16, 5))

    def forward(self, x):
        x = self.at("patch")(x).flatten(2).transpose(1, 2)
        for b in self.at("blocks"):
            x = x + b.at("t2")(F.gelu(b.at("t1")(b.at("n1")(x).transpose(1, 2)))).transpose(1, 2)
            x = x + b.at("c2")(F.gelu(b.at("c1")(b.at("n2")(x))))
        return self.at("head")(self.at("norm")(x).mean(1))


def called(pairing, *never):
    return {k: v for k, v in pairing.items() if not any(re.fullmatch(x, k) for x in never)}


spoken("renamed", "mlp mixer", lambda: Mixer(), lambda: Mixer(dict(patch="stem", blocks="layers", n1="norm_token",
    t1="token_in", t2="token_out", n2="norm_channel", c1="channel_in", c2="channel_out", head="fc")),
    lambda: (images(2, 24),), never=r"blocks\.\d")


class Towers(Spoken):
    "Two towers and a shared head, called twice."
    def __init__(self, words=(), order=("left", "right")):
        parts = dict(left=stack(12, 24, 24), right=stack(12, 24, 24), share=nn.Linear(24, 8))
        super().__init__(words, **{k: parts[k] for k in [*order, "share"]})
        self.order = order

    def forward(self, x, y):
        inputs = dict(left=x, right=y)
        made = {k: self.at("share")(self.at(k)(inputs[k])) for k in self.order}
        return (made["left"] @ made["right"].T).softmax(-1)


spoken("renamed", "two towers with a shared head", lambda: Towers(),
    lambda: Towers(dict(left="user", right="item", share="project")), lambda: (torch.randn(4, 12), torch.randn(4, 12)))
spoken("branches swapped", "two towers in the other order", lambda: Towers(), lambda: Towers(dict(left="user",
    right="item"), order=("right", "left")), lambda: (torch.randn(4, 12), torch.randn(4, 12)), never="share")


# Recurrent nets

class Cells(nn.Module):
    "An LSTM as a loop over cells."
    def __init__(self, lstm):
        super().__init__()
        self.cells = nn.ModuleList()
        for i in range(lstm.num_layers):
            cell = nn.LSTMCell(lstm.input_size if i == 0 else lstm.hidden_size, lstm.hidden_size)
            cell.load_state_dict({key: getattr(lstm, f"{key}_l{i}").detach()
                                  for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
            self.cells.append(cell)

    def forward(self, x):
        for cell in self.cells:
            state, out = None, []
            for t in x.unbind(1):
                state = cell(t, state)
                out.append(state[0])
            x = torch.stack(out, 1)
        return x, None


class Tagger(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(64, 12), rnn, nn.Linear(16, 5)

    def forward(self, x): return self.head(self.rnn(self.embed(x))[0])


for layers in (1, 2):
    @ports("LSTM against cells", f"a tagger of {layers} layer{'s' if layers > 1 else ''}")
    def _(layers=layers):
        a = stir(Tagger(nn.LSTM(12, 16, layers, batch_first=True)))
        b = copy.deepcopy(a)
        b.rnn = Cells(b.rnn)
        return a, b, (tokens(3, 7),), {}, {"embed": {"embed"}, "rnn": {"rnn"}, "head": {"head"}}


# transformers and torch

def eagerly(config, **kwargs):
    return config(attn_implementation="eager", **kwargs)


def llama(**kwargs):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = eagerly(LlamaConfig, vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                   num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, use_cache=False, **kwargs)
    return stir(LlamaForCausalLM(config)), (tokens(2, 9),), {}


def gpt2(**kwargs):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = eagerly(GPT2Config, vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False,
                   bos_token_id=1, eos_token_id=2, **kwargs)
    return stir(GPT2LMHeadModel(config)), (tokens(2, 9),), {}


def bert(**kwargs):
    from transformers import BertConfig, BertModel
    config = eagerly(BertConfig, vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48, max_position_embeddings=64, **kwargs)
    return stir(BertModel(config)), (tokens(2, 9),), {}


def vit(**kwargs):
    from transformers import ViTConfig, ViTModel
    config = eagerly(ViTConfig, image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48, **kwargs)
    return stir(ViTModel(config)), (images(),), {}


def t5(**kwargs):
    from transformers import T5Config, T5ForConditionalGeneration
    config = eagerly(T5Config, vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                   decoder_start_token_id=0, use_cache=False, **kwargs)
    return stir(T5ForConditionalGeneration(config)), (), dict(input_ids=tokens(2, 9), decoder_input_ids=tokens(2, 7))


class Rms(nn.Module):
    def __init__(self, wide, eps=1e-6):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(wide)), eps

    def forward(self, x): return self.gain*(x*torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


def turned(x):
    "Rotary positions, on halves."
    half, wide = x.shape[-1]//2, torch.promote_types(x.dtype, torch.float32)
    angle = torch.arange(x.shape[-2])[:, None].to(wide)*10000.**(-torch.arange(half).to(wide)/half)
    cos, sin, a, b = angle.cos().to(x.dtype), angle.sin().to(x.dtype), x[..., :half], x[..., half:]
    return torch.cat([a*cos - b*sin, b*cos + a*sin], -1)


class HandLlamaBlock(nn.Module):
    def __init__(self, wide, heads, groups, hidden):
        super().__init__()
        self.heads, self.groups, size = heads, groups, wide//heads
        self.pre_attn, self.wo = Rms(wide), nn.Linear(wide, wide, bias=False)
        self.wq, self.wk, self.wv = (nn.Linear(wide, n*size, bias=False) for n in (heads, groups, groups))
        self.pre_ffn, self.w1 = Rms(wide), nn.Linear(wide, hidden, bias=False)
        self.w3, self.w2 = nn.Linear(wide, hidden, bias=False), nn.Linear(hidden, wide, bias=False)

    def forward(self, x):
        y = self.pre_attn(x)
        parts = (self.wq, self.heads), (self.wk, self.groups), (self.wv, self.groups)
        q, k, v = (w(y).unflatten(-1, (n, -1)).transpose(1, 2) for w, n in parts)
        k, v = (t.repeat_interleave(self.heads//self.groups, 1) for t in (turned(k), v))
        x = x + self.wo(attend(turned(q), k, v, causal=True).transpose(1, 2).flatten(2))
        y = self.pre_ffn(x)
        return x + self.w2(F.silu(self.w1(y))*self.w3(y))


class HandLlama(nn.Module):
    def __init__(self, wide=32, heads=4, groups=2, hidden=48, depth=2):
        super().__init__()
        self.tok = nn.Embedding(64, wide)
        self.blocks = nn.ModuleList([HandLlamaBlock(wide, heads, groups, hidden) for _ in range(depth)])
        self.last, self.out = Rms(wide), nn.Linear(wide, 64, bias=False)

    def forward(self, x):
        x = self.tok(x)
        for block in self.blocks: x = block(x)
        return self.out(self.last(x))


llama_rules = [(r"model\.embed_tokens", "tok"), (r"model\.layers", "blocks"), (r"model\.norm", "last"),
               ("lm_head", "out"),
               (r"self_attn\.([qkvo])_proj", r"w\1"), (r"mlp\.gate_proj", "w1"), (r"mlp\.up_proj", "w3"),
               (r"mlp\.down_proj", "w2"),
               ("input_layernorm", "pre_attn"), ("post_attention_layernorm", "pre_ffn")]
gain = ((r"((?:norm|last|pre_attn|pre_ffn|final|_norm))\.weight", r"\1.gain"),)


def ruled(a, rules, leaves_only=True):
    "The pairing by rules for names, of the layers that own parameters."
    found = {}
    for name, m in a.named_modules():
        if not list(m.parameters(recurse=False)): continue
        new = name
        for pattern, to in rules: new = re.sub(pattern, to, new)
        found[name] = {new}
    return found


@ports("port", "Llama of transformers by hand")
def _():
    a, args, _ = llama()
    b = load(HandLlama(), a.state_dict(), *llama_rules, *gain)
    return a, b, args, {}, ruled(a, llama_rules) | {f"model.layers.{i}": {f"blocks.{i}"} for i in range(2)}


@ports("port", "Llama by hand, as initialized, against the one of transformers")
def _():
    b, args, _ = llama()
    a = HandLlama(depth=2).eval()

    rules = [("^tok", "model.embed_tokens"), ("^blocks", "model.layers"), ("^last", "model.norm"), ("^out", "lm_head"),
             (r"\.w([qkvo])\b", r".self_attn.\1_proj"),
             (r"\.w1\b", ".mlp.gate_proj"), (r"\.w3\b", ".mlp.up_proj"), (r"\.w2\b", ".mlp.down_proj"),
             ("pre_attn", "input_layernorm"), ("pre_ffn", "post_attention_layernorm"), (r"\.gain", ".weight")]
    load(b, a.state_dict(), *rules)
    return a, b, args, {}, ruled(a, rules) | {f"blocks.{i}": {f"model.layers.{i}"} for i in range(2)}


@ports("port", "Llama as Phi3, both of transformers")
def _():
    from transformers import Phi3Config, Phi3ForCausalLM
    a, args, kwargs = llama()
    b = Phi3ForCausalLM(eagerly(Phi3Config, vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                              original_max_position_embeddings=64, use_cache=False,
                              rms_norm_eps=1e-6, pad_token_id=0, bos_token_id=1, eos_token_id=2, sliding_window=None))
    state, pairing = a.state_dict(), {}
    for i in range(2):
        at = f"model.layers.{i}"
        qkv = [state.pop(f"{at}.self_attn.{x}_proj.weight") for x in "qkv"]
        state[f"{at}.self_attn.qkv_proj.weight"] = torch.cat(qkv)
        gate_up = [state.pop(f"{at}.mlp.{x}_proj.weight") for x in ("gate", "up")]
        state[f"{at}.mlp.gate_up_proj.weight"] = torch.cat(gate_up)
        pairing |= {f"{at}.self_attn.{x}_proj": {f"{at}.self_attn.qkv_proj", f"{at}.self_attn", None} for x in "qkv"}
        pairing |= {f"{at}.mlp.{x}_proj": {f"{at}.mlp.gate_up_proj", f"{at}.mlp", None} for x in ("gate", "up")}
        pairing |= {at: {at}, f"{at}.self_attn": {f"{at}.self_attn"}, f"{at}.mlp": {f"{at}.mlp"}}
    load(b, state)
    return a, b, args, kwargs, ruled(a, []) | pairing


class HandGPT2Block(nn.Module):
    def __init__(self, wide, heads):
        super().__init__()
        self.heads, self.norm_a, self.norm_b = heads, nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.query, self.key, self.value, self.merge = [nn.Linear(wide, wide) for _ in range(4)]
        self.widen, self.narrow = nn.Linear(wide, 4*wide), nn.Linear(4*wide, wide)

    def forward(self, x):
        y = self.norm_a(x)
        q, k, v = (m(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.query, self.key, self.value))
        x = x + self.merge(attend(q, k, v, True, by_hand=False).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm_b(x)), approximate="tanh"))


class HandGPT2(nn.Module):
    def __init__(self, wide=32, heads=4, depth=2):
        super().__init__()
        self.words, self.places = nn.Embedding(64, wide), nn.Embedding(64, wide)
        self.blocks = nn.ModuleList([HandGPT2Block(wide, heads) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(wide), nn.Linear(wide, 64, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks: x = block(x)
        return self.out(self.norm(x))


@ports("port", "GPT-2 of transformers by hand, with three Linear layers for its c_attn")
def _():
    a, args, _ = gpt2()
    b, state = HandGPT2(), {}
    rules = [(r"transformer\.wte", "words"), (r"transformer\.wpe", "places"), (r"transformer\.h\.", "blocks."),
             (r"transformer\.ln_f", "norm"), ("lm_head", "out"),
             ("ln_1", "norm_a"), ("ln_2", "norm_b"), (r"attn\.c_proj", "merge"), (r"mlp\.c_fc", "widen"),
             (r"mlp\.c_proj", "narrow")]
    for name, t in a.state_dict().items():
        if re.search(r"c_attn|c_proj|c_fc", name): t = t.T.contiguous() if t.dim() == 2 else t
        if "c_attn" in name:
            for x, part in zip(("query", "key", "value"), t.chunk(3)): state[name.replace("attn.c_attn", x)] = part
        else: state[name] = t
    load(b, state, *rules)
    pairing = called(ruled(a, rules), r".*c_attn") | {f"transformer.h.{i}": {f"blocks.{i}"} for i in range(2)}
    return a, b, args, {}, pairing | {f"transformer.h.{i}.attn.c_attn": {None, f"blocks.{i}"} for i in range(2)}


@ports("Conv1D against Linear", "in GPT-2 of transformers")
def _():
    from transformers.pytorch_utils import Conv1D
    a, args, kwargs = gpt2()
    b = copy.deepcopy(a)
    for name, m in list(b.named_modules()):
        if isinstance(m, Conv1D):
            linear = nn.Linear(m.nx, m.nf)
            linear.weight.data.copy_(m.weight.data.T)
            linear.bias.data.copy_(m.bias.data)
            setattr(b.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], linear)
    return a, b.eval(), args, kwargs, ruled(a, []) | {f"transformer.h.{i}.{x}": {f"transformer.h.{i}.{x}"}
                                                      for i in range(2) for x in ("attn", "mlp")}


@ports("Conv1D against Linear", "in one feed forward under other names")
def _():
    from transformers.pytorch_utils import Conv1D
    a = stir(nn.Sequential(OrderedDict(c_fc=Conv1D(48, 16), act=nn.GELU(), c_proj=Conv1D(16, 48))))
    b = nn.Sequential(OrderedDict(up=nn.Linear(16, 48), act=nn.GELU(), down=nn.Linear(48, 16)))
    for x, y in (("c_fc", "up"), ("c_proj", "down")):
        getattr(b, y).weight.data.copy_(getattr(a, x).weight.data.T)
        getattr(b, y).bias.data.copy_(getattr(a, x).bias.data)
    return a, b, (torch.randn(2, 5, 16),), {}, {"c_fc": {"up"}, "c_proj": {"down"}}


def into_torch(layer, new, at):
    "Loads torch's own encoder layer from the named parts of another: q, k, v, out, up, down, first and second norm."
    q, k, v, *rest = [layer.get_submodule(x) for x in at]
    state = {f"self_attn.in_proj_{key}": torch.cat([getattr(m, key).data for m in (q, k, v)])
             for key in ("weight", "bias")}
    for name, m in zip(("self_attn.out_proj", "linear1", "linear2", "norm1", "norm2"), rest):
        state |= {f"{name}.{key}": t for key, t in m.state_dict().items()}
    new.load_state_dict(state)
    return new.eval()


bert_parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
              "intermediate.dense", "output.dense", "attention.output.LayerNorm", "output.LayerNorm"]
vit_parts = ["attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.fc1", "mlp.fc2",
             "layernorm_before", "layernorm_after"]


def torch_pairing(parts, before="", after="", attention="attention"):
    "The partners of a block's parts in torch's own layer, whose attention calls no layers for its projections."
    own = {name: {f"{after}self_attn", None, after.strip(".")} for name in parts[:4]}
    own |= dict(zip(parts[4:], [{f"{after}{x}"} for x in ("linear1", "linear2", "norm1", "norm2")]))
    return {f"{before}{k}": v for k, v in own.items()}


@ports("port", "a layer of BERT against torch's own")
def _():
    a = bert()[0].encoder.layer[0]
    b = into_torch(a, nn.TransformerEncoderLayer(32, 4, 48, .1, "gelu", 1e-12, batch_first=True), bert_parts)
    return a, b, (torch.randn(2, 9, 32),), {}, torch_pairing(bert_parts)


@ports("port", "a layer of ViT against torch's own")
def _():
    a = vit()[0].layers[0]
    b = into_torch(a, nn.TransformerEncoderLayer(32, 4, 48, .1, "gelu", 1e-12, batch_first=True, norm_first=True),
                   vit_parts)
    return a, b, (torch.randn(2, 9, 32),), {}, torch_pairing(vit_parts) | {"attention": {"self_attn"}}


class TorchViT(nn.Module):
    "ViT with torch's own encoder."
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.start, self.place = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 17, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 48, .1, "gelu", 1e-12, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32, 1e-12), enable_nested_tensor=False)
        self.pool = nn.Linear(32, 32)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.encoder(torch.cat([self.start.expand(len(x), -1, -1), x], 1) + self.place)
        return x, self.pool(x[:, 0]).tanh()


@ports("port", "ViT of transformers with torch's own encoder")
def _():
    a, args, kwargs = vit()
    b = TorchViT()
    b.patches.load_state_dict(a.embeddings.patch_embeddings.projection.state_dict())
    b.start.data.copy_(a.embeddings.cls_token.data)
    b.place.data.copy_(a.embeddings.position_embeddings.data)
    b.encoder.norm.load_state_dict(a.layernorm.state_dict())
    b.pool.load_state_dict(a.pooler.dense.state_dict())
    pairing = {"embeddings.patch_embeddings.projection": {"patches"}, "layernorm": {"encoder.norm"},
               "pooler.dense": {"pool"}}
    for i, layer in enumerate(a.layers):
        into_torch(layer, b.encoder.layers[i], vit_parts)
        pairing |= torch_pairing(vit_parts, f"layers.{i}.", f"encoder.layers.{i}.")
        pairing |= {f"layers.{i}{x}": {f"encoder.layers.{i}{y}"} for x, y in (("", ""), (".attention", ".self_attn"))}
    return a, b.eval(), args, kwargs, pairing


@ports("port", "the encoder of BERT against torch's own")
def _():
    a = bert()[0].encoder
    b = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, .1, "gelu", 1e-12, batch_first=True), 2,
                              enable_nested_tensor=False).eval()
    pairing = {}
    for i, layer in enumerate(a.layer):
        into_torch(layer, b.layers[i], bert_parts)
        pairing |= torch_pairing(bert_parts, f"layer.{i}.", f"layers.{i}.") | {f"layer.{i}": {f"layers.{i}"}}
    return a, b, (torch.randn(2, 9, 32),), {}, pairing


class HandAttention(nn.Module):
    "What nn.MultiheadAttention computes, with layers for all it does."
    def __init__(self, wide, heads):
        super().__init__()
        self.heads, self.to_q, self.to_k, self.to_v, self.to_out = heads, *[nn.Linear(wide, wide) for _ in range(4)]

    def forward(self, q, k, v):
        made = self.to_q(q), self.to_k(k), self.to_v(v)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in made)
        weights = (q @ k.transpose(-1, -2)*q.shape[-1]**-.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2)), weights.mean(1)


class Around3(nn.Module):
    "Attention between two Linear layers."
    def __init__(self, attention):
        super().__init__()
        self.enter, self.attend, self.leave = nn.Linear(12, 32), attention, nn.Linear(32, 4)

    def forward(self, x):
        x = self.enter(x)
        return self.leave(x + self.attend(x, x, x)[0])


def attention_pair():
    a = stir(Around3(nn.MultiheadAttention(32, 4, batch_first=True)))
    b = Around3(HandAttention(32, 4))
    state = a.state_dict()
    for key in ("weight", "bias"):
        state |= dict(zip([f"attend.to_{x}.{key}" for x in "qkv"], state.pop(f"attend.in_proj_{key}").chunk(3)))
    return a, load(b, state, ("out_proj", "to_out"))


@ports("port", "nn.MultiheadAttention by hand")
def _():
    a, b = attention_pair()
    return a, b, (torch.randn(2, 7, 12),), {}, {"enter": {"enter"}, "attend": {"attend"}, "leave": {"leave"}}


@ports("port", "attention by hand against nn.MultiheadAttention")
def _():
    b, a = attention_pair()
    pairing = {"enter": {"enter"}, "attend": {"attend"}, "leave": {"leave"}}
    return a, b, (torch.randn(2, 7, 12),
                  ), {}, pairing | {f"attend.to_{x}": {None, "attend"} for x in ("q", "k", "v", "out")}


class HandT5Attention(nn.Module):
    def __init__(self, wide, heads):
        super().__init__()
        self.heads, self.wq, self.wk, self.wv, self.wo = heads, *[nn.Linear(wide, wide, bias=False) for _ in range(4)]

    def forward(self, x, memory, bias):
        made = self.wq(x), self.wk(memory), self.wv(memory)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in made)
        return self.wo(((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))


class HandT5Block(nn.Module):
    def __init__(self, wide, heads, hidden, decoder):
        super().__init__()
        self.norm_self, self.attn = Rms(wide), HandT5Attention(wide, heads)
        if decoder: self.norm_cross, self.cross = Rms(wide), HandT5Attention(wide, heads)
        self.norm_feed = Rms(wide)
        self.up, self.down = nn.Linear(wide, hidden, bias=False), nn.Linear(hidden, wide, bias=False)

    def forward(self, x, bias, memory=None):
        y = self.norm_self(x)
        x = x + self.attn(y, y, bias)
        if memory is not None: x = x + self.cross(self.norm_cross(x), memory, 0)
        return x + self.down(F.relu(self.up(self.norm_feed(x))))


class HandT5(nn.Module):
    def __init__(self, wide=32, heads=4, hidden=48, depth=2):
        super().__init__()
        self.shared = nn.Embedding(64, wide)
        self.read_bias, self.write_bias = nn.Embedding(32, heads), nn.Embedding(32, heads)
        self.read, self.write = (nn.ModuleList([HandT5Block(wide, heads, hidden, d) for _ in range(depth)])
                                 for d in (False, True))
        self.read_final, self.write_final, self.out = Rms(wide), Rms(wide), nn.Linear(wide, 64, bias=False)

    def forward(self, input_ids, decoder_input_ids):
        def distance(n): return torch.arange(n)[None] - torch.arange(n)[:, None]
        bias = self.read_bias(bucket(distance(input_ids.shape[1]))).permute(2, 0, 1)
        x = self.shared(input_ids)
        for block in self.read: x = block(x, bias)
        memory, y, back = self.read_final(x), self.shared(decoder_input_ids), distance(decoder_input_ids.shape[1])
        bias = self.write_bias((-back).clamp(min=0)).permute(2, 0, 1).masked_fill(back > 0, -math.inf)
        for block in self.write: y = block(y, bias, memory)
        return self.out(self.write_final(y))


def bucket(back):
    "Buckets of T5 in both directions, for distances below 16."
    far = 8 + (torch.log(back.abs().clamp(min=1).float()/8)/math.log(16)*8).long()
    return torch.where(back.abs() < 8, back.abs(), far.clamp(max=15)) + 16*(back > 0)


@ports("port", "T5 of transformers by hand")
def _():
    a, args, kwargs = t5(tie_word_embeddings=False)
    def side(name): return "read" if name == "encoder" else "write"
    rules = [(r"(encoder|decoder)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias",
              lambda m: f"{side(m[1])}_bias"),
             (r"(encoder|decoder)\.final_layer_norm", lambda m: f"{side(m[1])}_final"),
             (r"(encoder|decoder)\.block", lambda m: side(m[1])),
             (r"layer\.0\.SelfAttention\.([qkvo])", r"attn.w\1"),
             (r"layer\.1\.EncDecAttention\.([qkvo])", r"cross.w\1"), (r"layer\.\d\.DenseReluDense\.wi", "up"),
             (r"layer\.\d\.DenseReluDense\.wo", "down"), (r"layer\.0\.layer_norm", "norm_self"),
             (r"write\.(\d)\.layer\.1\.layer_norm", r"write.\1.norm_cross"),
             (r"layer\.\d\.layer_norm", "norm_feed"), (r"lm_head", "out")]
    state = {k: t for k, t in a.state_dict().items() if "embed_tokens" not in k}
    b = load(HandT5(), state, *rules, (r"(norm_self|norm_cross|norm_feed|_final)\.weight", r"\1.gain"))
    pairing = called(ruled(a, rules), ".*embed_tokens", "shared")
    pairing |= {f"{x}.embed_tokens": {"shared"} for x in ("encoder", "decoder")}
    if a.encoder.embed_tokens is a.shared: pairing = called(pairing, ".*embed_tokens") | {"shared": {"shared"}}
    return a, b, args, kwargs, pairing | {f"{x}.block.{i}": {f"{side(x)}.{i}"} for x in ("encoder", "decoder")
                                          for i in range(2)}


# The same structure, and another arithmetic

def many(kind, names, within=1e-9):
    "Adds a pair for each of the nets with these names, made by the decorated function of (reference, candidate)."
    def add(f):
        for name in names.split():
            @arithmetic(kind, f"{name}, {f.__doc__}" if f.__doc__ else name, within)
            def _(name=name):
                a, args, kwargs = nets[name](0)
                made = f(a, copy.deepcopy(a))
                a, b = made if isinstance(made, tuple) else (a, made)
                return a, b, args, kwargs, None
        return f
    return add


# Copies, instances, modes

@many("copy", "llama t5 resnet18 lstm unet seq2seq transformer")
def _(a, b): return b


@many("same object", "gpt2 cnn")
def _(a, b): return a


for name in "bert gpt2 vit_own densenet gru mixer whisper".split():
    @arithmetic("new instance", name)
    def _(name=name):
        a, args, kwargs = nets[name](0)
        b = nets[name](1)[0]
        b.load_state_dict(a.state_dict())
        return a, b, args, kwargs, None


@many("dropout in train mode", "bert t5 lstm vit_own encoder cnn gpt2_eager transformer")
def _(a, b): return a.train(), b.train()


@arithmetic("dropout in train mode", "one Sequential against a nested one")
def _():
    a = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(.3), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(.3),
                      nn.Linear(32, 4)).train()
    m = list(copy.deepcopy(a))
    b = nn.Sequential(nn.Sequential(*m[:3]), nn.Sequential(*m[3:6]), m[6]).train()
    return a, b, (torch.randn(8, 16),), {}, {"0": {"0.0"}, "3": {"1.0"}, "6": {"2"}}


class Noisy(nn.Module):
    "Adds random numbers in its forward, whatever its mode."
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        x = self.enter(x)
        return self.leave(x + .1*torch.randn_like(x))


@arithmetic("random numbers", "noise in forward")
def _():
    a = Noisy()
    return a, copy.deepcopy(a), (torch.randn(4, 8),), {}, None


@arithmetic("random numbers", "gumbel softmax")
def _():
    class Gumbel(nn.Sequential):
        def forward(self, x): return F.gumbel_softmax(super().forward(x))
    a = Gumbel(*stack(8, 16, 5))
    return a, copy.deepcopy(a), (torch.randn(4, 8),), {}, None


# Precision

class Cast(nn.Module):
    "Casts its inputs to the dtype of the model in it."
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        dtype = next(self.model.parameters()).dtype
        def cast(x): return x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x
        return self.model(*map(cast, args), **{k: cast(x) for k, x in kwargs.items()})


def eps(dtype): return 50*torch.finfo(dtype).eps


@many("bfloat16", "gpt2 bert llama vit lstm seq2seq encoder t5 shared", eps(torch.bfloat16))
def _(a, b): return b.bfloat16()


@many("bfloat16", "resnet18 mixer unet", eps(torch.bfloat16))
def _(a, b):
    "inputs cast"
    return Cast(b.bfloat16()).eval()


@many("bfloat16", "llama qwen2", eps(torch.bfloat16))
def _(a, b):
    "as reference"
    return a.bfloat16(), b


@many("float16", "gpt2 llama bert gru", eps(torch.float16))
def _(a, b): return b.half()


@many("float16", "mixer vit_own cnn", eps(torch.float16))
def _(a, b):
    "inputs cast"
    return Cast(b.half()).eval()


@many("float64", "gpt2 seq2seq t5 llama bert")
def _(a, b): return b.double()


@many("float64", "unet resnet18")
def _(a, b):
    "inputs cast"
    return Cast(b.double()).eval()


@many("float64", "gpt2_eager lstm")
def _(a, b):
    "as reference"
    return a.double(), b


class Under(nn.Module):
    "A model whose forward runs inside a context."
    def __init__(self, model, context):
        super().__init__()
        self.model, self.context = model, context

    def forward(self, *args, **kwargs):
        with self.context(): return self.model(*args, **kwargs)


def autocast(): return torch.autocast("cpu", torch.bfloat16)


@many("autocast", "mixer cnn gpt2 vit_own")
def _(a, b): return Under(b, autocast).eval()


@many("autocast", "llama unet")
def _(a, b):
    "as accelerate patches forward"
    b.forward = torch.autocast("cpu", torch.bfloat16)(b.forward)
    return b


# Order of summation, memory formats, kernels, threads

@many("channels last", "resnet18 unet mobilenet cnn efficientnet")
def _(a, b): return b.to(memory_format=torch.channels_last)


def swap(model, **classes):
    "Gives layers another class, which computes the same in another way."
    for m in model.modules():
        new = classes.get(type(m).__name__)
        if new: m.__class__ = new
    return model


class InChunks(nn.Linear):
    def forward(self, x):
        out = sum(p @ w.T for p, w in zip(x.chunk(4, -1), self.weight.chunk(4, -1)))
        return out if self.bias is None else out + self.bias


class Reversed(nn.Linear):
    def forward(self, x): return F.linear(x.flip(-1), self.weight.flip(-1), self.bias)


class ByTerms(nn.Linear):
    def forward(self, x): return (x[..., None, :]*self.weight).sum(-1) + (0 if self.bias is None else self.bias)


@many("order of summation", "mixer llama vit_own bert")
def _(a, b):
    "matmul by chunks"
    return swap(b, Linear=InChunks)


@many("order of summation", "mixer t5 lstm")
def _(a, b):
    "reversed"
    return swap(b, Linear=Reversed)


@many("order of summation", "vit cnn")
def _(a, b):
    "product and sum"
    return swap(b, Linear=ByTerms)


class Summed(nn.Module):
    def __init__(self, total):
        super().__init__()
        self.body, self.total, self.head = stack(16, 64, 64), total, nn.Linear(64, 4)

    def forward(self, x): return self.head(self.total(self.body(x)))


@arithmetic("order of summation", "a sum over 500 positions, reversed")
def _():
    a = stir(Summed(lambda x: x.sum(1)/x.shape[1]))
    b = Summed(lambda x: x.flip(1).cumsum(1)[:, -1]/x.shape[1]).eval()
    b.load_state_dict(a.state_dict())
    return a, b, (torch.randn(3, 500, 16),), {}, None


def mkldnn_off(): return torch.backends.mkldnn.flags(enabled=False)


@many("mkldnn off", "resnet18 mobilenet unet lstm densenet")
def _(a, b): return Under(b, mkldnn_off).eval()


@contextlib.contextmanager
def eight_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try: yield
    finally: torch.set_num_threads(before)


@many("8 threads", "resnet18_large vit_own_large llama_large")
def _(a, b): return Under(b, eight_threads).eval()


class EightThreads(nn.Linear):
    def forward(self, x):
        with eight_threads(): return super().forward(x)


@many("8 threads", "vit_own_large")
def _(a, b):
    "in each Linear"
    return swap(b, Linear=EightThreads)


class Total(nn.Module):
    "A sum over very many numbers, in another order with each number of threads."
    def __init__(self, threads=contextlib.nullcontext):
        super().__init__()
        self.threads = threads

    def forward(self, x):
        with self.threads(): return x.sum()/math.sqrt(x.numel())


@arithmetic("8 threads", "a sum of two million numbers")
def _():
    class Loss(nn.Module):
        def __init__(self, threads):
            super().__init__()
            self.body, self.total = nn.Linear(16, 128), Total(threads)

        def forward(self, x): return self.total(self.body(x).exp())
    a, b = stir(Loss(contextlib.nullcontext)), Loss(eight_threads).eval()
    b.load_state_dict(a.state_dict())
    return a, b, (torch.randn(16384, 16),), {}, None


@many("larger nets", "resnet18_large unet_large densenet_large")
def _(a, b):
    "channels last"
    return b.to(memory_format=torch.channels_last)


@many("larger nets", "vit_own_large llama_large")
def _(a, b):
    "matmul by chunks"
    return swap(b, Linear=InChunks)


# Attention

@many("sdpa against eager", "llama gpt2 bert t5 whisper vit")
def _(a, b):
    a.set_attn_implementation("sdpa")
    b.set_attn_implementation("eager")
    return a, b


@many("sdpa against eager", "mistral gpt2")
def _(a, b):
    "eager as reference"
    a.set_attn_implementation("eager")
    b.set_attn_implementation("sdpa")
    return a, b


for name in "llama gpt2 bert t5 qwen2".split():
    @arithmetic("sdpa against eager", f"{name}, without a mask")
    def _(name=name):
        a, args, kwargs = nets[name](0)
        b = copy.deepcopy(a)
        b.set_attn_implementation("eager")
        return a, b, args, {k: x for k, x in kwargs.items() if k != "attention_mask"}, None


@arithmetic("sdpa against eager", "qwen2, padded behind")
def _():
    a, args, kwargs = nets["qwen2"](0)
    b = copy.deepcopy(a)
    b.set_attn_implementation("eager")
    return a, b, args, kwargs | dict(attention_mask=padding(3, 11)), None


def own_attention(kind):
    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if kind == "fused": out = F.scaled_dot_product_attention(q, k, v)
        else: out = torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q*self.scale, k).softmax(-1), v)
        return self.proj(out.transpose(1, 2).flatten(2))
    return type("SelfAttention", (nn.Module,), {"forward": forward})


@many("fused against unfused attention", "vit_own shared")
def _(a, b): return swap(b, SelfAttention=own_attention("fused"))


@many("einsum against matmul", "vit_own shared")
def _(a, b): return swap(b, SelfAttention=own_attention("einsum"))


@arithmetic("fused against unfused attention", "causal, with cross attention")
def _():
    a = stir(Translator())
    b = Translator(by_hand=False)
    b.load_state_dict(a.state_dict())
    return a, b.eval(), (tokens(2, 9), tokens(2, 7)), {}, None


class ByChunks(Attention):
    "Attention a few queries at a time, with softmax gathered over chunks of keys, as flash attention does it."
    def forward(self, x):
        q, k, v = (self.at(key)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for key in self.order)
        top, weight, out = torch.full_like(q[..., :1], -math.inf), torch.zeros_like(q[..., :1]), torch.zeros_like(q)
        for keys, values in zip(k.split(3, 2), v.split(3, 2)):
            scores = q @ keys.transpose(-1, -2)/math.sqrt(q.shape[-1])
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            part, shrink = (scores - new).exp(), (top - new).exp()
            weight, out, top = weight*shrink + part.sum(-1, keepdim=True), out*shrink + part @ values, new
        return self.at("out")((out/weight).transpose(1, 2).flatten(2))


@arithmetic("fused against unfused attention", "by chunks of keys")
def _():
    a = stir(Encoder())
    b = Encoder(attention=lambda causal: ByChunks())
    b.load_state_dict(a.state_dict())
    return a, b.eval(), (tokens(2, 11),), {}, None


# Compiled, wrapped, checkpointed

@many("compiled", "mixer bert seq2seq")
def _(a, b):
    "eager"
    return torch.compile(b, backend="eager")


@many("compiled", "cnn vit_own")
def _(a, b):
    "aot_eager"
    return torch.compile(b, backend="aot_eager")


@many("compiled", "mixer")
def _(a, b):
    "a block compiled in place"
    for block in b.blocks: block.compile(backend="eager")
    return b


@many("wrapped", "resnet18 lstm t5")
def _(a, b): return Around(b).eval()


@many("wrapped", "gru")
def _(a, b):
    "twice, with the reference wrapped once"
    return Around(a).eval(), Around(Around(b)).eval()


@many("gradient checkpointing", "llama bert")
def _(a, b):
    b.gradient_checkpointing_enable()
    return a.train(), b.train()


class Checkpointed(nn.Module):
    def forward(self, x):
        def run(x):
            x = x + self.drop(self.attn(self.norm1(x)))
            return x + self.drop(self.mlp(self.norm2(x)))
        return checkpoint.checkpoint(run, x, use_reentrant=False)


@many("gradient checkpointing", "vit_own shared")
def _(a, b): return a.train(), swap(b.train(), ViTBlock=Checkpointed)


@many("gradients or none", "bert unet")
def _(a, b):
    "frozen"
    return b.requires_grad_(False)


@many("gradients or none", "vit_own seq2seq")
def _(a, b):
    "under no_grad"
    return Under(b, torch.no_grad).eval()


@many("gradients or none", "gpt2")
def _(a, b):
    "under inference_mode"
    return Under(b, torch.inference_mode).eval()


# NaN and infinities that both have

class Logs(nn.Module):
    "Logarithms of what ReLU leaves: minus infinity where that is zero."
    def __init__(self):
        super().__init__()
        self.body, self.head = stack(8, 16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.log(self.body(x).relu())
        return x, self.head(x.exp())


@arithmetic("NaN and infinity", "minus infinity inside and in the output")
def _():
    a = stir(Logs())
    return a, copy.deepcopy(a), (torch.randn(6, 8),), {}, None


@arithmetic("NaN and infinity", "minus infinity, layers reversed")
def _():
    a = stir(Logs())
    return a, swap(copy.deepcopy(a), Linear=Reversed), (torch.randn(6, 8),), {}, None


class Masked(nn.Module):
    "Attention in which a sample has no key: its softmax is NaN."
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, mask):
        x = self.enter(x)
        scores = (x @ x.transpose(1, 2)).masked_fill(~mask[:, None], -math.inf)
        return self.leave(scores.softmax(-1) @ x)


@arithmetic("NaN and infinity", "NaN in a sample without keys")
def _():
    a, mask = stir(Masked()), torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    return a, copy.deepcopy(a), (torch.randn(3, 5, 8), mask), {}, None


for name in ("lstm", "mixer"):
    @arithmetic("NaN and infinity", f"NaN in a weight of {name}")
    def _(name=name):
        a, args, kwargs = nets[name](0)
        with torch.no_grad(): a.norm.weight[3] = math.nan
        return a, copy.deepcopy(a), args, kwargs, None


@arithmetic("NaN and infinity", "NaN in the input of a cnn, channels last")
def _():
    a, (x,), kwargs = nets["cnn"](0)
    x[1, 0, 3, 3] = math.nan
    return a, copy.deepcopy(a).to(memory_format=torch.channels_last), (x,), kwargs, None


# The same arithmetic by hand, under the same names

class HandLayerNorm(nn.LayerNorm):
    def forward(self, x):
        d = x - x.mean(-1, keepdim=True)
        return d/torch.sqrt(d.square().mean(-1, keepdim=True) + self.eps)*self.weight + self.bias


class HandBatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        gain = self.weight/torch.sqrt(self.running_var + self.eps)
        return x*gain[:, None, None] + (self.bias - self.running_mean*gain)[:, None, None]


class HandGelu(nn.Module):
    def forward(self, x): return x*.5*(1 + torch.erf(x/math.sqrt(2)))


class HandSilu(nn.Module):
    def forward(self, x): return x/(1 + torch.exp(-x))


class HandConv(nn.Conv2d):
    def forward(self, x):
        if self.groups > 1: return super().forward(x)
        n, _, h, w = x.shape
        settings = zip((h, w), self.padding, self.dilation, self.kernel_size, self.stride)
        h, w = ((s + 2*p - d*(k - 1) - 1)//t + 1 for s, p, d, k, t in settings)
        out = self.weight.flatten(1) @ F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)
        if self.bias is not None: out = out + self.bias[:, None]
        return out.view(n, -1, h, w)


class HandEmbedding(nn.Embedding):
    def forward(self, x): return F.one_hot(x, self.num_embeddings).to(self.weight.dtype) @ self.weight


class HandGroupNorm(nn.GroupNorm):
    def forward(self, x):
        y = x.unflatten(1, (self.num_groups, -1)).flatten(2)
        y = (y - y.mean(-1, keepdim=True))*torch.rsqrt(y.var(-1, keepdim=True, unbiased=False) + self.eps)
        return y.view_as(x)*self.weight[:, None, None] + self.bias[:, None, None]


class HandSoftmax(nn.Module):
    def forward(self, x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e/e.sum(-1, keepdim=True)


@many("layer norm by hand", "bert mixer gpt2 encoder_prenorm")
def _(a, b): return swap(b, LayerNorm=HandLayerNorm)


@many("gelu by hand", "mixer vit_own")
def _(a, b): return swap(b, GELU=HandGelu)


@many("conv as unfold and matmul", "resnet18 unet cnn")
def _(a, b): return swap(b, Conv2d=HandConv)


@many("batch norm by hand", "resnet18 mobilenet")
def _(a, b): return swap(b, BatchNorm2d=HandBatchNorm)


@many("other layers by hand", "efficientnet cnn")
def _(a, b):
    "SiLU and group norm"
    return swap(b, SiLU=HandSilu, GroupNorm=HandGroupNorm)


@many("other layers by hand", "lstm t5")
def _(a, b):
    "embedding as a product with one-hot rows"
    return swap(b, Embedding=HandEmbedding)


class Attentive(nn.Module):
    def __init__(self, softmax):
        super().__init__()
        self.enter, self.softmax, self.leave = nn.Linear(8, 16), softmax, nn.Linear(16, 4)

    def forward(self, x):
        x = self.enter(x)
        return self.leave(self.softmax(x @ x.transpose(1, 2)) @ x)


@arithmetic("softmax by hand", "as a layer in attention")
def _():
    a = stir(Attentive(nn.Softmax(-1)))
    b = copy.deepcopy(a)
    b.softmax = HandSoftmax()
    return a, b.eval(), (torch.randn(3, 7, 8),), {}, None


@arithmetic("softmax by hand", "as the last layer of a classifier")
def _():
    a = stir(nn.Sequential(small_cnn(), nn.Softmax(-1)))
    b = copy.deepcopy(a)
    b[1] = HandSoftmax()
    return a, b.eval(), (images(3),), {}, None


class Gru(nn.Module):
    "torch's GRU step by step, with its own parameters."
    def __init__(self, gru):
        super().__init__()
        for name, p in gru.named_parameters(): self.register_parameter(name, p)

    def forward(self, x):
        h, out = x.new_zeros(len(x), self.weight_hh_l0.shape[1]), []
        for t in x.unbind(1):
            r, z, n = F.linear(t, self.weight_ih_l0, self.bias_ih_l0).chunk(3, -1)
            hr, hz, hn = F.linear(h, self.weight_hh_l0, self.bias_hh_l0).chunk(3, -1)
            r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            n = torch.tanh(n + r*hn)
            h = (1 - z)*n + z*h
            out.append(h)
        return torch.stack(out, 1), h[None]


@arithmetic("recurrent layers by hand", "GRU as a loop")
def _():
    a = stir(Tagger(nn.GRU(12, 16, batch_first=True)))
    b = copy.deepcopy(a)
    b.rnn = Gru(b.rnn)
    return a, b, (tokens(3, 7),), {}, None


# Other outputs, caches, inputs changed in place

for name in "llama gpt2 t5".split():
    @arithmetic("use_cache", name)
    def _(name=name):
        a, args, kwargs = nets[name](0)
        b = copy.deepcopy(a)
        for m, on in ((a, False), (b, True)):
            for config in {id(x.config): x.config for x in m.modules() if hasattr(x, "config")}.values():
                encodes = getattr(config, "model_type", "") == "t5" and not config.is_decoder and config is not m.config
                config.use_cache = on and not encodes
        return a, b, args, {k: x for k, x in kwargs.items() if k != "use_cache"}, None


class As(nn.Module):
    "Two heads, whose outputs are told in a way of choice."
    def __init__(self, told):
        super().__init__()
        self.body, self.box, self.score, self.told = stack(8, 16, 16), nn.Linear(16, 4), nn.Linear(16, 1), told

    def forward(self, x):
        x = self.body(x).relu()
        return self.told(self.box(x), self.score(x))


@dataclasses.dataclass
class Told:
    box: torch.Tensor
    score: torch.Tensor


for title, first, second in [("a tuple against a dict", lambda box, score: (box, score), lambda box,
                              score: dict(box=box, score=score)),
                             ("a list against a tuple", lambda box, score: [box, score], lambda box,
                              score: (box, score)),
                             ("a dict against a dataclass", lambda box, score: dict(box=box, score=score), Told)]:
    @arithmetic("other outputs", title)
    def _(first=first, second=second):
        a = stir(As(first))
        b = As(second).eval()
        b.load_state_dict(a.state_dict())
        return a, b, (torch.randn(5, 8),), {}, None


@many("other outputs", "bert")
def _(a, b):
    "return_dict off"
    b.config.return_dict = False
    return b


class Changing(nn.Module):
    "Normalizes its input, in place or not."
    def __init__(self, in_place):
        super().__init__()
        self.in_place, self.body = in_place, stack(8, 16, 4)

    def forward(self, x):
        if self.in_place: x.mul_(2).add_(1)
        else: x = x*2 + 1
        return self.body(x)


for title, one, two in [("both", True, True), ("the candidate", False, True), ("the reference", True, False)]:
    @arithmetic("inputs changed in place", title)
    def _(one=one, two=two):
        a, b = stir(Changing(one)), Changing(two).eval()
        b.load_state_dict(a.state_dict())
        return a, b, (torch.randn(5, 8),), {}, None


@arithmetic("inputs changed in place", "ReLU in place against not")
def _():
    a = stir(small_cnn())
    b = copy.deepcopy(a)
    for m in b.modules():
        if isinstance(m, nn.ReLU): m.inplace = True
    return a, b, (images(),), {}, None


@arithmetic("inputs changed in place", "residual added in place, a list that grows")
def _():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

        def forward(self, x, seen):
            for layer in self.layers:
                x += layer(x).tanh()
                seen.append(x.clone())
            return x, seen
    a = stir(Grows())
    return a, copy.deepcopy(a), (torch.randn(4, 8), []), {}, None


# Others

@arithmetic("other kinds of numbers", "complex, by a Fourier transform")
def _():
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 4)
            self.filter = nn.Parameter(torch.randn(16, 9, dtype=torch.complex64))

        def forward(self, x):
            spectrum = torch.fft.rfft(self.enter(x).transpose(1, 2))*self.filter
            return self.leave(torch.fft.irfft(spectrum, n=x.shape[1]).transpose(1, 2)), spectrum
    a = Spectral().eval()
    return a, swap(copy.deepcopy(a), Linear=Reversed), (torch.randn(2, 16, 8),), {}, None


@arithmetic("other kinds of numbers", "whole numbers: the classes that are predicted")
def _():
    class Predicts(nn.Sequential):
        def forward(self, x):
            logits = super().forward(x)
            return logits.argmax(-1), logits.topk(2).indices
    a = stir(Predicts(*stack(8, 32, 5)))
    return a, copy.deepcopy(a), (torch.randn(6, 8),), {}, None


@arithmetic("state", "batch norm in train mode, channels last")
def _():
    a = small_cnn().train()
    return a, copy.deepcopy(a).to(memory_format=torch.channels_last), (images(4),), {}, None


@arithmetic("state", "a buffer that counts calls")
def _():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = stack(8, 16, 4)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps += 1
            return self.body(x)*self.steps
    a = stir(Counts())
    return a, copy.deepcopy(a), (torch.randn(4, 8),), {}, None


@many("hooks of others", "resnet18 bert")
def _(a, b):
    "forward hooks that look"
    for m in b.modules(): m.register_forward_hook(lambda m, i, o: None)
    return b


@many("tied weights", "gpt2 qwen2")
def _(a, b):
    "untied"
    b.lm_head.weight = nn.Parameter(b.lm_head.weight.detach().clone())
    return b


# Another structure and another arithmetic at once

@arithmetic("port, other arithmetic", "encoder under other names in bfloat16, fused", eps(torch.bfloat16))
def _():
    a = stir(Encoder(google))
    b = move(a, Encoder(terse, by_hand=False)).bfloat16().eval()
    return a, b, (tokens(2, 9),), {}, alike_by_key(a, b)


@arithmetic("port, other arithmetic", "encoder and decoder under other names in float16, v before q",
            eps(torch.float16))
def _():
    a = stir(Translator())
    b = move(a, Translator(google, order="vqk")).half().eval()
    return a, b, (tokens(2, 9), tokens(2, 7)), {}, alike_by_key(a, b)


@arithmetic("port, other arithmetic", "Llama by hand in bfloat16", eps(torch.bfloat16))
def _():
    a, args, _ = llama()
    b = load(HandLlama(), a.state_dict(), *llama_rules, *gain).bfloat16()
    return a, b, args, {}, ruled(a, llama_rules) | {f"model.layers.{i}": {f"blocks.{i}"} for i in range(2)}


@arithmetic("port, other arithmetic", "resnet18 by hand, channels last")
def _():
    a = stir(torchvision.models.resnet18(num_classes=10), .05)
    b = load(HandResNet([2, 2, 2, 2], HandBasic), a.state_dict(), *hand_resnet_rules)
    return a, b.to(memory_format=torch.channels_last), (images(2, 48),), {}, resnet_pairing(a)


@arithmetic("port, other arithmetic", "U-Net under other names, conv by hand")
def _():
    a = stir(UNet())
    b = move(a, UNet(milesial)).eval()
    return a, swap(b, Conv2d=HandConv), (images(1),), {}, alike_by_key(a, b)


@arithmetic("port, other arithmetic", "encoder with one Linear for q, k, v, matmul by chunks")
def _():
    a, b = fused_encoders()
    pairing = {k: {k} for k in layer_names(a) if ".attn." not in k}
    for at in ("blocks.0.attn", "blocks.1.attn"):
        pairing |= {f"{at}.{x}": {f"{at}.qkv", at, None} for x in "qkv"} | {f"{at}.out": {f"{at}.proj"}}
    return a, swap(b, Linear=InChunks), (tokens(2, 9),), {}, pairing


@arithmetic("port, other arithmetic", "seq2seq under other names in float64")
def _():
    a = stir(Seq2Seq())
    b = move(a, Seq2Seq(dict(source="src", target="tgt", reader="rnn_in", writer="rnn_out"))).double().eval()
    return a, b, (tokens(2, 9), tokens(2, 7)), {}, alike_by_key(a, b)


@arithmetic("port, other arithmetic", "a nested cnn flattened, batch norm by hand")
def _():
    a = stir(small_cnn())
    twin = Twin(a)
    b = nn.Sequential(*flat(twin.model))
    return a, swap(b, BatchNorm2d=HandBatchNorm), (images(),), {}, twin.pairing(b)


@arithmetic("layers never called", "a second head in the candidate")
def _():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.spare, self.body, self.head = nn.Linear(16, 16), stack(8, 16, 16), nn.Linear(16, 3)

        def forward(self, x): return self.head(self.body(x))
    b = stir(Spare())
    a = copy.deepcopy(b)
    del a.spare
    return a, b, (torch.randn(4, 8),), {}, {"body": {"body"}, "body.0": {"body.0"}, "body.2": {"body.2"},
                                            "head": {"head"}}

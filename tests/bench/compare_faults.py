"""Planted faults, with the layer at fault known, on which `hl.compare` is tried.

    python -m tests.bench.compare_faults [part of a kind or name]

builds them all and checks that each matters, and that its answer is right. `faults()` lists them. What `make()` of one
returns is a reference, a candidate that is its copy but for one thing, the inputs, and the names that are right for the
first layer at fault: that of the leaf that computes something else, or of the container whose children are right and
whose own forward is not. A layer that is called by several names may be named by any of them."""
import copy
import inspect
import sys
import textwrap
import time
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.bench.compare_nets import nets


@dataclass
class Fault:
    kind: str
    name: str
    make: Callable[[], tuple]  # returns (reference, candidate, args, kwargs, answer)


listed: list[Fault] = []


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
    listed.append(Fault(kind, f"{net} {where or 'model'}{note and ': '}{note}", make))


def faults() -> list[Fault]:
    "Every fault, in the order of the file."
    return list(listed)


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


class Rewritten(ValueError):
    "A release of a library has another text than the one that the fault is planted in."


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

plant("norm of another kind", "llama", "model.layers.1.input_layernorm",
      edit(("variance = hidden",
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
plant("activation", "encoder", "encoder.layers.2",
      setting(activation=F.leaky_relu, activation_relu_or_gelu=0), note="leaky relu for relu")
plant("activation", "mixer", "blocks.1.channels.act", setting(approximate="tanh"), note="gelu with tanh for erf")
plant("activation", "bert", "pooler.activation", instead(nn.ReLU), note="relu for tanh")
plant("activation", "whisper", "encoder",
      edit(("hidden_states = nn.functional.dropout(hidden",
            "hidden_states = nn.functional.relu(hidden_states)\n    hidden_states = nn.functional.dropout(hidden")),
      note="one too many")
plant("activation", "whisper", "encoder",
      edit(("nn.functional.gelu(self.conv1(input_features))",
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
      lambda conv, model: setting(weight=nn.Parameter(conv.weight[:, :8].clone()), groups=2)(conv, model),
      note="groups")
plant("settings of a convolution", "convnext", "features.3.1.block.0", weights(lambda w: w.flip(2, 3)),
      note="kernel flipped")
plant("settings of a convolution", "mobilenet", "features.2.block.1.0",
      before(lambda x: F.pad(x, (-1, 1, -1, 1))), note="padding at the other end")

plant("upsampling", "unet", "up.0.scale", setting(align_corners=True), note="align_corners")
plant("upsampling", "unet_large", "up.2.scale", setting(mode="nearest"), note="nearest for bilinear")
plant("upsampling", "unet", "up.1.scale", setting(mode="bicubic"), note="bicubic for bilinear")

plant("gates in another order", "lstm", "rnn",
      order([0, 1, 3, 2], 0, "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"))
plant("gates in another order", "lstm", "rnn", order([1, 0, 2, 3], 0, "weight_hh_l1"), note="of one weight", seed=1)
plant("gates in another order", "gru", "rnn",
      order([1, 0, 2], 0, "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"))
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
plant("causal mask", "mistral", "model",
      edit(("mask_function = create_causal_mask if self.config.sliding_window is None else "
            "create_sliding_window_causal_mask", "mask_function = create_causal_mask")), note="without its window")
plant("causal mask", "transformer", "", edit(("tgt_mask=later", "tgt_mask=None")))
plant("causal mask", "transformer", "", edit((".triu(1)", ".triu(2)")), note="one too late", seed=1)
plant("causal mask", "llama", "model",
      edit(("attention_mask=causal_mask,",
            "attention_mask=causal_mask | torch.ones_like(causal_mask).triu(1).tril(1),")), note="one too late")
plant("causal mask", "whisper", "decoder.layers.1",
      edit(("attention_mask=attention_mask,", "attention_mask=torch.zeros(8, 8, dtype=hidden_states.dtype),")))

plant("mask of padding", "gpt2", "", edit(("attention_mask=attention_mask,", "attention_mask=None,")), note="ignored")
plant("mask of padding", "bert", "",
      edit(("        attention_mask=attention_mask,\n        encoder_attention_mask=encoder_attention_mask,\n      "
            "  embedding",
            "        attention_mask=1 - attention_mask,\n        encoder_attention_mask=encoder_attention_mask,\n  "
            "      embedding")), note="inverted")
plant("mask of padding", "t5", "", edit(("encoder_attention_mask=attention_mask,", "encoder_attention_mask=None,")),
      note="of the encoder, in the decoder")
plant("mask of padding", "encoder", "",
      edit(("src_key_padding_mask=padded", "src_key_padding_mask=padded.to(x.dtype)")),
      note="as numbers that are added")
plant("mask of padding", "encoder_prenorm", "", edit(("src_key_padding_mask=padded", "src_key_padding_mask=None")),
      note="ignored")
plant("mask of padding", "seq2seq", "attend", edit(("mask == 0, -1e9", "mask == 0, 0.")),
      note="zero for minus infinity")
plant("mask of padding", "seq2seq", "",
      edit(("self.attend(state, outputs, mask)", "self.attend(state, outputs, mask.roll(-1, 1))")), note="off by one")
plant("mask of padding", "shared", "", edit(("(self.norm(x)*mask).sum(1)/mask.sum(1)", "self.norm(x).mean(1)")),
      note="ignored in the mean")

plant("positions", "gpt2", "transformer",
      edit(("position_ids = position_ids.unsqueeze(0)", "position_ids = position_ids.unsqueeze(0) + 1")),
      note="off by one")
plant("positions", "gpt2_eager", "transformer",
      edit(("position_ids = position_ids.unsqueeze(0)",
            "position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)")), note="counted without padding")
plant("positions", "llama", "model",
      edit(("position_ids = position_ids.unsqueeze(0)", "position_ids = position_ids.unsqueeze(0) * 2")),
      note="twice as far")
plant("positions", "bert", "embeddings",
      edit(("self.position_embeddings(position_ids)", "self.position_embeddings(position_ids + 1)")), note="off by one")
plant("positions", "shared", "", edit(("torch.arange(tokens.shape[1])", "1 + torch.arange(tokens.shape[1])")),
      note="off by one")
plant("positions", "encoder_prenorm", "positions", edit(("self.table[:x.shape[1]]", "self.table[1:x.shape[1] + 1]")),
      note="off by one")
plant("positions", "t5", "decoder.block.0.layer.0.SelfAttention", setting(relative_attention_max_distance=9),
      note="distances")
plant("positions", "vit", "vit.embeddings",
      weights(lambda p: torch.cat([p[:, :1], p[:, 1:].view(1, 4, 4, -1).transpose(1, 2).flatten(1, 2)], 1),
              "position_embeddings"), note="rows and columns exchanged")


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
plant("heads split in another order", "llama", "model.layers.1.self_attn",
      edit((split,
            "query_states = self.q_proj(hidden_states).view(*input_shape, self.head_dim, -1).permute(0, 3, 1, 2)")))
plant("heads split in another order", "vit", "vit.layers.0.attention",
      edit((split,
            "query_states = self.q_proj(hidden_states).view(*input_shape, self.head_dim, -1).permute(0, 3, 1, 2)")))
plant("heads split in another order", "vit_own", "blocks.0.attn",
      edit(("(weights @ v).transpose(1, 2)", "(weights @ v)")), note="joined without a transpose")
plant("heads split in another order", "shared", "block.attn",
      edit((".view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)",
            ".view(batch, length, self.heads, 3, -1).permute(3, 0, 2, 1, 4)")),
      note="query, key and value within a head")
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

plant("residual", "llama", "model.layers.1",
      edit(("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states",
            "hidden_states = self.mlp(hidden_states)")), note="forgotten")
plant("residual", "llama_large", "model.layers.2",
      edit(("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states",
            "hidden_states = self.mlp(hidden_states)\n    hidden_states = 0.99 * residual + hidden_states")),
      note="scaled")
plant("residual", "resnet18", "layer3.1", edit(("out += identity", "pass")), note="forgotten")
plant("residual", "mixer", "blocks.2", edit(("return x + self.channels", "return self.channels")), note="forgotten")
plant("residual", "efficientnet", "features.3.1", edit(("result += input", "pass")), note="forgotten")
plant("residual", "cnn", "stages.1", edit(("self.act(y + self.shortcut(x))", "self.act(y) + self.shortcut(x)")),
      note="after the activation")
plant("residual", "gpt2", "transformer.h.1",
      edit(("hidden_states = attn_output + residual", "hidden_states = attn_output * 0.9 + residual"), on_layer=True),
      note="scaled")
plant("residual", "whisper", "encoder.layers.1",
      edit(("hidden_states = self.final_layer_norm(hidden_states)",
            "hidden_states = self.final_layer_norm(hidden_states); residual = hidden_states")),
      note="of the normed values")
plant("residual", "bert", "encoder.layer.1.attention.output",
      edit(("hidden_states + input_tensor", "hidden_states + 1.01 * input_tensor")), note="scaled")
plant("residual", "t5", "decoder.block.0.layer.1",
      edit(("hidden_states + self.dropout(attention_output)",
            "normed_hidden_states + self.dropout(attention_output)")), note="of the normed values")
plant("residual", "convnext", "features.5.4", constant(.5, "layer_scale"), note="layer scale not loaded")
plant("residual", "efficientnet", "features.2.0.block.2", edit(("return scale * input", "return input")),
      note="squeeze and excitation forgotten")

plant("norm before or after", "encoder", "encoder.layers.1", setting(norm_first=True))
plant("norm before or after", "encoder_prenorm", "encoder.layers.2", setting(norm_first=False))
plant("norm before or after", "vit_own", "blocks.1",
      edit(("x + self.drop(self.mlp(self.norm2(x)))", "self.norm2(x + self.drop(self.mlp(x)))")))
plant("norm before or after", "vit", "vit.layers.2",
      edit(("residual = hidden_states\n    hidden_states = self.layernorm_after(hidden_states)",
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

plant("layer skipped", "bert", "encoder",
      edit(("for i, layer_module in enumerate(self.layer)",
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
plant("order of a concatenation", "vit_own", "",
      edit(("torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)",
            "torch.cat([x, self.token.expand(len(x), -1, -1)], dim=1)")), note="the class token last")

plant("parameter of a container", "vit_own", "", constant(0, "token"), note="class token not loaded")
plant("parameter of a container", "vit", "vit.embeddings", times(1.1, "cls_token"), note="class token")
plant("parameter of a container", "convnext", "features.1.1", times(1.01, "layer_scale"), note="layer scale")

plant("last position only", "llama", "model.layers.1.self_attn.o_proj", after(last_position))
plant("last position only", "gpt2", "transformer.h.0.mlp", after(last_position))
plant("last position only", "lstm", "norm", after(last_position))
plant("last position only", "qwen2", "model.layers.1.mlp.down_proj", after(last_position))
plant("last position only", "seq2seq", "",
      edit(("context = self.attend(state, outputs, mask)",
            "context = self.attend(state, outputs, mask)*(1.05 if step == 5 else 1)")), note="last step")

plant("one sample only", "llama", "model.layers.2.mlp", after(second_sample))
plant("one sample only", "bert", "encoder.layer.0.output.dense", after(second_sample))
plant("one sample only", "vit_own_large", "blocks.5", after(second_sample))
plant("one sample only", "densenet_large", "features.transition1.norm", after(second_sample))
plant("one sample only", "gru", "rnn", after(second_sample))
plant("one sample only", "resnet18", "layer2.1", after(second_sample))
plant("one sample only", "vit_own", "blocks.1.mlp.fc1", after(second_sample))
plant("one sample only", "lstm", "",
      edit(("output, state = self.rnn(",
            "state = tuple(torch.tensor([0, 0, .1]).to(self.head.weight).view(3, 1).expand(2, 3, 40).contiguous() "
            "for _ in range(2))\n    output, state = self.rnn(")), note="state left from another batch")

plant("rounded inside", "llama", "model.layers.0.mlp",
      edit(("self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))",
            "self.down_proj((self.act_fn(self.gate_proj(x)) * self.up_proj(x)).bfloat16().to(x.dtype))")))
plant("rounded inside", "llama", "model.layers.1.input_layernorm",
      edit(("hidden_states.to(torch.float32)", "hidden_states.to(torch.bfloat16).to(input_dtype)")), note="a norm",
      seed=1)
plant("rounded inside", "gpt2_eager", "transformer.h.1.attn",
      eager(("softmax(attn_weights, dim=-1)", "softmax(attn_weights, dim=-1).bfloat16().to(value.dtype)")),
      note="weights of attention")
plant("rounded inside", "resnet18_large", "layer2.0.conv1", after(bfloat))
plant("rounded inside", "mixer", "blocks.1.places.fc2", after(lambda y: y.half().to(y.dtype)))
plant("rounded inside", "unet", "up.0",
      edit(("torch.cat([kept, x], dim=1)", "torch.cat([kept.bfloat16().to(x.dtype), x], dim=1)")),
      note="what was kept")
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
plant("hook left on", "bert", "encoder.layer.1.intermediate",
      lambda layer, m: layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0].clamp(-1, 1),)) and None,
      note="on its input")

plant("another shape", "resnet18", "fc", instead(lambda: nn.Linear(512, 21)))
plant("another shape", "llama", "lm_head",
      lambda head, m: setattr(head, "weight", nn.Parameter(F.pad(head.weight, (0, 0, 0, 27)))),
      note="vocabulary filled up")
plant("another shape", "densenet", "features.pool0", instead(lambda: nn.MaxPool2d(3, 1, 1)), note="stride")
plant("another shape", "resnet18_large", "layer4.0",
      lambda block, model: [setattr(conv, "stride", (1, 1)) for conv in (block.conv1, block.downsample[0])] and None,
      answer="layer4.0.conv1", note="stride")
plant("another shape", "vit_own", "",
      edit(("x = self.positions(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1))",
            "x = self.positions(torch.cat([self.token.expand(len(x), 2, -1), x], dim=1))")), note="two class tokens")

plant("not a number", "gpt2_eager", "transformer.h.1.attn",
      eager(("attn_weights + attention_mask", "attn_weights.masked_fill(attention_mask < 0, float('-inf'))")))
plant("not a number", "efficientnet", "features.2.1.block.0.1", lambda norm, m: norm.running_var[3].fill_(-1))
plant("not a number", "llama", "model.layers.1.mlp.up_proj", lambda linear, m: linear.weight[5, 5].fill_(float("nan")))


# Each must matter, and its answer must be right

class Doubled(TorchFunctionMode):
    "Whoever asks for float32 gets float64."
    def __torch_function__(self, function, types, args=(), kwargs=None):
        def widen(value): return torch.float64 if value is torch.float32 else value
        if function is torch.Tensor.float: function = torch.Tensor.double
        return function(*map(widen, args), **{name: widen(value) for name, value in (kwargs or {}).items()})


def numbers(value) -> list[torch.Tensor]:
    "All tensors of real numbers in what a model or a layer returned."
    if torch.is_tensor(value): return [value.double()] if value.is_floating_point() else []
    if isinstance(value, dict): value = list(value.values())
    return [tensor for item in value for tensor in numbers(item)] if isinstance(value, list | tuple) else []


def double(value):
    if torch.is_tensor(value): return value.double() if value.is_floating_point() else value
    if isinstance(value, dict): return {name: double(item) for name, item in value.items()}
    return type(value)(map(double, value)) if isinstance(value, list | tuple) else value


@torch.no_grad()
def run(model, args, kwargs, wide: bool = False) -> list[torch.Tensor]:
    "What a model returns, from one random state."
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not wide: return numbers(model(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
        with Doubled(): return numbers(model.double()(*double(args), **double(kwargs)))


def size(value: torch.Tensor) -> float: return value.square().mean().sqrt().item()


def matters(reference, candidate, args, kwargs) -> tuple[float, float]:
    "How far the candidate's output lies from the reference's in float64, and how many times what float32 does to that."
    narrow = run(reference, args, kwargs)
    wide, other = run(reference, args, kwargs, True), run(candidate, args, kwargs, True)
    if [t.shape for t in wide] != [t.shape for t in other]: return inf, inf
    if not all(t.isfinite().all() for t in other): return inf, inf
    changes = [(size(b - a)/size(a), size(b - a)/max(size(c - a), 1e-300)) for a, b, c in zip(wide, other, narrow)]
    return max(changes, key=lambda change: min(change[0]/1e-6, change[1]/30))


@torch.no_grad()
def first_wrong(reference, candidate, args, kwargs) -> str | None:
    "The first layer to finish that, given in float64 what the reference gave it, returns something else."
    calls, handles = [], []

    def enters(layer, args, kwargs): layer.given = [*getattr(layer, "given", []), copy.deepcopy((args, kwargs))]

    for name, layer in reference.named_modules():
        def leaves(layer, inputs, out, name=name): calls.append((name, *layer.given.pop(), copy.deepcopy(numbers(out))))
        handles.append(layer.register_forward_pre_hook(enters, with_kwargs=True))
        handles.append(layer.register_forward_hook(leaves))
    run(reference, args, kwargs, True)
    for handle in handles: handle.remove()
    candidate.double()
    there = dict(candidate.named_modules(remove_duplicate=False))
    for name, args, kwargs, expected in calls:
        if name not in there: continue
        found = run(there[name], args, kwargs, True)
        if [t.shape for t in found] != [t.shape for t in expected]: return name
        if not all(size(a - b) <= 1e-11*size(b) for a, b in zip(found, expected)): return name


def objection(fault: Fault) -> tuple[str, float, float]:
    "Why a fault does not count, or nothing; how much it changes, and how many times what float32 does."
    *made, answer = fault.make()
    change, ratio = matters(*made)
    if not (change >= 1e-6 and ratio >= 30): return "too weak", change, ratio
    found = first_wrong(*made)
    return "" if found in answer else f"the first wrong layer is {found!r}, and not in {answer}", change, ratio


def main():
    torch.set_num_threads(1)
    chosen = [fault for fault in faults() if any(word in f"{fault.kind} {fault.name}" for word in sys.argv[1:] or [""])]
    failed, start = 0, time.perf_counter()
    for fault in chosen:
        try: why, change, ratio = objection(fault)
        except Exception as error: why, change, ratio = f"{type(error).__name__}: {str(error)[:300]}", 0, 0
        failed += bool(why)
        if why or sys.argv[1:]: print(f"{change:.1e} {ratio:8.3g} times  {fault.kind} | {fault.name}  {why}")
    took = time.perf_counter() - start
    for title, name_of in {"kind": lambda fault: fault.kind, "net": lambda fault: fault.name.split()[0]}.items():
        print(f"\nfaults  {title}")
        for name, count in Counter(map(name_of, chosen)).items(): print(f"{count:6}  {name}")
    kinds = {fault.kind for fault in chosen}
    print(f"\n{len(chosen)} faults of {len(kinds)} kinds; {failed} of them do not count; {took:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__": main()

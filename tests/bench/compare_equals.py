"""Pairs of models that are equal but for arithmetic, on which `hl.compare` must not raise a false alarm.

    python -m tests.bench.compare_equals [part of a kind or name …]

checks each of them in float64: outputs agree to 1e-9 (root mean square, relative), to 2e-6 where weights were folded in
float32, and to 50 times the last bit where one side runs in low precision."""
import contextlib
import copy
import dataclasses
import math
import sys
import time
import warnings
from collections import Counter

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

from tests.bench.compare_nets import nets, padding
from tests.bench.compare_ports import (
    Around,
    Attention,
    Encoder,
    Equal,
    HandBasic,
    HandLlama,
    HandResNet,
    Pairs,
    Seq2Seq,
    Tagger,
    Translator,
    Twin,
    UNet,
    alike_by_key,
    flat,
    fused_encoders,
    gain,
    google,
    hand_resnet_rules,
    images,
    layer_names,
    llama,
    llama_rules,
    load,
    milesial,
    move,
    ports,
    resnet_pairing,
    ruled,
    small_cnn,
    stack,
    stir,
    terse,
    tokens,
)

arithmetic = Pairs()


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


def equals() -> list[Equal]: return [*arithmetic, *ports]


# The check

class Doubled(TorchFunctionMode):
    "Lets models that cast to a smaller dtype inside compute in float64 as well."
    small = {torch.float32, torch.bfloat16, torch.float16}

    def __torch_function__(self, f, types, args=(), kwargs=None):
        if f in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16): return args[0].double()
        def change(x): return torch.float64 if isinstance(x, torch.dtype) and x in self.small else x
        return f(*map(change, args), **{k: change(x) for k, x in (kwargs or {}).items()})


def tensors(x):
    "The tensors of an output, in order; caches and other objects are left out."
    if torch.is_tensor(x): return [x]
    if isinstance(x, dict): return [t for v in x.values() for t in tensors(v)]
    if isinstance(x, (tuple, list)): return [t for v in x for t in tensors(v)]
    if dataclasses.is_dataclass(x):
        return [t for field in dataclasses.fields(x) for t in tensors(getattr(x, field.name))]
    return []


def apart(a, b) -> float:
    "The difference, root mean square, relative to the first; infinite if NaN or infinities are elsewhere."
    if a.shape != b.shape: return math.inf
    kind = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(kind), b.to(kind)
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a[~finite].nan_to_num(7), b[~finite].nan_to_num(7)):
        return math.inf
    if not finite.any(): return 0.
    return ((a - b)[finite].abs().square().mean().sqrt()/a[finite].abs().square().mean().sqrt().clamp(min=1e-30)).item()


def run(model, args, kwargs):
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(3)
    with torch.no_grad() if not model.training else contextlib.nullcontext(): return tensors(model(*args, **kwargs))


def doubled(args, kwargs):
    from torch.utils._pytree import tree_map
    return tree_map(lambda x: x.double() if torch.is_tensor(x) and x.is_floating_point() else x, (args, kwargs))


def widen(model):
    "All to float64, complex numbers too."
    model.double()
    for m in model.modules():
        for name, p in m.named_parameters(recurse=False):
            if p.is_complex(): setattr(m, name, nn.Parameter(p.to(torch.complex128)))
    return model


def difference(equal: Equal) -> float:
    "How far the outputs of a pair are apart, in float64 where the pair is not about low precision."
    a, b, args, kwargs, pairing = equal.make()
    if equal.within > 1e-3: return max(apart(x, y) for x, y in zip(run(a, args, kwargs), run(b, args, kwargs)))
    a, b = widen(a), widen(b)
    args, kwargs = doubled(args, kwargs)
    compiled = equal.kind == "compiled"
    try:
        torch.set_default_dtype(torch.float64)
        with contextlib.nullcontext() if compiled else Doubled():
            one, two = run(a, args, kwargs), run(b, args, kwargs)
    finally: torch.set_default_dtype(torch.float32)
    assert one and two, "no output"
    return max(apart(x, y) for x, y in zip(one, two))


def wrong_names(equal: Equal) -> list[str]:
    "What in the pairing is no layer of its model, or is never called and yet said to have a partner."
    a, b, args, kwargs, pairing = equal.make()
    ran, problems = (set(), set()), []
    for model, names in zip((a, b), ran):
        handles = [m.register_forward_hook(lambda m, i, o, name=name, names=names: names.add(name))
                   for name, m in model.named_modules(remove_duplicate=False)]
        run(model, args, kwargs)
        for handle in handles: handle.remove()
    for name, partners in (pairing or {}).items():
        if name not in ran[0]: problems.append(f"{name} is not called in the reference")
        known = {x for x, _ in b.named_modules(remove_duplicate=False)}
        if partners - {None} - known: problems.append(f"{name}: {partners} are no layers of the candidate")
        if None not in partners and not partners & ran[1]:
            problems.append(f"{name}: none of {partners} is called in the candidate")
    return problems


def main(parts):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start, bad, counts, known = time.perf_counter(), 0, Counter(), Counter()
    for equal in equals():
        if parts and not any(p in f"{equal.kind}: {equal.name}" for p in parts): continue

        try:
            found = difference(equal)
            problems = wrong_names(equal) if equal.kind != "compiled" else []
            if not found <= equal.within: problems.append(f"{found:.2e} apart, not within {equal.within:.0e}")
        except Exception as error: found, problems = math.nan, [f"{type(error).__name__}: {error}"[:300]]
        counts[equal.kind] += 1
        with contextlib.suppress(Exception): known[equal.kind] += len(equal.make()[-1] or ())
        bad += bool(problems)
        if problems or parts:
            print(f"{equal.kind}: {equal.name}: {found:.1e}", *problems, sep="\n    ")
    for kind, n in counts.items():
        print(f"{n:4} {kind}, {known[kind]} partners known" if known[kind] else f"{n:4} {kind}")
    took = time.perf_counter() - start
    print(f"{counts.total()} pairs, {known.total()} known partners, {bad} not as said, {took:.0f} s")
    return bad


if __name__ == "__main__": sys.exit(bool(main(sys.argv[1:])))

"""Pairs of models of one arithmetic in two structures, as a port or a refactoring leaves them, with the known partners.

A pairing has the layers with parameters and the main containers, where the answer is clear. Where layers are fused or
split, the nearest common parent is right too, and None says that "no partner" is right."""
import copy
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

folded = 2e-6  # how far weights that were folded in float32 may be from the others, measured in float64


@dataclass
class Equal:
    "Two models, equal but for arithmetic. `make()` gives (reference, candidate, args, kwargs, pairing or None)."
    kind: str
    name: str
    make: Callable
    within: float = 1e-9


class Pairs(list):
    "A list of pairs to which functions are added by a decorator; each begins from a seed of its own."
    def __call__(self, kind, name, within=1e-9, *given):
        def add(f):
            def make():
                torch.manual_seed(crc32(name.encode()))
                return f(*given)
            self.append(Equal(kind, name, make, within))
            return f
        return add


ports = Pairs()


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


def alike(a, b):
    "The pairing of two models that have the same children in the same order, under other names."
    found = {}
    def walk(a, b, name_a, name_b):
        if name_a and has_parameters(a) and runs(a): found[name_a] = {name_b}
        for (key_a, child_a), (key_b, child_b) in zip(a.named_children(), b.named_children(), strict=True):
            walk(child_a, child_b, f"{name_a}.{key_a}".strip("."), f"{name_b}.{key_b}".strip("."))
    walk(a, b, "", "")
    return found


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


@ports("renamed", "mlp with words for numbers")
def _():
    a = stir(stack(16, 32, 32, 8))
    twin = Twin(a)
    b = nn.Sequential(OrderedDict(zip(["expand", "act_a", "mix", "act_b", "head"], twin.model)))
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


@ports("renamed", "mlp of equal layers, as initialized")
def _():
    a = stack(*[16]*9, act=nn.Tanh)
    twin = Twin(a)
    b = nn.Sequential(OrderedDict((f"step_{i}", m) for i, m in enumerate(twin.model)))
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


@ports("flattened", "cnn of blocks into one Sequential")
def _():
    a = stir(small_cnn())
    twin = Twin(a)
    b = nn.Sequential(*flat(twin.model))
    return a, b, (images(),), {}, twin.pairing(b)


@ports("flattened", "mlp nested three deep into one Sequential")
def _():
    a = nn.Sequential(nn.Sequential(nn.Sequential(stack(12, 24, 24), nn.ReLU()),
                                    nn.Sequential(stack(24, 24, 12), nn.GELU())), nn.Linear(12, 4))
    twin = Twin(stir(a))
    b = nn.Sequential(*flat(twin.model))
    return a, b, (torch.randn(3, 5, 12),), {}, twin.pairing(b)


@ports("flattened", "vgg11 of torchvision into one Sequential")
def _():
    a = stir(torchvision.models.vgg11(num_classes=10, dropout=.1), .05)
    a.classifier = nn.Sequential(nn.Linear(512*49, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10))
    twin = Twin(a.eval())
    b = nn.Sequential(*twin.model.features, twin.model.avgpool, nn.Flatten(), *twin.model.classifier).eval()
    return a, b, (images(1),), {}, twin.pairing(b)


@ports("nested", "mlp in pairs")
def _():
    a = stir(stack(16, 32, 32, 32, 8))
    twin = Twin(a)
    m = list(twin.model)
    b = nn.Sequential(nn.Sequential(*m[:2]), nn.Sequential(*m[2:4]), nn.Sequential(*m[4:]))
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


@ports("nested", "flat cnn into body and head")
def _():
    a = nn.Sequential(*flat(stir(small_cnn())))
    twin = Twin(a)
    m = list(twin.model)
    b = nn.Sequential(OrderedDict(body=nn.Sequential(nn.Sequential(*m[:4]), nn.Sequential(*m[4:8]),
                                                     nn.Sequential(*m[8:12])), head=nn.Sequential(*m[12:])))
    return a, b, (images(),), {}, twin.pairing(b)


class Around(nn.Module):
    "A model as the only child of another, as wrappers for training leave it."
    def __init__(self, model):
        super().__init__()
        self.module = model

    def forward(self, *args, **kwargs): return self.module(*args, **kwargs)


@ports("nested", "resnet18 in three wrappers")
def _():
    a = stir(torchvision.models.resnet18(num_classes=10), .05)
    twin = Twin(a)
    b = Around(Around(Around(twin.model))).eval()
    return a, b, (images(1, 48),), {}, twin.pairing(b)


@ports("nested", "gpt2 in a wrapper")
def _():
    a, args, kwargs = gpt2()
    twin = Twin(a)
    b = Around(twin.model).eval()
    return a, b, args, kwargs, twin.pairing(b)


@ports("inserted", "Identity in a cnn shifts the numbers")
def _():
    a = nn.Sequential(*flat(stir(small_cnn())))
    twin = Twin(a)
    m = list(twin.model)
    b = nn.Sequential(m[0], nn.Identity(), *m[1:5], nn.Identity(), nn.Identity(), *m[5:])
    return a, b.eval(), (images(),), {}, twin.pairing(b)


@ports("inserted", "Dropout in an mlp of equal layers")
def _():
    a = stack(*[20]*6).eval()
    twin = Twin(a)
    b = nn.Sequential(*[x for m in twin.model for x in ([m, nn.Dropout(.3)] if isinstance(m, nn.ReLU) else [m])]).eval()
    return a, b, (torch.randn(6, 20),), {}, twin.pairing(b)


@ports("inserted", "Identity first in each block")
def _():
    a = stir(nn.Sequential(*[stack(16, 32, 16, act=nn.GELU) for _ in range(4)]))
    twin = Twin(a)
    b = nn.Sequential(*[nn.Sequential(nn.Identity(), *block) for block in twin.model])
    return a, b, (torch.randn(3, 16),), {}, twin.pairing(b) | {str(i): {str(i)} for i in range(4)}


@ports("removed", "Dropout left out of an mlp")
def _():
    a = stir(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(.2), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(.2),
                           nn.Linear(32, 4)))
    twin = Twin(a)
    b = nn.Sequential(*[m for m in twin.model if not isinstance(m, nn.Dropout)]).eval()
    return a, b, (torch.randn(5, 16),), {}, twin.pairing(b)


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


@ports("list against attributes", "four Linear layers")
def _():
    a = stir(Listed([nn.Linear(16, 16) for _ in range(4)]))
    twin = Twin(a)
    b = Attributes(twin.model.layers)
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


@ports("list against attributes", "four stacks, as initialized")
def _():
    a = Attributes([stack(16, 24, 16) for _ in range(4)])
    twin = Twin(a)
    b = Listed([twin.model.first, twin.model.second, twin.model.third, twin.model.fourth])
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b)


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


@ports("functional against modules", "modules for the functions of a cnn")
def _():
    a = stir(Functional([nn.Conv2d(a, b, 3, padding=1) for a, b in [(3, 8), (8, 8), (8, 8)]], nn.Linear(8, 10)))
    twin = Twin(a)
    b = nn.Sequential(*[x for c in twin.model.convs for x in (c, nn.ReLU(), nn.MaxPool2d(2))], nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), twin.model.head)
    return a, b, (images(),), {}, twin.pairing(b)


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


@ports("renamed", "encoder by hand")
def _():
    a = stir(Encoder(google))
    b = move(a, Encoder(terse)).eval()
    return a, b, (tokens(2, 9),), {}, alike_by_key(a, b)


@ports("renamed", "encoder by hand, as initialized, four layers")
def _():
    a = Encoder(terse, depth=4).eval()
    b = move(a, Encoder(google, depth=4)).eval()
    return a, b, (tokens(2, 9),), {}, alike_by_key(a, b)


@ports("renamed", "encoder and decoder by hand")
def _():
    a = stir(Translator())
    b = move(a, Translator(google)).eval()
    return a, b, (tokens(2, 9), tokens(2, 7)), {}, alike_by_key(a, b)


@ports("branches swapped", "v, k, q in an encoder")
def _():
    a = stir(Encoder(google))
    b = move(a, Encoder(google, order="vkq")).eval()
    return a, b, (tokens(2, 9),), {}, alike_by_key(a, b)


@ports("branches swapped", "k, q, v under other names, as initialized")
def _():
    a = Encoder(google).eval()
    b = move(a, Encoder(terse, order="kqv")).eval()
    return a, b, (tokens(2, 9),), {}, alike_by_key(a, b)


@ports("branches swapped", "v, q, k under other names, with cross attention")
def _():
    a = stir(Translator(google))
    b = move(a, Translator(terse, order="vqk")).eval()
    return a, b, (tokens(2, 9), tokens(2, 7)), {}, alike_by_key(a, b)


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


@ports("branches swapped", "branches of an inception block")
def _():
    a = stir(Inceptions())
    b = move(a, Inceptions(order=("five", "one", "three"))).eval()
    return a, b, (images(2, 16),), {}, alike_by_key(a, b)


@ports("branches swapped", "branches of an inception block under other names")
def _():
    a = stir(Inceptions())
    b = move(a, Inceptions(dict(one="branch0", three="branch1", five="branch2", stem="conv_in", first="mixed_a",
                                second="mixed_b", narrow="squeeze", head="logits"),
                           order=("three", "five", "one"))).eval()
    return a, b, (images(2, 16),), {}, alike_by_key(a, b)


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


@ports("fused and split", "a Linear of an mlp into halves")
def _():
    a = stir(stack(16, 32, 32, 8))
    twin = Twin(a)
    b = nn.Sequential(*twin.model[:2], Halves(twin.model[2]), *twin.model[3:])
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b) | {"2": {"2"}}


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


@ports("fused and split", "a head into boxes and scores")
def _():
    a = stir(Embedded(stack(16, 32, 32)))
    twin = Twin(a)
    b = Embedded(twin.model.body, twin.model.head)
    return a, b, (torch.randn(4, 16),), {}, twin.pairing(b) | {"head": {"", None, "boxes", "scores"}}


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


@ports("renamed", "U-Net")
def _():
    a = stir(UNet())
    b = move(a, UNet(milesial)).eval()
    return a, b, (images(1),), {}, alike_by_key(a, b)


@ports("renamed", "U-Net, as initialized")
def _():
    a = UNet(milesial).eval()
    b = move(a, UNet()).eval()
    return a, b, (images(1),), {}, alike_by_key(a, b)


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


@ports("renamed", "seq2seq of GRUs")
def _():
    a = stir(Seq2Seq())
    b = move(a, Seq2Seq(dict(source="src", target="tgt", reader="encoder_rnn", writer="decoder_rnn", align="attn",
                             head="generator"))).eval()
    return a, b, (tokens(2, 9), tokens(2, 7)), {}, alike_by_key(a, b)


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


@ports("renamed", "mlp mixer")
def _():
    a = stir(Mixer())
    b = move(a, Mixer(dict(patch="stem", blocks="layers", n1="norm_token", t1="token_in", t2="token_out",
                           n2="norm_channel", c1="channel_in", c2="channel_out", head="fc"))).eval()
    return a, b, (images(2, 24),), {}, called(alike_by_key(a, b), r"blocks\.\d")


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


@ports("renamed", "two towers with a shared head")
def _():
    a = stir(Towers())
    b = move(a, Towers(dict(left="user", right="item", share="project"))).eval()
    return a, b, (torch.randn(4, 12), torch.randn(4, 12)), {}, alike_by_key(a, b)


@ports("branches swapped", "two towers in the other order")
def _():
    a = stir(Towers())
    b = move(a, Towers(dict(left="user", right="item"), order=("right", "left"))).eval()
    return a, b, (torch.randn(4, 12), torch.randn(4, 12)), {}, called(alike_by_key(a, b), "share")


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

def eager(config, **kwargs):
    return config(attn_implementation="eager", **kwargs)


def llama(**kwargs):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = eager(LlamaConfig, vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                   num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, use_cache=False, **kwargs)
    return stir(LlamaForCausalLM(config)), (tokens(2, 9),), {}


def gpt2(**kwargs):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = eager(GPT2Config, vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False,
                   bos_token_id=1, eos_token_id=2, **kwargs)
    return stir(GPT2LMHeadModel(config)), (tokens(2, 9),), {}


def bert(**kwargs):
    from transformers import BertConfig, BertModel
    config = eager(BertConfig, vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48, max_position_embeddings=64, **kwargs)
    return stir(BertModel(config)), (tokens(2, 9),), {}


def vit(**kwargs):
    from transformers import ViTConfig, ViTModel
    config = eager(ViTConfig, image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48, **kwargs)
    return stir(ViTModel(config)), (images(),), {}


def t5(**kwargs):
    from transformers import T5Config, T5ForConditionalGeneration
    config = eager(T5Config, vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                   decoder_start_token_id=0, use_cache=False, **kwargs)
    return stir(T5ForConditionalGeneration(config)), (), dict(input_ids=tokens(2, 9), decoder_input_ids=tokens(2, 7))


class Rms(nn.Module):
    def __init__(self, wide, eps=1e-6):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(wide)), eps

    def forward(self, x): return self.gain*(x*torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


def turn(x):
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
        k, v = (t.repeat_interleave(self.heads//self.groups, 1) for t in (turn(k), v))
        x = x + self.wo(attend(turn(q), k, v, causal=True).transpose(1, 2).flatten(2))
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
    b = Phi3ForCausalLM(eager(Phi3Config, vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
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

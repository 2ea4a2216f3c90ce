"""Errors that are planted in the models of error_nets.py, on which `hl.explain_errors` is tried: 400 of the kinds that
have a repair, and 100 of those that have none.

A plant is ONE change to a healthy model or to its inputs, so the truth is known: the layer that was changed, and the
shapes of the output before. Plants are written as lists of a network, layers (with braces for a choice), and a change;
the layer and the size of the change are drawn at random, from a seed of their own. Of what the lists offer, QUOTAS says
how many of a kind and a source are drawn. Which layer raises is not written down: the traceback knows it, see
`raised_in`. `python -m tests.bench.bench_explain --plain` checks that all raise, and that the healthy models run."""
import importlib.util
import inspect
import itertools
import linecache
import random
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.error_nets import nets, source_of


@dataclass
class Planted:
    "An error that is planted."
    kind: str
    where: str # The layer that is changed; "" is the whole model, its inputs, or the code around it
    name: str
    make: Callable[[], tuple] = field(repr=False) # (broken model, args, kwargs, shapes of the healthy output[, use])
    source: str = ""
    places: frozenset[str] | None = None # Right names of the layer where no layer raises; None: the traceback tells

    @property
    def has_repair(self) -> bool: return self.kind not in WITHOUT


WITHOUT = "device", "index", "batch norm", "in-place", "second backward", "no gradient"
ANYWHERE: frozenset[str] = frozenset({"*"}) # There is no layer that is to blame: any answer is right


class Rewritten(ValueError):
    "A release of a library has another text than the one that the error is planted in."


def shapes_of(output: Any) -> list[tuple[int, ...]]:
    "The shapes of all tensors in what a model returns."
    if torch.is_tensor(output): return [tuple(output.shape)]
    if isinstance(output, dict): output = output.values()
    elif not isinstance(output, list | tuple): return []
    return [shape for part in output for shape in shapes_of(part)]


def raised_in(error: BaseException, model: nn.Module) -> set[str]:
    """All names of the innermost layer whose forward raised.

    It is the `self` of the last frame of `torch.nn.Module._call_impl` in the traceback whose layer belongs to the
    model. Without one the error is around the model: {""}."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "_call_impl"]
    names: dict[int, set[str]] = {}
    for name, layer in model.named_modules(remove_duplicate=False): names.setdefault(id(layer), set()).add(name)
    for frame in reversed(frames):
        found = names.get(id(frame.f_locals.get("self")))
        if found: return found
    return {""}


# How an error is planted

@dataclass
class Site:
    "Where an error is planted."
    model: nn.Module
    name: str
    args: list
    kwargs: dict
    rng: random.Random

    @property
    def layer(self) -> Any: return self.model.get_submodule(self.name)

    def replace(self, new: nn.Module): self.model.set_submodule(self.name, new.train(self.layer.training))


@dataclass
class Change:
    "What is changed."
    note: str
    do: Callable[[Site], None]
    use: Callable | None = None # The code that raises, where that is not a pass through the model


plants: list[tuple] = []


def expand(pattern: str) -> list[str]:
    "All names that a pattern with braces stands for: layer{1,2}.conv."
    parts = [part.split(",") if i % 2 else [part] for i, part in enumerate(re.split(r"\{(.*?)\}", pattern))]
    return ["".join(words) for words in itertools.product(*parts)]


def plant(kind: str, net: str, where: str, change: Change, times: int = 1, places: set[str] | None = None,
          train: bool = False, size: int | None = None):
    """Offers an error so many times, in different layers where the pattern has several.

    `train` puts the model in train mode, and with `size` the healthy inputs are pictures of this size."""
    plants.append((kind, net, where, change, times, places, train, size))


def offered(seed: str) -> list[Planted]:
    "All that can be drawn; the seed says in which layers, and by how much they change."
    return [one for each in plants for one in planted(seed, *each)]


def planted(seed: str, kind: str, net: str, where: str, change: Change, times: int, places: set[str] | None,
            train: bool, size: int | None) -> Iterator[Planted]:
    names = expand(where)
    random.Random(crc32(f"{seed}{kind} {net} {where} {change.note}".encode())).shuffle(names)
    for i in range(times):
        name = names[i % len(names)]
        title = f"{net}{' ' if name else ''}{name}: {change.note}"
        if i >= len(names): title += f" ({i//len(names) + 1})"
        right = None if places is None else frozenset(place.replace("@", name) for place in places)
        make = planter(net, name, change, seed + title, train, size)
        yield Planted(kind, name, title, make, source_of(net), right)


def planter(net: str, name: str, change: Change, title: str, train: bool, size: int | None) -> Callable[[], tuple]:
    def make():
        model, args, kwargs = nets[net]()
        model.train(train)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(crc32(title.encode()))
            if size: args = (torch.randn(2, 3, size, size),)
            shapes = shapes_of(model(*args, **kwargs))
            site = Site(model, name, list(args), dict(kwargs), random.Random(crc32(title.encode())))
            change.do(site)
        broken = site.model, tuple(site.args), site.kwargs, shapes
        return (*broken, change.use) if change.use else broken
    return make


# Changes to layers

def fresh(*shape: int) -> nn.Parameter: return nn.Parameter(.1*torch.randn(*shape))


def resize(layer: Any, ins: int | None = None, outs: int | None = None) -> nn.Module | None:
    "Gives a layer other sizes and new weights, or returns a new layer."
    kind = type(layer).__name__
    if isinstance(layer, nn.Linear):
        ins, outs = ins or layer.in_features, outs or layer.out_features
        layer.weight, layer.in_features, layer.out_features = fresh(outs, ins), ins, outs
        if layer.bias is not None: layer.bias = fresh(outs)
    elif isinstance(layer, nn.modules.conv._ConvNd):
        ins, outs = ins or layer.in_channels, outs or layer.out_channels
        groups = layer.groups
        shape = (ins, outs//groups) if layer.transposed else (outs, ins//groups)
        layer.weight, layer.in_channels, layer.out_channels = fresh(*shape, *layer.kernel_size), ins, outs
        if layer.bias is not None: layer.bias = fresh(outs)
    elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
        layer.num_features = ins
        layer.weight, layer.bias = fresh(ins), fresh(ins)
        layer.running_mean, layer.running_var = torch.zeros(ins), torch.ones(ins)
    elif isinstance(layer, nn.LayerNorm):
        layer.normalized_shape, layer.weight = (ins,), fresh(ins)
        if layer.bias is not None: layer.bias = fresh(ins)
    elif isinstance(layer, nn.GroupNorm):
        layer.num_channels, layer.weight, layer.bias = ins, fresh(ins), fresh(ins)
    elif isinstance(layer, nn.Embedding):
        rows, width = ins or layer.num_embeddings, outs or layer.embedding_dim
        layer.num_embeddings, layer.embedding_dim, layer.weight = rows, width, fresh(rows, width)
    elif kind == "Conv1D":  # of transformers: a linear layer whose weight is the other way round
        ins, outs = ins or layer.nx, outs or layer.nf
        layer.nx, layer.nf, layer.weight, layer.bias = ins, outs, fresh(ins, outs), fresh(outs)
    elif isinstance(layer, nn.RNNBase):
        return type(layer)(ins or layer.input_size, outs or layer.hidden_size, layer.num_layers, layer.bias,
                           layer.batch_first, layer.dropout, layer.bidirectional)
    elif isinstance(layer, nn.RNNCellBase):
        return type(layer)(ins or layer.input_size, outs or layer.hidden_size, layer.bias)
    elif kind.endswith("RMSNorm") or kind == "T5LayerNorm": layer.weight = fresh(ins)
    else: raise TypeError(f"no rule for the sizes of a {kind}")
    return None


def size_of(layer: Any, which: str) -> int:
    "The present size of the inputs or of the outputs."
    names = ("in_features in_channels num_features num_channels nx input_size" if which == "ins" else
             "out_features out_channels embedding_dim nf hidden_size")
    for name in names.split():
        if hasattr(layer, name): return getattr(layer, name)
    if isinstance(layer, nn.Embedding): return layer.num_embeddings
    return layer.weight.shape[0]


def another(n: int, rng: random.Random, odd: bool = False) -> int:
    "Another size: twice or half as large, or off by a few."
    if odd: return n + rng.choice([1, 3, 5, 7]) - n % 2
    sizes = {2*n, n//2, n + n//2, n + rng.randint(1, 9), n - rng.randint(1, 4)}
    return rng.choice(sorted(size for size in sizes if size > 2 and size != n))


def sized(which: str, odd: bool = False, to: int | None = None) -> Change:
    def do(site: Site):
        new = resize(site.layer, **{which: to or another(size_of(site.layer, which), site.rng, odd)})
        if new is not None: site.replace(new)
    return Change(f"{'takes' if which == 'ins' else 'returns'} another size{' (odd)' if odd else ''}", do)


def ins(odd: bool = False, to: int | None = None) -> Change: return sized("ins", odd, to)


def outs(odd: bool = False, to: int | None = None) -> Change: return sized("outs", odd, to)


def attr(**choices: list) -> Change:
    "Attributes become one of several values."
    def do(site: Site):
        for name, values in choices.items(): setattr(site.layer, name, site.rng.choice(values))
    return Change(f"other {', '.join(choices)}", do)


def kernel(*sizes: Any) -> Change:
    "A convolution with another kernel, and the padding of before."
    def do(site: Site):
        layer, size = site.layer, site.rng.choice(sizes)
        layer.kernel_size = size if isinstance(size, tuple) else (size,)*len(layer.kernel_size)
        layer.weight = fresh(*layer.weight.shape[:2], *layer.kernel_size)
    return Change("other kernel", do)


def dtype(name: str) -> Change: return Change(f"in {name}", lambda site: site.layer.to(getattr(torch, name)))


def instead(new: Callable[[], nn.Module], note: str) -> Change: return Change(note, lambda site: site.replace(new()))


def tensor(name: str, change: Callable, note: str) -> Change:
    "A parameter or a buffer of the layer becomes something else."
    def do(site: Site):
        old = getattr(site.layer, name)
        new = change(old.detach().clone())
        setattr(site.layer, name, nn.Parameter(new) if isinstance(old, nn.Parameter) else new)
    return Change(note, do)


numbers = itertools.count()


def rewritten(function: Callable, *pairs: tuple[str, str]) -> Callable:
    "The function with another text in a few places, which tracebacks and `inspect` find as they find that of a file."
    function = inspect.unwrap(function)
    text = textwrap.dedent(inspect.getsource(function))
    text = text[text.index("def "):]  # without decorators
    for old, new in pairs:
        if text.count(old) != 1: raise Rewritten(f"{old!r} stands {text.count(old)} times in:\n{text}")
        text = text.replace(old, new)
    scope = dict(sys.modules[function.__module__].__dict__)
    file = f"<{function.__qualname__} with an error, {next(numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    exec(compile(text, file, "exec"), scope)
    return scope[function.__name__]


def derived(layer: Any, **methods: Callable):
    "The layer becomes one of a class of the same name, with methods of its own."
    kind = type(layer)
    layer.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, **methods})


def edit(*pairs: tuple[str, str], method: str = "forward", note: str = "", use: Callable | None = None) -> Change:
    "The forward, or another method, is written with a mistake."
    def do(site: Site): derived(site.layer, **{method: rewritten(getattr(type(site.layer), method), *pairs)})
    return Change(note or f"{pairs[0][1]!r} instead of {pairs[0][0]!r}".replace("\n", ";"), do, use)


# Changes to inputs

def given(key: int | str, change: Callable, note: str) -> Change:
    "An argument is another one; `change` gets the right one and a source of random numbers."
    def do(site: Site):
        where: Any = site.args if isinstance(key, int) else site.kwargs
        where[key] = change(where[key], site.rng)
    return Change(note, do)


def one(key: int | str = 0) -> Change: return given(key, lambda x, rng: x[0], "without batch dimension")


def extra(key: int | str = 0) -> Change: return given(key, lambda x, rng: x[None], "with one dimension too many")


def nhwc(key: int | str = 0) -> Change: return given(key, lambda x, rng: x.movedim(1, -1), "channels last")


def image(*sizes: int, key: int | str = 0) -> Change:
    "A picture of another size."
    def change(x, rng):
        size = rng.choice(sizes)
        return torch.randn(*x.shape[:2], size, size)
    return given(key, change, f"picture of {' or '.join(map(str, sizes))}")


def of_input(key: int | str) -> str: return f", {key}" if key else ""


def cast(name: str, key: int | str = 0) -> Change:
    return given(key, lambda x, rng: x.to(getattr(torch, name)), f"{name} input{of_input(key)}")


def longer(*lengths: int, keys: tuple = (0,)) -> Change:
    "More tokens; masks of the same length, if there are any."
    def do(site: Site):
        length = site.rng.choice(lengths)
        for key in keys:
            where: Any = site.args if isinstance(key, int) else site.kwargs
            old = where[key]
            where[key] = torch.cat([old]*(length//old.shape[1] + 1), 1)[:, :length]
    return Change(f"{' or '.join(map(str, lengths))} tokens{of_input(keys[0])}", do)


WORDS = "input_ids", "attention_mask"  # what grows together in a model of transformers
IMAGES = "pixel_values"
COLOURS = given(0, lambda x, rng: torch.randn(len(x), rng.choice([1, 4]), *x.shape[2:]), "other colours")


def heads(*numbers: int, name: str = "num_heads") -> Change: return attr(**{name: list(numbers)})


# torchvision: sizes

VIT = "encoder.layers.encoder_layer_{0,1,2}"

plant("features", "tv_resnet", "fc", ins(), 2)
plant("features", "tv_resnet", "avgpool", attr(output_size=[(2, 2)]))
plant("features", "tv_densenet", "classifier", ins())
plant("features", "tv_mobilenetv3", "classifier.{0,3}", ins(), 2)
plant("features", "tv_vgg", "avgpool", attr(output_size=[1, 3]))
plant("features", "tv_vgg", "classifier.{0,3}", ins())
plant("features", "tv_vit", f"{VIT}.mlp.{{0,3}}", ins())
plant("features", "tv_vit", f"{VIT}.mlp.0", outs())
plant("features", "tv_vit", f"{VIT}.ln_{{1,2}}", ins())
plant("features", "tv_swin", "features.{1,3}.{0,1}.mlp.0", outs())
plant("features", "tv_swin", "features.2.reduction", ins())
plant("features", "tv_swin", "features.{1,3}.1.norm{1,2}", ins())
plant("features", "tv_convnext", "features.{1.0,1.1,3.0,5.0}.block.3", outs())
plant("features", "tv_convnext", "features.{1.1,3.0}.block.2", ins())

plant("channels", "tv_resnet", "layer{2.1,3.0,4.0}.conv2", ins())
plant("channels", "tv_resnet", "layer{1.0,2.0,3.0}.bn1", ins())
plant("channels", "tv_resnet", "layer{1.0,2.1,3.0}.conv1", outs(), 2)
plant("channels", "tv_densenet", "features.denseblock{1,2}.denselayer2.conv1", ins())
plant("channels", "tv_densenet", "features.denseblock{1,2}.denselayer1.conv2", outs())
plant("channels", "tv_squeezenet", "features.{4,7,9,11}.squeeze", ins())
plant("channels", "tv_squeezenet", "features.{3,6,10}.expand1x1", outs())
plant("channels", "tv_googlenet", "inception{3a,4c,5a}.branch{2,3}.0.conv", outs())
plant("channels", "tv_googlenet", "inception{3b,4d}.branch2.1.conv", ins())
plant("channels", "tv_shufflenet", "stage{2,3,4}.1.branch2.5", ins())
plant("channels", "tv_mobilenetv3", "features.{2,3}.block.2.0", ins())
plant("channels", "tv_mobilenetv3", "features.4.block.2.fc1", outs())
plant("channels", "tv_vgg", "features.{4,8}", outs())
plant("channels", "tv_segment", "1.0.project.0", ins())
plant("channels", "tv_video", "layer{1,2}.0.conv2.0", ins())
plant("channels", "tv_pyramid", "fpn.inner_blocks.{0,1,2}.0", ins())
for name in "tv_mobilenetv2", "tv_swin": plant("channels", name, "", COLOURS)

plant("groups", "tv_resnext", "layer{1,2,3}.0.conv2", attr(groups=[3, 5, 6, 7]), 2)
plant("groups", "tv_resnext", "layer{2,3}.0.conv1", attr(groups=[2, 4]))
plant("groups", "tv_shufflenet", "stage{2,3}.1.branch2.3", attr(groups=[2, 4]))
plant("groups", "tv_mobilenetv2", "features.{2,5,9}.conv.1.0", attr(groups=[1]))
plant("groups", "tv_convnext", "features.{1.0,3.0}.block.0", attr(groups=[5, 7]))
plant("groups", "tv_mobilenetv3", "features.{3.block.1,4.block.1}.0", attr(groups=[1, 4]))
plant("groups", "tv_segment", "1.0.convs.{1,2}.0", attr(groups=[3, 5]))
plant("groups", "tv_shufflenet", "stage{2,3}.0", edit(("channel_shuffle(out, 2)", "channel_shuffle(out, 5)")))

plant("kernel", "tv_squeezenet", "", image(8, 10))
plant("kernel", "tv_densenet", "", image(6, 8, 10))
plant("kernel", "tv_vgg", "", image(4, 6))
plant("kernel", "tv_convnext", "", image(8, 10, 12))
plant("kernel", "tv_vgg", "features.11", kernel(11, 13, 15))
plant("kernel", "tv_resnet", "layer{3.0.conv2,4.0.conv1,4.0.conv2}", kernel(7, 9))
plant("kernel", "tv_squeezenet", "features.8", attr(kernel_size=[9, 11]))
plant("kernel", "tv_mobilenetv3", "features.5.block.1.0", kernel(9, 11))
plant("kernel", "tv_segment", "1.0.convs.1.0", attr(dilation=[(12, 12), (18, 18)]))
plant("kernel", "tv_video", "layer4.0.conv1.0", kernel((5, 3, 3), (7, 3, 3)))

for name in "tv_resnet", "tv_vit", "tv_swin", "tv_convnext", "tv_video", "tv_densenet":
    plant("batch dimension", name, "", one())
for name in "tv_googlenet", "tv_squeezenet", "tv_mobilenetv2": plant("batch dimension", name, "", extra())

for name in ("tv_resnet", "tv_densenet", "tv_mobilenetv2", "tv_convnext", "tv_vit", "tv_swin", "tv_squeezenet",
             "tv_segment", "tv_pyramid", "tv_video"):
    plant("channels last", name, "", nhwc())

plant("dtype", "tv_resnet", "", cast("float64"))
plant("dtype", "tv_densenet", "", cast("uint8"))
plant("dtype", "tv_convnext", "", cast("int64"))
plant("dtype", "tv_mobilenetv3", "features.{3,4}.block.0.0", dtype("float16"))
plant("dtype", "tv_vit", f"{VIT}.mlp.{{0,3}}", dtype("float16"))
plant("dtype", "tv_swin", "features.{1,3}.0.attn", dtype("bfloat16"))
plant("dtype", "tv_googlenet", "inception{4a,4b}.branch1.conv", dtype("float64"))

plant("heads", "tv_vit", f"{VIT}.self_attention", heads(5, 7, 9), 2)
plant("heads", "tv_swin", "features.{1,3}.{0,1}.attn", heads(5, 7))
plant("heads", "tv_swin", "features.1.{0,1}.attn", heads(3, 6))

plant("concatenation", "tv_squeezenet", "features.{3,6,9}.expand3x3", attr(padding=[(0, 0)]))
plant("concatenation", "tv_squeezenet", "features.{4,7}.expand1x1", attr(stride=[(2, 2)]))
plant("concatenation", "tv_googlenet", "inception{3a,4b}.branch3.1.conv", kernel(5))
plant("concatenation", "tv_googlenet", "inception{3b,4a,4c}.branch4.0", attr(stride=[2]))
plant("concatenation", "tv_googlenet", "inception{3b,4b,4d}.branch2.1.conv", attr(padding=[(0, 0), (2, 2)]))
plant("concatenation", "tv_densenet", "features.denseblock{1,2}.denselayer1.conv2", attr(padding=[(0, 0)]))
plant("concatenation", "tv_densenet", "features.denseblock1.denselayer2.conv1", attr(stride=[(2, 2)]))
plant("concatenation", "tv_shufflenet", "stage{2,3,4}.0.branch2.3", attr(stride=[(1, 1)]))
plant("concatenation", "tv_shufflenet", "stage{2,3}.1",
    edit(("torch.cat((x1, self.branch2(x2)), dim=1)", "torch.cat((x1, self.branch2(x2)), dim=2)")))
plant("concatenation", "tv_segment", "1.0.convs.{1,2}.0", attr(padding=[(0, 0), (1, 1)]))

plant("addition", "tv_resnet", "layer{2,3}.0.conv2", attr(stride=[(2, 2)]))
plant("addition", "tv_resnet", "layer{2,3}.0.downsample.0", attr(stride=[(1, 1)]))
plant("addition", "tv_resnet", "layer{2,3}.0.conv1", attr(padding=[(0, 0)]))
plant("addition", "tv_resnext", "layer{1,2}.0.conv2", attr(padding=[(0, 0), (2, 2)]))
plant("addition", "tv_resnext", "layer{1,2,3}.0.downsample", instead(nn.Identity, "left out"))
plant("addition", "tv_mobilenetv2", "features.{3,5,8}.conv.1.0", attr(stride=[(2, 2)]))
plant("addition", "tv_convnext", "features.{1.0,3.0}.block.0", attr(padding=[(2, 2), (4, 4)]))
plant("addition", "tv_vit", f"{VIT}.mlp.3", outs())
plant("addition", "tv_swin", "features.{1,3}.0.mlp.3", outs())
plant("addition", "tv_pyramid", "fpn.inner_blocks.{0,1}.0", outs())
plant("addition", "tv_video", "layer2.0.downsample.0", attr(stride=[(1, 1, 1)]))

plant("reshape", "tv_vit", "", attr(hidden_dim=[40, 50]))
plant("reshape", "tv_vit", "", attr(patch_size=[4, 16]))
plant("reshape", "tv_vit", "conv_proj", outs())
plant("reshape", "tv_swin", "features.{1,3}.{0,1}.attn.qkv", outs())
plant("reshape", "tv_swin", "features.1.{0,1}.attn", attr(window_size=[[3, 3], [2, 2]]))
plant("reshape", "tv_mobilenetv3", "", edit(("torch.flatten(x, 1)", "x.view(-1, 200)"), method="_forward_impl"))
plant("reshape", "tv_densenet", "", edit(("torch.flatten(out, 1)", "out.view(-1, 60)")))
plant("reshape", "tv_shufflenet", "stage{3,4}.1", edit(("channel_shuffle(out, 2)", "channel_shuffle(out, 7)")))

plant("positions", "tv_vit", "", image(24, 40, 48), 2)
plant("positions", "tv_vit", "encoder", tensor("pos_embedding", lambda p: p[:, 1:], "a position too few"))
plant("positions", "tv_vit", "encoder", tensor("pos_embedding", lambda p: torch.cat([p, p], 1), "twice the positions"))


# timm

plant("features", "timm_vit", "blocks.{0,1,2}.mlp.fc{1,2}", ins(), 2)
plant("features", "timm_vit", "blocks.{0,1,2}.norm{1,2}", ins())
plant("features", "timm_vit_registers", "blocks.{0,1}.mlp.fc1", outs())
plant("features", "timm_deit", "head{,_dist}", ins())
plant("features", "timm_convnext", "stages.{1,2}.blocks.{0,1}.mlp.fc1", outs())
plant("features", "timm_convnext", "head.fc", ins())
plant("features", "timm_mixer", "blocks.{0,1}.mlp_tokens.fc{1,2}", ins())
plant("features", "timm_gmlp", "blocks.{0,1}.mlp_channels.gate.proj", ins())
plant("features", "timm_gmlp", "blocks.{0,1}.mlp_channels.fc1", outs(to=96))
plant("features", "timm_edgenext", "stages.{0,1}.blocks.0.mlp.fc1", outs())
plant("features", "timm_swin", "layers.1.downsample.reduction", ins())
plant("features", "timm_cait", "blocks_token_only.{0,1}.mlp.fc1", ins())
plant("features", "timm_ghostnet", "classifier", ins())
plant("features", "timm_resnet", "fc", ins())

plant("channels", "timm_resnet", "layer{1,2,4}.0.conv2", ins(), 2)
plant("channels", "timm_resnet", "layer{2,3,4}.0.bn1", ins())
plant("channels", "timm_res2net", "layer{1,2,3}.0.convs.{0,1,2}", ins())
plant("channels", "timm_res2net", "layer{1,2,3}.0.conv3", ins())
plant("channels", "timm_densenet", "features.denseblock{1,2,3}.denselayer2.norm1", ins())
plant("channels", "timm_densenet", "features.transition{1,2}.conv", outs())
plant("channels", "timm_vovnet", "stages.{0,1,2}.blocks.0.conv_concat.conv", ins())
plant("channels", "timm_dla", "level{3,4}.tree1.tree1.conv1", outs())
plant("channels", "timm_dla", "level{2,5}.root.conv", ins())
plant("channels", "timm_ghostnet", "blocks.{1,2,3}.0.ghost2.primary_conv.0", ins())
plant("channels", "timm_efficientnet", "blocks.{3,4}.0.se.conv_reduce", outs())
plant("channels", "timm_efficientnet", "blocks.{3,4}.0.conv_pwl", ins())
plant("channels", "timm_mobilevit", "stages.{2,3}.1.conv_1x1", ins())
plant("channels", "timm_nfnet", "stages.{1,2}.0.conv3", ins())
plant("channels", "timm_byobnet", "", COLOURS)

plant("groups", "timm_efficientnet", "blocks.{3,4}.0.conv_dw", attr(groups=[1, 5]))
plant("groups", "timm_efficientnet_gn", "blocks.{1,2,3}.0.bn1", attr(num_groups=[5, 7]), 2)
plant("groups", "timm_convnext", "stages.{0,1,2}.blocks.0.conv_dw", attr(groups=[5, 7, 9]))
plant("groups", "timm_ghostnet", "blocks.{1,2}.0.ghost1.cheap_operation.0", attr(groups=[1, 2]))
plant("groups", "timm_vovnet", "stages.{0,1}.blocks.0.conv_mid.{0,1}.conv_dw", attr(groups=[1, 5]))
plant("groups", "timm_nfnet", "stages.{1,2}.0.conv2", attr(groups=[3, 5, 7]))
plant("groups", "timm_edgenext", "stages.{1,2}.blocks.0.conv_dw", attr(groups=[1, 5]))
plant("groups", "timm_byobnet", "stages.3.0.conv2_kxk.conv", attr(groups=[3, 5]))

plant("kernel", "timm_densenet", "", image(6, 8, 10))
plant("kernel", "timm_convnext", "", image(8, 12))
plant("kernel", "timm_vit", "patch_embed.proj", kernel(66, 80))
plant("kernel", "timm_mixer", "stem.proj", kernel(33, 40))
plant("kernel", "timm_resnet", "layer4.0.conv{1,2}", kernel(9, 11))
plant("kernel", "timm_ghostnet", "blocks.8.0.ghost1.cheap_operation.0", kernel(9, 11))
plant("kernel", "timm_dla", "level5.tree1.conv2", attr(dilation=[(8, 8), (12, 12)]))
plant("kernel", "timm_edgenext", "", image(8, 12))
plant("kernel", "timm_res2net", "layer4.0.convs.{0,1}", kernel(9, 11))

for name in "timm_resnet", "timm_vit", "timm_densenet", "timm_convnext", "timm_mobilevit", "timm_swin":
    plant("batch dimension", name, "", one())
for name in "timm_efficientnet", "timm_vovnet", "timm_mixer": plant("batch dimension", name, "", extra())

for name in ("timm_resnet", "timm_vit", "timm_densenet", "timm_convnext", "timm_efficientnet", "timm_ghostnet",
             "timm_mixer", "timm_swin", "timm_nfnet"):
    plant("channels last", name, "", nhwc())

plant("dtype", "timm_vit", "", cast("float64"))
plant("dtype", "timm_efficientnet", "", cast("uint8"))
plant("dtype", "timm_mixer", "", cast("float16"))
plant("dtype", "timm_vit", "blocks.{0,1,2}.attn.{qkv,proj}", dtype("float16"))
plant("dtype", "timm_convnext", "stages.{1,2}.blocks.0.mlp.fc2", dtype("bfloat16"))
plant("dtype", "timm_dla", "level{3,4}.tree1.root.conv", dtype("float64"))
plant("dtype", "timm_cait", "blocks.{0,1}.attn.proj_l", dtype("float16"))

plant("heads", "timm_vit", "blocks.{0,1,2}.attn", heads(3, 5, 7), 2)
plant("heads", "timm_swin", "layers.{0,1}.blocks.0.attn", heads(3, 5))
plant("heads", "timm_cait", "blocks.{0,1}.attn", heads(3, 5))
plant("heads", "timm_cait", "blocks_token_only.{0,1}.attn", heads(3, 5))
plant("heads", "timm_edgenext", "stages.{1.blocks.1,2.blocks.5}.xca", heads(5, 7))
plant("heads", "timm_deit", "blocks.{0,1}.attn", heads(4, 5))

plant("concatenation", "timm_vovnet", "stages.{0,1,2}.blocks.0.conv_mid.{0,1,2}.conv_dw", attr(padding=[(0, 0)]))
plant("concatenation", "timm_vovnet", "stages.{0,1}.blocks.0.conv_mid.{0,1}.conv_dw", attr(stride=[(2, 2)]))
plant("concatenation", "timm_res2net", "layer{1,2}.0.convs.{0,2}", attr(padding=[(0, 0), (2, 2)]))
plant("concatenation", "timm_densenet", "features.denseblock{1,2}.denselayer{1,2}.conv2", attr(padding=[(0, 0)]))
plant("concatenation", "timm_ghostnet", "blocks.{1.0,2.0,3.0}.ghost1.cheap_operation.0", attr(stride=[(2, 2)]))
plant("concatenation", "timm_ghostnet", "blocks.{1.0,4.0}.ghost2.cheap_operation.0", attr(padding=[(0, 0)]))
plant("concatenation", "timm_mobilevit", "stages.{2,3}.1.conv_kxk.conv", attr(stride=[(2, 2)]))
plant("concatenation", "timm_vit", "", tensor("cls_token", lambda p: p[..., :-4], "a token that is too short"))
plant("concatenation", "timm_cait", "blocks_token_only.{0,1}",
    edit(("torch.cat((x_cls, x), dim=1)", "torch.cat((x_cls, x), dim=2)")))

plant("addition", "timm_vit", "blocks.{0,1,2}.mlp.fc2", outs())
plant("addition", "timm_vit_registers", "blocks.{0,1}.attn.proj", outs())
plant("addition", "timm_resnet", "layer{1,2}.0.conv2", attr(padding=[(0, 0), (2, 2)]))
plant("addition", "timm_resnet", "layer{2,4}.0.conv1", attr(stride=[(1, 1)]))
plant("addition", "timm_convnext", "stages.{0,1}.blocks.0.conv_dw", attr(padding=[(2, 2), (1, 1)]))
plant("addition", "timm_mixer", "blocks.{0,1}.mlp_channels.fc2", outs())
plant("addition", "timm_mixer", "blocks.{0,1}.mlp_tokens.fc2", outs())
plant("addition", "timm_dla", "{level2.tree1,level3.tree2.tree2,level4.tree2.tree2}.conv2", attr(padding=[(0, 0)]))
plant("addition", "timm_cait", "blocks.{0,1}.mlp.fc2", outs())
plant("addition", "timm_swin", "layers.{0,1}.blocks.0.mlp.fc2", outs())
plant("addition", "timm_ghostnet", "blocks.{1,3}.0.conv_dw", attr(stride=[(1, 1)]))
plant("addition", "timm_nfnet", "stages.{1,2}.0.conv2", attr(padding=[(0, 0)]))

plant("reshape", "timm_vit", "blocks.{0,1,2}.attn.qkv", outs())
plant("reshape", "timm_vit_registers", "blocks.{0,1}.attn",
    edit(("3, self.num_heads, self.head_dim)", "2, self.num_heads, self.head_dim)")))
plant("reshape", "timm_deit", "blocks.{0,1}.attn", attr(head_dim=[8, 12, 20]))
plant("reshape", "timm_mobilevit", "stages.{2,3}.1", attr(patch_area=[2, 8]))
plant("reshape", "timm_swin", "layers.{0,1}.blocks.0.attn.proj", outs(odd=True))
plant("reshape", "timm_cait", "blocks.{0,1}.attn.qkv", outs(odd=True))
plant("reshape", "timm_edgenext", "stages.{1.blocks.1,2.blocks.5}.xca.qkv", outs(odd=True))
plant("reshape", "timm_swin", "layers.0.blocks.{0,1}", attr(window_size=[(3, 3), (5, 5)]))

plant("positions", "timm_vit_fixed", "", image(32, 48, 96), 2)
plant("positions", "timm_vit_fixed", "", tensor("pos_embed", lambda p: p[:, 1:], "a position too few"))
plant("positions", "timm_deit", "", tensor("pos_embed", lambda p: p[:, 2:], "two positions too few"))
plant("positions", "timm_mixer", "", image(24, 40, 48))
plant("positions", "timm_cait", "", tensor("pos_embed", lambda p: torch.cat([p, p[:, :3]], 1), "three positions more"))


# transformers

def shorter_mask(x, rng): return x[:, :-rng.randint(1, 4)]


def longer_mask(x, rng): return torch.cat([x, x[:, :rng.randint(1, 5)]], 1)


plant("features", "hf_bert", "bert.encoder.layer.{0,1}.output.dense", ins())
plant("features", "hf_bert", "bert.encoder.layer.{0,1}.intermediate.dense", outs())
plant("features", "hf_bert", "classifier", ins())
plant("features", "hf_gpt2", "transformer.h.{0,1}.mlp.c_fc", outs())
plant("features", "hf_gpt2", "transformer.h.{0,1}.ln_{1,2}", ins())
plant("features", "hf_llama", "model.layers.{0,1}.mlp.down_proj", ins())
plant("features", "hf_llama", "model.layers.{0,1}.self_attn.{q,k,v}_proj", ins())
plant("features", "hf_t5", "decoder.block.{0,1}.layer.1.EncDecAttention.{k,v}", ins())
plant("features", "hf_bart", "model.decoder.layers.{0,1}.encoder_attn.k_proj", ins())
plant("features", "hf_electra", "electra.embeddings_project", ins())
plant("features", "hf_albert", "encoder.embedding_hidden_mapping_in", outs())
plant("features", "hf_distilbert", "distilbert.transformer.layer.{0,1}.ffn.lin1", outs())
plant("features", "hf_clip", "visual_projection", ins())
plant("features", "hf_clip", "vision_model.encoder.layers.{0,1}.mlp.fc2", ins())
plant("features", "hf_wav2vec2", "feature_projection.projection", ins())
plant("features", "hf_whisper", "decoder.layers.{0,1}.fc2", ins())
plant("features", "hf_vit", "vit.layers.{0,1}.layernorm_before", ins())

plant("channels", "hf_resnet", "resnet.encoder.stages.{1,2}.layers.0.layer.1.convolution", ins())
plant("channels", "hf_resnet", "resnet.encoder.stages.{0,1}.layers.0.layer.0.normalization", ins())
plant("channels", "hf_segformer", "decode_head.linear_fuse", ins())
plant("channels", "hf_segformer", "segformer.stages.1.patch_embeddings.proj", ins())
plant("channels", "hf_whisper", "encoder.conv2", ins())
plant("channels", "hf_wav2vec2", "feature_extractor.conv_layers.{1,2}.conv", ins())
plant("groups", "hf_segformer", "segformer.stages.{0,1}.blocks.0.mlp.dwconv.dwconv", attr(groups=[1, 5]))
plant("groups", "hf_wav2vec2", "encoder.pos_conv_embed.conv", attr(groups=[3, 5, 8]))
plant("kernel", "hf_wav2vec2", "", given(0, lambda x, rng: x[:, :rng.randint(5, 9)], "too short"))
plant("kernel", "hf_resnet", "resnet.encoder.stages.2.layers.0.layer.1.convolution", kernel(11, 13))
plant("kernel", "hf_segformer", "segformer.stages.0.blocks.0.attention.sequence_reduction.sequence_reduction",
    kernel(17, 20))

plant("batch dimension", "hf_vit", "", one())
plant("batch dimension", "hf_resnet", "", one())
plant("batch dimension", "hf_segformer", "", one())
plant("batch dimension", "hf_wav2vec2", "", extra())
plant("batch dimension", "hf_bert", "", one("input_ids"))
plant("batch dimension", "hf_llama", "", one("input_ids"))
for name in "hf_vit", "hf_resnet", "hf_segformer": plant("channels last", name, "", nhwc())
plant("channels last", "hf_clip", "", nhwc(IMAGES))

plant("dtype", "hf_bert", "", cast("float32", "input_ids"))
plant("dtype", "hf_gpt2", "", cast("float32", "input_ids"))
plant("dtype", "hf_distilbert", "", cast("float64", "input_ids"))
plant("dtype", "hf_bert", "", cast("float32", "token_type_ids"))
plant("dtype", "hf_t5", "", cast("float32", "decoder_input_ids"))
plant("dtype", "hf_segformer", "", cast("float64"))
plant("dtype", "hf_whisper", "", cast("float16", "input_features"))
plant("dtype", "hf_resnet", "", cast("uint8"))
plant("dtype", "hf_llama", "model.layers.{0,1}.mlp.{gate,up,down}_proj", dtype("bfloat16"))
plant("dtype", "hf_roberta", "roberta.encoder.layer.{0,1}.attention.self.{query,key}", dtype("float16"))
plant("dtype", "hf_bart", "model.encoder.layers.{0,1}.fc{1,2}", dtype("float64"))
plant("dtype", "hf_neox", "gpt_neox.layers.{0,1}.mlp", dtype("float16"))

plant("heads", "hf_bert", "bert.encoder.layer.{0,1}.attention.self", attr(attention_head_size=[10, 14]))
plant("heads", "hf_roberta", "roberta.encoder.layer.{0,1}.attention.self", attr(attention_head_size=[7, 9]))
plant("heads", "hf_llama", "model.layers.{0,1}.self_attn", attr(head_dim=[7, 10]))
plant("heads", "hf_gpt2", "transformer.h.{0,1}.attn", attr(head_dim=[7, 10]))
plant("heads", "hf_t5", "encoder.block.{0,1}.layer.0.SelfAttention", attr(key_value_proj_dim=[7, 10]))
plant("heads", "hf_bart", "model.encoder.layers.{0,1}.self_attn", attr(head_dim=[7, 10]))
plant("heads", "hf_opt", "model.decoder.layers.{0,1}.self_attn", heads(5, 7))
plant("heads", "hf_vit", "vit.layers.{0,1}.attention", attr(head_dim=[7, 10]))
plant("heads", "hf_neox", "gpt_neox.layers.{0,1}.attention", attr(head_size=[7, 10]))
plant("heads", "hf_distilbert", "distilbert.transformer.layer.{0,1}.attention", attr(attention_head_size=[7, 10]))
plant("heads", "hf_clip", "text_model.encoder.layers.{0,1}.self_attn", attr(head_dim=[7, 10]))
plant("heads", "hf_llama", "model.layers.{0,1}.self_attn", attr(num_key_value_groups=[3]))

MASKED = ("hf_bert", "hf_gpt2", "hf_llama", "hf_t5", "hf_bart", "hf_distilbert", "hf_roberta", "hf_electra",
          "hf_albert", "hf_opt", "hf_neox", "hf_clip")
for name in MASKED:
    if name not in ("hf_roberta", "hf_electra", "hf_albert"):  # these take it
        plant("mask", name, "", given("attention_mask", shorter_mask, "a mask that is too short"))
    plant("mask", name, "", given("attention_mask", longer_mask, "a mask that is too long"))
for name in MASKED[:9]:
    plant("mask", name, "", given("attention_mask", lambda x, rng: x[:2], "a mask of fewer samples"))
for name in "hf_bert", "hf_distilbert", "hf_roberta":
    plant("mask", name, "", given("attention_mask", lambda x, rng: x[:, None, None], "a mask of integers"))
    plant("mask", name, "", given("attention_mask", lambda x, rng: x.bool()[:, None, None, :-2], "4D, too short"))
    plant("mask", name, "", given("attention_mask", lambda x, rng: x.T, "transposed"))

plant("concatenation", "hf_vit", "vit.embeddings", tensor("cls_token", lambda p: p[..., :-4], "a token too short"))
plant("concatenation", "hf_vit", "vit.embeddings.patch_embeddings.projection", outs())
plant("concatenation", "hf_clip", "vision_model.embeddings", tensor("class_embedding", lambda p: p[:-4], "too short"))
plant("concatenation", "hf_clip", "vision_model.embeddings.patch_embedding", outs())
plant("concatenation", "hf_segformer", "decode_head", edit(("[::-1], dim=1)", "[::-1], dim=2)")))
plant("concatenation", "hf_segformer", "decode_head",
    edit(("size=encoder_hidden_states[0].size()[2:]", "scale_factor=2.")))
plant("concatenation", "hf_llama", "model.rotary_emb",
    edit(("torch.cat((freqs, freqs), dim=-1)", "torch.cat((freqs, freqs), dim=1)")))

plant("addition", "hf_bert", "bert.encoder.layer.{0,1}.output.dense", outs())
plant("addition", "hf_bert", "bert.embeddings.position_embeddings", outs())
plant("addition", "hf_gpt2", "transformer.h.{0,1}.mlp.c_proj", outs())
plant("addition", "hf_gpt2", "transformer.wpe", outs())
plant("addition", "hf_llama", "model.layers.{0,1}.self_attn.o_proj", outs())
plant("addition", "hf_llama", "model.layers.{0,1}.mlp.down_proj", outs())
plant("addition", "hf_t5", "encoder.block.{0,1}.layer.1.DenseReluDense.wo", outs())
plant("addition", "hf_bart", "model.decoder.layers.{0,1}.fc2", outs())
plant("addition", "hf_resnet", "resnet.encoder.stages.{1,2}.layers.0.shortcut.convolution", attr(stride=[(1, 1)]))
plant("addition", "hf_resnet", "resnet.encoder.stages.{0,1}.layers.0.layer.1.convolution", attr(padding=[(0, 0)]))
plant("addition", "hf_whisper", "encoder.embed_positions", outs())
plant("addition", "hf_whisper", "encoder.conv2", attr(padding=[(0,), (2,)]))
plant("addition", "hf_wav2vec2", "encoder.pos_conv_embed.conv", attr(padding=[(4,), (6,)]))
plant("addition", "hf_distilbert", "distilbert.transformer.layer.{0,1}.attention.out_lin", outs())
plant("addition", "hf_clip", "text_model.embeddings.position_embedding", outs())

plant("reshape", "hf_bert", "bert.encoder.layer.{0,1}.attention.self.{query,key,value}", outs(odd=True))
plant("reshape", "hf_llama", "model.layers.{0,1}.self_attn.{q,k,v}_proj", outs(odd=True))
plant("reshape", "hf_t5", "decoder.block.{0,1}.layer.1.EncDecAttention.{q,k}", outs(odd=True))
plant("reshape", "hf_opt", "model.decoder.layers.{0,1}.self_attn.{q,k}_proj", outs(odd=True))
plant("reshape", "hf_neox", "gpt_neox.layers.{0,1}.attention.query_key_value", outs(odd=True))
plant("reshape", "hf_vit", "vit.layers.{0,1}.attention.{q,v}_proj", outs(odd=True))
plant("reshape", "hf_clip", "vision_model.encoder.layers.{0,1}.self_attn.q_proj", outs(odd=True))
plant("reshape", "hf_whisper", "decoder.layers.{0,1}.encoder_attn.k_proj", outs(odd=True))
plant("reshape", "hf_segformer", "segformer.stages.0.blocks.0.mlp.dwconv",
    edit(("batch_size, num_channels, height, width)", "batch_size, num_channels, width, width + 1)")))
plant("reshape", "hf_electra", "electra.encoder.layer.{0,1}.attention.self",
    edit(("(*input_shape, -1, self.attention_head_size)", "(*input_shape, 5, self.attention_head_size)")))
plant("reshape", "hf_bart", "model.encoder.layers.{0,1}.self_attn.q_proj", outs(odd=True))

for name in "hf_gpt2", "hf_distilbert", "hf_roberta", "hf_electra", "hf_albert", "hf_opt", "hf_clip":
    plant("positions", name, "", longer(28, 30, 40, keys=WORDS), 2 if name in ("hf_gpt2", "hf_distilbert") else 1)
plant("positions", "hf_bert", "", longer(26, 32, keys=(*WORDS, "token_type_ids")))
plant("positions", "hf_bart", "", longer(26, 32, keys=WORDS))
plant("positions", "hf_bart", "", longer(26, 32, keys=("decoder_input_ids",)))
plant("positions", "hf_whisper", "", longer(26, 32, keys=("decoder_input_ids",)))
plant("positions", "hf_whisper", "",
    given("input_features", lambda x, rng: x[..., :rng.choice([32, 38])], "a recording that is too short"))
plant("positions", "hf_vit", "", image(24, 40, 48))
plant("positions", "hf_clip", "", image(24, 40, 48, key=IMAGES))
plant("positions", "hf_gpt2", "transformer.wpe", ins(to=8))
plant("positions", "hf_bart", "model.encoder.embed_positions", ins(to=9))
plant("positions", "hf_whisper", "encoder.embed_positions", ins(to=16))
plant("positions", "hf_vit", "vit.embeddings", tensor("position_embeddings", lambda p: p[:, 1:], "a position too few"))


# Written here

plant("features", "mlp", "{0,4,8}", outs())
plant("features", "mlp", "{4,8,12}", ins())
plant("features", "lenet", "fc{2,3}", ins())
plant("features", "lenet", "fc1", outs())
plant("features", "reader", "rnn", ins())
plant("features", "reader", "head", ins())
plant("features", "gpt", "blocks.{0,1,2}.mlp.fc1", outs())
plant("features", "gpt", "blocks.{0,1,2}.norm{1,2}", ins())
plant("features", "fusion", "table.0", ins())
plant("features", "gcn", "layers.{1,2}.others", ins())
plant("features", "seq2seq", "query", outs())
plant("features", "seq2seq", "cell", ins())
plant("features", "recommender", "films", outs(to=16))
plant("features", "perceiver", "head", ins())
plant("features", "crnn", "rnn", ins())
plant("features", "reader", "", given("state", lambda s, rng: tuple(x[..., :16] for x in s), "a state that is narrow"))
plant("features", "reader", "", given("state", lambda s, rng: tuple(x[:2] for x in s), "a state of one direction"))
plant("features", "translator", "decoder.layers.{0,1}.norm{1,3}", ins())

plant("channels", "unet", "merge{1,2}.0", ins())
plant("channels", "unet", "up{1,2}", outs())
plant("channels", "inception", "{2,4}.three.0", outs())
plant("channels", "mobile", "{1,2}.squeeze.1", outs())
plant("channels", "resnet", "blocks.{1,2}.norm1", ins())
plant("channels", "textcnn", "convs.{0,1,2}", ins())
plant("channels", "wavenet", "blocks.{0,1,2}.gate", outs(to=48))
plant("channels", "pointnet", "wide.0", ins())
plant("channels", "convlstm", "gates", ins())
plant("channels", "generator", "ups.{0,3}", ins())
plant("channels", "autoencoder", "decode.0", outs())

plant("groups", "mobile", "3", attr(groups=[3, 5, 2]), 2)
plant("groups", "mobile", "{1,2}.depth", attr(groups=[1, 5]))
plant("groups", "mobile", "{1,2}.expand", outs())
plant("groups", "resnet", "blocks.{0,1,2}.norm{1,2}", attr(num_groups=[3, 5, 7]))
plant("groups", "resnet", "stem.1", attr(num_groups=[3, 5]))
plant("groups", "upscaler", "body.2", outs(odd=True))
plant("groups", "upscaler", "shuffle", attr(upscale_factor=[4, 5]))

plant("kernel", "lenet", "", image(8, 10, 12))
plant("kernel", "textcnn", "", given(0, lambda x, rng: x[:, :rng.choice([2, 3])], "few words"))
plant("kernel", "crnn", "", given(0, lambda x, rng: x[:, :, :rng.choice([2, 3])], "a line that is too low"))
plant("kernel", "wavenet", "blocks.{1,2}.gate", attr(dilation=[(30,), (40,)]))
plant("kernel", "convlstm", "gates", kernel(15, 17))
plant("kernel", "vit", "", image(4, 6))
plant("kernel", "inception", "4.three.2", kernel(17, 19))

for name in "mlp", "unet", "gpt", "reader", "crnn", "vit", "pointnet", "tagger":
    plant("batch dimension", name, "", one())
for name in "resnet", "lenet": plant("batch dimension", name, "", extra())

for name in "unet", "lenet", "fusion", "wavenet", "pointnet": plant("channels last", name, "", nhwc())

plant("dtype", "gpt", "", cast("float32"))
plant("dtype", "mlp", "", cast("float64"))
plant("dtype", "mlp", "", cast("int64"))
plant("dtype", "unet", "middle.{0,3}", dtype("float16"))
plant("dtype", "gcn", "", cast("int64", 1))
plant("dtype", "lenet", "", cast("uint8"))
plant("dtype", "recommender", "", cast("float32", 1))
plant("dtype", "seq2seq", "read", dtype("float64"))
plant("dtype", "fusion", "", cast("float32", 2))

plant("heads", "gpt", "blocks.{0,1,2}.attn", heads(5, 7, 9, name="heads"), 2)
plant("heads", "vit", "blocks.{0,1}.attn", heads(5, 7, name="heads"))
plant("heads", "tagger", "encoder.layers.{0,1}.self_attn", heads(5, 7))
plant("heads", "translator", "decoder.layers.{0,1}.multihead_attn", heads(3, 7))
plant("heads", "perceiver", "{think,read}", heads(3, 5))

plant("mask", "gpt", "", tensor("mask", lambda m: m.float(), "a mask of numbers"))
plant("mask", "gpt", "", tensor("mask", lambda m: m[:8, :8], "a mask that is too small"))
plant("mask", "tagger", "", given("mask", lambda m, rng: m[1:, 1:], "a mask that is too small"))
plant("mask", "tagger", "", given("mask", lambda m, rng: m.long(), "a mask of integers"))
plant("mask", "tagger", "", given("padded", lambda m, rng: m.T, "transposed"))
plant("mask", "tagger", "", given("padded", lambda m, rng: m.long(), "padding as integers"))
plant("mask", "translator", "", given("target_mask", lambda m, rng: torch.ones(10, 10).triu(1).bool(), "of the source"))
plant("mask", "translator", "", given("target_mask", lambda m, rng: m[None], "with a batch dimension"))
plant("mask", "perceiver", "", given("padded", lambda m, rng: m[:, :-3], "a mask that is too short"))
plant("mask", "perceiver", "", given("padded", lambda m, rng: m[:, None], "a mask with a dimension too many"))
plant("mask", "gcn", "", given(1, lambda a, rng: a[1:, 1:], "a graph of fewer nodes"))

plant("concatenation", "unet", "up{1,2}", attr(padding=[(1, 1)]))
plant("concatenation", "unet", "down{1,2}.0", attr(padding=[(0, 0)]))
plant("concatenation", "unet", "", image(30, 38))
plant("concatenation", "unet", "", edit(("torch.cat([self.up2(c), b], dim=1)", "torch.cat([self.up2(c), b], dim=2)")))
plant("concatenation", "inception", "{2,4}.three.2", attr(padding=[(0, 0), (2, 2)]))
plant("concatenation", "inception", "{2,4}.five.2", attr(padding=[(1, 1)]))
plant("concatenation", "inception", "{2,4}.pool.0", attr(padding=[0]))
plant("concatenation", "inception", "{2,4}", edit(("torch.cat(branches, dim=1)", "torch.cat(branches, dim=2)")))
plant("concatenation", "textcnn", "", edit(("torch.cat(found, dim=1)", "torch.cat(found, dim=0)")))
plant("concatenation", "textcnn", "", edit((".amax(-1)", "")))
plant("concatenation", "vit", "", edit(("x], dim=1)", "x], dim=2)")))
plant("concatenation", "vit", "", edit(("self.first.expand(len(x), -1, -1)", "self.first")))
plant("concatenation", "fusion", "", edit(("self.table(numbers)], dim=1)", "self.table(numbers)], dim=0)")))
plant("concatenation", "seq2seq", "", edit(("[word, context], dim=1)", "[word, context], dim=0)")))
plant("concatenation", "pointnet", "", edit((".expand(-1, -1, points.shape[-1])", "")))
plant("concatenation", "convlstm", "", edit(("self.hidden, height, width)", "self.hidden, height//2, width//2)")))

plant("addition", "resnet", "blocks.{1,2}.shortcut", attr(stride=[(1, 1)]))
plant("addition", "resnet", "blocks.{0,1}.conv1", attr(padding=[(0, 0), (2, 2)]))
plant("addition", "mobile", "{1,2}.depth", attr(padding=[(0, 0)]))
plant("addition", "mobile", "{1,2}.project", outs())
plant("addition", "gpt", "blocks.{0,1,2}.mlp.fc2", outs())
plant("addition", "gpt", "blocks.{0,1,2}.attn.out", outs())
plant("addition", "gpt", "position", outs())
plant("addition", "wavenet", "blocks.{0,1,2}.gate", attr(padding=[(0,), (1,)]))
plant("addition", "wavenet", "blocks.{1,2}.skip", outs())
plant("addition", "autoencoder", "decode.{0,3}", kernel(3, 5))
plant("addition", "translator", "position", outs())
plant("addition", "upscaler", "", edit(("scale_factor=2", "scale_factor=3")))
plant("addition", "gcn", "layers.{0,1,2}.own", outs())
plant("addition", "reader", "", edit((".mean(1))", ".mean(1)) + y")))

plant("reshape", "lenet", "", image(28, 36), 2)
plant("reshape", "lenet", "", edit(("x.view(-1, 16*5*5)", "x.view(-1, 16*4*4)")))
plant("reshape", "lenet", "conv2", outs(odd=True))
plant("reshape", "gpt", "blocks.{0,1,2}.attn.qkv", outs(odd=True))
plant("reshape", "vit", "blocks.{0,1}.attn.qkv", outs())
plant("reshape", "autoencoder", "", edit((".view(-1, 16, 7, 7)", ".view(-1, 16, 8, 8)")))
plant("reshape", "autoencoder", "back", outs(odd=True))
plant("reshape", "generator", "first", outs(odd=True))
plant("reshape", "generator", "", edit(("32, 4, 4)", "32, 4, 8)")))
plant("reshape", "crnn", "", edit(("channels*height)", "channels*width)")))
plant("reshape", "gpt", "blocks.{0,1,2}.attn",
    edit(("transpose(1, 2).reshape(batch, length, width)", "transpose(1, 2).view(batch, length, width)")))
plant("reshape", "perceiver", "", edit(("y.flatten(1)", "y.view(-1, 200)")))

plant("positions", "gpt", "", longer(17, 18, 20), 2)
plant("positions", "gpt", "position", ins(to=8))
plant("positions", "vit", "", image(24, 40, 48))
plant("positions", "vit", "", tensor("positions", lambda p: p[:, 1:], "a position too few"))
plant("positions", "translator", "", longer(26, 30))
plant("positions", "tagger", "", tensor("positions", lambda p: p[:8], "few positions"))


# The kinds without a repair. Where a pass through the model raises, the traceback knows the layer; where the loss or
# the backward pass raises, the plant says it.

def logits_of(output: Any) -> torch.Tensor:
    "The first tensor of what a model returns."
    while not torch.is_tensor(output): output = next(iter(output.values() if isinstance(output, dict) else output))
    return output


def score(model: nn.Module, args: tuple, kwargs: dict) -> torch.Tensor:
    "A loss that needs no targets."
    return logits_of(model(*args, **kwargs)).float().square().mean()


def code(use: Callable, note: str) -> Change: return Change(note, lambda site: None, use)


def backward(model, args, kwargs): score(model, args, kwargs).backward()


def on_meta(key: int | str = 0) -> Change: return given(key, lambda x, rng: x.to("meta"), "input on another device")


LAYER_ON_META = Change("on another device", lambda site: site.layer.to("meta"))

for name, where in {  # a convolution would not mind
        "tv_vit": f"{VIT}.mlp.0", "tv_mobilenetv3": "classifier.{0,3}", "timm_vit": "blocks.{0,1,2}.attn.qkv",
        "timm_mixer": "blocks.{0,1}.mlp_tokens.fc1", "hf_bert": "bert.encoder.layer.{0,1}.intermediate.dense",
        "hf_gpt2": "transformer.h.{0,1}.mlp.c_fc", "hf_distilbert": "distilbert.transformer.layer.{0,1}.ffn.lin2",
        "lenet": "fc{1,2}", "reader": "rnn", "gcn": "layers.{0,1}.own", "gpt": "position", "perceiver": "think",
        "textcnn": "embedding", "seq2seq": "query"}.items():
    plant("device", name, where, LAYER_ON_META)
for name, key in ("mlp", 0), ("tv_swin", 0), ("fusion", 1), ("gcn", 1): plant("device", name, "", on_meta(key))
plant("device", "reader", "", given("state", lambda s, rng: tuple(x.to("meta") for x in s), "state on another device"))
plant("device", "gpt", "", tensor("mask", lambda m: m.to("meta"), "a buffer on another device"))
plant("device", "tagger", "", tensor("positions", lambda m: m.to("meta"), "a buffer on another device"))


def beyond(key: int | str, *values: int) -> Change:
    "Some index is no row of the table."
    def change(x, rng):
        x = x.clone()
        x.view(-1)[rng.randrange(x.numel())] = rng.choice(values)
        return x
    return given(key, change, f"an index that does not exist{of_input(key)}")


for name, key, values in [("gpt", 0, (61, 99, -1)), ("tagger", 0, (67, -100)), ("reader", 0, (71,)),
                          ("textcnn", 0, (-1, 80)), ("seq2seq", 1, (53,)), ("recommender", 0, (30, 31)),
                          ("recommender", 1, (-1, 41)), ("fusion", 2, (9, 12)), ("translator", 0, (59,)),
                          ("hf_bert", "input_ids", (89, 30522)), ("hf_bert", "token_type_ids", (2, 5)),
                          ("hf_gpt2", "input_ids", (97, 50256)), ("hf_llama", "input_ids", (101, -100)),
                          ("hf_t5", "decoder_input_ids", (83, -100)), ("hf_distilbert", "input_ids", (-1, 89))]:
    plant("index", name, "", beyond(key, *values))


def classes(bad: Callable[[int], int], loss: Callable, note: str) -> Change:
    "A loss with a class that does not exist."
    def use(model, args, kwargs):
        logits = logits_of(model(*args, **kwargs))
        if len(args) + len(kwargs) == 1 and logits.ndim == 3: logits = logits.flatten(0, 1)  # words
        shape = logits.shape[:1] + logits.shape[2:]
        labels = torch.arange(shape.numel()).view(shape) % logits.shape[1]
        labels.view(-1)[-1] = bad(logits.shape[1])
        loss(logits, labels).backward()
    return code(use, note)


for name in "mlp", "lenet", "unet", "gpt", "tv_resnet", "timm_resnet", "tv_segment":
    plant("index", name, "", classes(lambda n: n, F.cross_entropy, "classes are counted from 1"), places={""})
for name in "vit", "timm_vit", "tv_mobilenetv3":
    plant("index", name, "", classes(lambda n: -1, nn.CrossEntropyLoss(), "a class of -1"), places={""})
for name in "unet", "tv_segment":
    plant("index", name, "", classes(lambda n: 255, nn.CrossEntropyLoss(), "pixels of 255"), places={""})
plant("index", "resnet", "", classes(
    lambda n: n + 3, lambda y, labels: F.nll_loss(y.log_softmax(1), labels), "more classes"), places={""})
for name, bad in ("hf_bert", 3), ("hf_vit", 10):
    def labelled(model, args, kwargs, bad=bad):
        batch = len(args[0]) if args else len(kwargs["input_ids"])
        model(*args, **kwargs, labels=torch.full((batch,), bad)).loss.backward()
    plant("index", name, "", code(labelled, "labels beyond the classes"))


# One sample, and a picture so small that its last maps are single pixels

def single(size: int | None = None) -> Change:
    def do(site: Site): site.args = [x[:1] for x in site.args]
    return Change("a single sample in train mode", do)


for name, size in {"tv_resnet": 32, "tv_resnext": 32, "tv_densenet": 16, "tv_googlenet": 32, "tv_shufflenet": 32,
                   "tv_mobilenetv2": 32, "tv_mobilenetv3": 16, "tv_segment": 64, "timm_resnet": 32,
                   "timm_efficientnet": 32, "timm_ghostnet": 32, "timm_dla": 32, "timm_res2net": 32,
                   "timm_densenet": 32, "timm_vovnet": 32, "timm_byobnet": 32, "hf_resnet": 16, "mlp": None}.items():
    plant("batch norm", name, "", single(), train=True, size=size)


# A layer changes in place what the backward pass needs

def in_place(net: str, where: str, *pairs: tuple[str, str], times: int = 1, note: str = ""):
    plant("in-place", net, where, edit(*pairs, note=note, use=backward), times, places={"@"})


def clobbered(new: Callable[[], nn.Module], child: str, note: str):
    "A layer that works in place behind one that needs its output."
    return Change(note, lambda site: site.replace(new()), backward), {f"@.{child}"}


in_place("tv_vit", VIT, ("return x + y", "return x.add_(y)"), times=2)
in_place("tv_vit", VIT, ("x = x + input", "x = input.add_(x)"))
in_place("timm_mixer", "blocks.{0,1}", ("x = x + self.drop_path(self.mlp_t", "x += self.drop_path(self.mlp_t"))
in_place("timm_swin", "layers.{0,1}.blocks.0", ("x = x + self.drop_path1(", "x += self.drop_path1("))
in_place("timm_cait", "blocks.{0,1}", ("x = x + self.drop_path(self.gamma_1", "x += self.drop_path(self.gamma_1"))
in_place("hf_gpt2", "transformer.h.{0,1}",
         ("hidden_states = attn_output + residual", "hidden_states = residual.add_(attn_output)"))
in_place("hf_gpt2", "transformer.h.{0,1}",
         ("residual + feed_forward_hidden_states", "residual.add_(feed_forward_hidden_states)"))
in_place("hf_t5", "{encoder.block.0.layer.1,decoder.block.1.layer.2}",
         ("hidden_states = hidden_states + self.drop", "hidden_states += self.drop"))
in_place("hf_bert", "bert.encoder.layer.{0,1}.attention.output",
         ("hidden_states + input_tensor", "input_tensor.add_(hidden_states)"))
in_place("gpt", "blocks.{0,1,2}", ("x = x + self.attn(", "x += self.attn("), times=2)
in_place("gpt", "blocks.{0,1,2}.attn", ("y = scores.softmax(-1) @ v", "y = scores.softmax(-1).mul_(.9) @ v"))
in_place("gpt", "blocks.{0,1,2}.mlp", ("return self.fc2(F.gelu(self.fc1(x)))",
                                       "h = F.gelu(self.fc1(x)); y = self.fc2(h); h.zero_(); return y"))
in_place("wavenet", "blocks.{0,1,2}", ("torch.tanh(a)*torch.sigmoid(b)", "torch.tanh(a).mul_(torch.sigmoid(b))"))
in_place("seq2seq", "", ("[:, :, None]).softmax(1)", "[:, :, None]).softmax(1).add_(.01)"))
in_place("gcn", "", ("adjacency).relu()", "adjacency).relu().add_(1)"))
in_place("resnet", "blocks.{0,1,2}", ("y = self.norm2(self.conv2(y))",
                                      "z = self.conv2(y)\n    y.clamp_(max=1)\n    y = self.norm2(z)"))
in_place("autoencoder", "", ("mean + spread.exp()*.1", "mean + spread.exp().mul_(.1)"))
for name, where, first, last in [
        ("mobile", "{1,2}.squeeze.4", nn.Sigmoid, nn.Hardtanh), ("generator", "ups.7", nn.Tanh, nn.ReLU),
        ("unet", "middle.2", nn.Sigmoid, nn.ELU)]:
    change, at = clobbered(lambda first=first, last=last: nn.Sequential(first(), last(inplace=True)), "1",
                           f"{last.__name__} in place behind {first.__name__}")
    plant("in-place", name, where, change, places=at)
for name, where in ("mlp", "{3,7,11}"), ("tv_vgg", "classifier.2"):
    plant("in-place", name, where, Change("dropout in place behind ReLU", attr(inplace=[True]).do, backward),
          places={"@"}, train=True)


def stepped(model, args, kwargs):
    "The optimizer steps between the forward and the backward pass."
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    backward(model, args, kwargs)
    loss = score(model, args, kwargs)
    optimizer.step()
    loss.backward()


for name in "mlp", "tv_convnext": plant("in-place", name, "", code(stepped, "a step too early"), places=ANYWHERE)


# A graph is gone through twice

def twice(model, args, kwargs):
    loss = score(model, args, kwargs)
    loss.backward()
    loss.backward()


def two_losses(model, args, kwargs):
    y = logits_of(model(*args, **kwargs))
    y.mean().backward()
    y.abs().mean().backward()


def summed(model, args, kwargs):
    "The losses are added up over the steps, as in a sum that is kept for the log."
    total = torch.zeros(())
    for _ in range(3):
        total = total + score(model, args, kwargs)
        total.backward()


def steps(model, args, kwargs):
    for _ in range(2): backward(model, args, kwargs)


for name in "mlp", "unet", "tv_resnet", "timm_vit", "hf_bert": plant(
        "second backward", name, "", code(twice, "twice"), places=ANYWHERE)
for name in "lenet", "autoencoder", "tv_swin", "hf_gpt2": plant(
        "second backward", name, "", code(two_losses, "two losses of one pass"), places=ANYWHERE)
for name in "gpt", "crnn", "timm_convnext", "hf_llama": plant(
        "second backward", name, "", code(summed, "a sum of losses"), places=ANYWHERE)
plant("second backward", "reader", "", edit(
    ("y, _ = self.rnn(self.embedding(tokens), state)",
     "y, self.kept = self.rnn(self.embedding(tokens), getattr(self, 'kept', state))"),
    note="the state of the last step is kept", use=steps), places={"", "rnn"})
plant("second backward", "seq2seq", "", edit(
    ("kept, state = self.read(self.words(source))",
     "kept, state = self.read(self.words(source), self.__dict__.get('last'))\n"
     "    self.__dict__['last'] = state"), note="the state of the last step is kept", use=steps), places={"", "read"})
plant("second backward", "gpt", "", edit(
    ("    x = self.token(tokens) + self.position(torch.arange(length))",
     "    if not hasattr(self, 'kept'): self.kept = self.position(torch.arange(length))\n"
     "    x = self.token(tokens) + self.kept"), note="positions of the first pass are kept", use=steps),
    places={"", "position"})
plant("second backward", "gcn", "layers.{0,1,2}", edit(
    ("return self.own(x) + adjacency @ self.others(x)",
     "self.kept = .9*getattr(self, 'kept', 0.) + self.others(x); return self.own(x) + adjacency @ self.kept"),
    note="a moving average of what was computed", use=steps), places={"@"})
plant("second backward", "convlstm", "", edit(
    ("h = c = film.new_zeros(batch, self.hidden, height, width)",
     "h, c = self.__dict__.get('last') or [film.new_zeros(batch, self.hidden, height, width)]*2"),
    ("    return self.out(h)", "    self.__dict__['last'] = h, c\n    return self.out(h)"),
    note="the state of the last step is kept", use=steps), places={"", "gates"})


# A loss that knows of no gradient

def after(change: Callable, note: str, only: bool = False) -> Change:
    "What the layer returns goes through a function; if `only`, no other layer is trained."
    def do(site: Site):
        forward = type(site.layer).forward
        derived(site.layer, forward=lambda self, *args, **kwargs: change(forward(self, *args, **kwargs)))
        if only:
            site.model.requires_grad_(False)
            site.layer.requires_grad_(True)
    return Change(note, do, backward)


def hidden(model, args, kwargs):
    with torch.no_grad(): loss = score(model, args, kwargs)
    loss.backward()


def number(model, args, kwargs): torch.tensor(score(model, args, kwargs).item()).backward()


def accuracy(model, args, kwargs):
    found = logits_of(model(*args, **kwargs)).argmax(1)
    (found == 0).float().mean().backward()


for name in "mlp", "tv_resnet", "hf_bert":
    plant("no gradient", name, "", Change("frozen", lambda site: site.model.requires_grad_(False), backward),
          places=ANYWHERE)
for name in "gpt", "timm_vit": plant("no gradient", name, "", code(hidden, "a pass in no_grad"), places=ANYWHERE)
for name in "lenet", "hf_gpt2": plant("no gradient", name, "", code(number, "a number of Python"), places=ANYWHERE)
for name in "mlp", "tv_vit": plant("no gradient", name, "", code(accuracy, "a loss of argmax"), places=ANYWHERE)
DETACHED = after(lambda y: y.detach(), "detached")
for name, where in [("mlp", "12"), ("unet", "last"), ("tv_densenet", "classifier"), ("timm_vit", "head"),
                    ("hf_gpt2", "lm_head"), ("gcn", "head"), ("wavenet", "last")]:
    plant("no gradient", name, where, DETACHED, places={"@"})
for name, where in ("lenet", "fc3"), ("pointnet", "head"):
    plant("no gradient", name, where, after(lambda y: torch.from_numpy(y.detach().numpy()), "through NumPy"),
          places={"@"})
for name, where in ("vit", "head"), ("tv_mobilenetv3", "classifier.3"):
    plant("no gradient", name, where, after(lambda y: (y > 0).float(), "cut off at zero"), places={"@"})
for name, where in ("fusion", "picture"), ("tv_convnext", "features.{1,3}"), ("hf_bert", "bert.encoder"):
    plant("no gradient", name, where, after(
        lambda y: y.detach() if torch.is_tensor(y) else type(y)(last_hidden_state=y[0].detach()),
        "detached, and nothing else is trained", only=True), places={"@"})
plant("no gradient", "gpt", "", edit(
    ("    return self.head(self.norm(x))", "    with torch.no_grad(): return self.head(self.norm(x))"),
    note="the end of the pass in no_grad", use=backward), places={""})
plant("no gradient", "lenet", "", edit(("return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))",
                                        "return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))).data"),
                                       note=".data", use=backward), places={""})


# One channel where three are taken, without a dimension for it or with one; arrays of NumPy

GREY = given(0, lambda x, rng: x[:, :1], "grey pictures")
FLAT = given(0, lambda x, rng: x[:, 0], "grey pictures without a dimension for the channel")
for name in ("tv_resnet", "tv_densenet", "tv_vit", "tv_swin", "tv_squeezenet", "timm_resnet", "timm_vit",
             "timm_convnext", "timm_mixer", "timm_nfnet", "hf_resnet", "hf_segformer", "hf_vit", "unet"):
    plant("one channel", name, "", GREY)
for name in "tv_resnet", "tv_vit", "tv_convnext", "timm_efficientnet", "timm_vit", "hf_resnet", "unet", "lenet":
    plant("one channel", name, "", FLAT)


def as_array(dtype: str, key: int | str = 0) -> Change:
    return given(key, lambda x, rng: x.numpy().astype(dtype), f"an array of {dtype}{of_input(key)}")


for name in "tv_resnet", "tv_vit", "timm_convnext", "timm_mixer", "mlp", "unet", "wavenet", "hf_segformer":
    plant("numpy", name, "", as_array("float32"))
for name in "tv_densenet", "tv_swin", "timm_resnet", "timm_vit", "lenet", "pointnet", "hf_vit", "crnn":
    plant("numpy", name, "", as_array("float64"))
for name, key in ("gpt", 0), ("textcnn", 0), ("recommender", 1), ("hf_bert", "input_ids"), ("hf_gpt2", "input_ids"):
    plant("numpy", name, "", as_array("int64", key))
plant("numpy", "tv_mobilenetv2", "", as_array("uint8"))


# Which of them are drawn: of each kind, so many of torchvision, timm, transformers, and written here

QUOTAS = {
    "features": (12, 12, 15, 12), "channels": (15, 14, 5, 9), "groups": (8, 8, 2, 6), "kernel": (9, 8, 3, 6),
    "batch dimension": (7, 7, 5, 7), "channels last": (9, 8, 4, 4), "dtype": (7, 7, 10, 6), "heads": (4, 6, 9, 5),
    "mask": (0, 0, 15, 9), "concatenation": (9, 8, 5, 11), "addition": (9, 10, 10, 10), "reshape": (7, 7, 8, 9),
    "positions": (4, 5, 9, 6)}
COUNTS = {"device": 18, "index": 18, "batch norm": 16, "in-place": 16, "second backward": 15, "no gradient": 17}
ORDER = "torchvision", "timm", "transformers", "hand-written"


# Kinds of which less is repaired, or of which nothing was; each error that is offered is drawn

WORST = "one channel", "numpy", "device", "second backward", "class"
OF_CLASSES = {"classes are counted from 1", "a class of -1", "pixels of 255", "more classes",
              "labels beyond the classes"}


def drawn(found: list[Planted], count: int, what: str) -> list[Planted]:
    "So many of them, at random, in their own order."
    if len(found) < count: raise ValueError(f"{what}: {count} are asked for, and {len(found)} are offered")
    chosen = set(random.Random(crc32(what.encode())).sample(range(len(found)), count))
    return [one for i, one in enumerate(found) if i in chosen]


def all_cases(seed: str = "") -> list[Planted]:
    "500 errors."
    found, of_seed = [], offered(seed)
    for kind, counts in QUOTAS.items():
        for source, count in zip(ORDER, counts):
            of = [one for one in of_seed if one.kind == kind and one.source == source]
            found += drawn(of, count, f"{seed}{kind}, {source}")
    for kind, count in COUNTS.items():
        found += drawn([one for one in of_seed if one.kind == kind], count, f"{seed}{kind}")
    return found


def worst_cases(seed: str) -> list[Planted]:
    "All errors of the kinds in WORST; a class that does not exist is one of the errors with an index."
    found = []
    for one in offered(seed):
        if one.name.partition(": ")[2] in OF_CLASSES: found.append(replace(one, kind="class"))
        elif one.kind in WORST: found.append(one)
    return sorted(found, key=lambda one: WORST.index(one.kind))


def missing() -> list[str]:
    "The libraries that are not there; their cases are left out."
    return [name for name in ("torchvision", "timm", "transformers") if importlib.util.find_spec(name) is None]

"""Checkpoints that do not fit the names or the form of a model, and what right is for each tensor.

A kind of misfit is a function of (the state to be found, the model, a generator) that returns (checkpoint, truth), or
None for a model it does not apply to. The model has other weights than the state, so its values give nothing away. The
truth names for each tensor of the model the entries of the checkpoint it comes from and how (`rebuild` does that), or
that it is missing. Where nothing in names and shapes decides, a tensor is undecidable: whatever comes out for it must
not be called certain. What counts as right is in `checkpoint_judges.py`.

    for net, kind, model, checkpoint, truth in misfits(): ...

A half load is a state for `load_state_dict(strict=False)`, with what should be said of it: `loud` if little or nothing
comes, not if all that is missing is a new head or a few new layers."""
import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.bench.checkpoint_nets import NETS, make

State = dict[str, Tensor]
LEAVES = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


def same(t: Tensor) -> Tensor: return t


@dataclass
class Source:
    "The entries that a tensor of the model comes from, and what makes it of them."
    names: tuple[str, ...]
    change: Callable[..., Tensor] = same


@dataclass
class Truth:
    "What right is. Tensors of the model that are not in `right` are missing from the checkpoint."
    right: State                                   # what must come out, by the names of the model
    sources: dict[str, Source]                     # where it comes from
    unused: set[str]                               # entries that are no tensor of the model
    root: tuple[str, ...] = ()                     # the keys that lead to the entries
    undecidable: set[str] = field(default_factory=set)
    near: set[str] = field(default_factory=set)    # computed, so equal up to rounding
    model: nn.Module | None = None                 # the model of this case, if it is not the plain one


def rebuild(checkpoint: dict, truth: Truth) -> State:
    "The tensors that come out if one knows where they come from."
    for key in truth.root: checkpoint = checkpoint[key]
    return {name: source.change(*map(checkpoint.get, source.names)) for name, source in truth.sources.items()}


class Draft:
    "A checkpoint in the making. `rename` gives the entry of a tensor; those with None are left out."
    def __init__(self, state: State, rename: Callable[[str], str | None] | None = None):
        self.state, self.rename = state, rename or str
        self.entries: State = {}
        self.right: State = {}
        self.sources: dict[str, Source] = {}
        self.unused: set[str] = set()

    def put(self, name: str, entry: str | None = None, forth: Callable = same, back: Callable = same,
            right: Tensor | None = None):
        "One tensor becomes one entry."
        entry = entry or self.rename(name)
        if entry is None: return
        assert entry not in self.entries, entry
        self.entries[entry] = forth(self.state[name]).contiguous()
        self.right[name] = self.state[name] if right is None else right
        self.sources[name] = Source((entry,), back)

    def join(self, names: list[str], entry: str, dim: int = 0):
        "Several tensors become one entry. A name that the model lacks is filled with zeros."
        parts = [self.state.get(name) for name in names]
        full = next(part for part in parts if part is not None)
        parts = [torch.zeros_like(full) if part is None else part for part in parts]
        self.entries[entry] = torch.cat(parts, dim)
        start = 0
        for name, part in zip(names, parts):
            size = part.shape[dim]
            if name in self.state:
                self.right[name] = self.state[name]
                self.sources[name] = Source((entry,), lambda t, start=start, size=size: t.narrow(dim, start, size))
            start += size

    def split(self, name: str, entries: list[str], forth: Callable, back: Callable):
        "One tensor becomes several entries."
        for entry, part in zip(entries, forth(self.state[name])): self.entries[entry] = part.contiguous()
        self.right[name] = self.state[name]
        self.sources[name] = Source(tuple(entries), back)

    def extra(self, entry: str, tensor: Tensor):
        "An entry that is no tensor of the model."
        self.entries[entry] = tensor
        self.unused.add(entry)

    def all(self, taken: set[str] | None = None) -> "Draft":
        "Put every tensor that is not `taken`."
        for name in self.state:
            if name not in self.right and name not in (taken or ()): self.put(name)
        return self

    def done(self, wrap: Callable[[State], dict] = same, root: tuple[str, ...] = (), **more) -> tuple[dict, Truth]:
        return wrap(self.entries), Truth(self.right, self.sources, self.unused, root, **more)


@dataclass
class Misfit:
    name: str
    hard: bool
    make: Callable[[State, nn.Module, torch.Generator], tuple[dict, Truth] | None]


MISFITS: dict[str, Misfit] = {}


def misfit(name: str, hard: bool = False):
    def enter(f):
        MISFITS[name] = Misfit(name, hard, f)
        return f
    return enter


# What kinds need to know about a model

def shapes_of(state: State) -> dict[str, tuple]: return {name: tuple(t.shape) for name, t in state.items()}


def ties(model: nn.Module) -> list[list[str]]:
    "Groups of names of one tensor, as they are in the state dict."
    groups = defaultdict(list)
    for name, t in model.state_dict(keep_vars=True).items(): groups[id(t)].append(name)
    return [names for names in groups.values() if len(names) > 1]


def tied(model: nn.Module) -> set[str]: return {name for names in ties(model) for name in names}


def owner(model: nn.Module, name: str) -> nn.Module: return model.get_submodule(name.rpartition(".")[0])


def is_linear(model: nn.Module, name: str) -> bool:
    "Is this the matrix of a linear layer?"
    layer = owner(model, name)
    return name.endswith("weight") and (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D")


def head_of(model: nn.Module) -> str | None:
    "The last linear layer, if it is a head with a matrix of its own."
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    head = linear[-1] if linear else ""
    return head if re.search("head|classif|fc|proj_out", head) and head + ".weight" not in tied(model) else None


def stack_of(state: State) -> tuple[str, int] | None:
    "The list with most tensors whose last two parts have equal shapes: its prefix and the number of its last part."
    lists: dict = defaultdict(lambda: defaultdict(dict))
    for name, t in state.items():
        for found in re.finditer(r"(?<=[._])(\d+)\.", name):
            lists[name[:found.start()]][int(found[1])][name[found.end():]] = tuple(t.shape)
    sizes = {}
    for prefix, parts in lists.items():
        last = max(parts)
        if last > 0 and parts[last] == parts.get(last - 1) and len(parts[last]) > 2:
            sizes[prefix, last] = sum(map(len, parts.values()))
    return max(sizes, key=sizes.get) if sizes else None


def numbered_part(part: str) -> str | None:
    "The number of a part of a list, as in `3` or `encoder_layer_3`."
    found = re.fullmatch(r"(?:.*layer_)?(\d+)", part)
    return found and found[1]


def interchangeable(state: State) -> set[str]:
    "Tensors below a part of a layer that another part of this layer equals in all names and shapes but its own."
    parts: dict = defaultdict(lambda: defaultdict(dict))
    for name, t in state.items():
        path = name.split(".")
        for i, part in enumerate(path):
            if part not in LEAVES and not numbered_part(part):
                parts[".".join(path[:i])][part][".".join(path[i + 1:])] = tuple(t.shape)
    found = set()
    for parent, inner in parts.items():
        for a, b in combinations(inner, 2):
            if inner[a] == inner[b]:
                found |= {".".join(filter(None, [parent, part, rest])) for part in (a, b) for rest in inner[part]}
    return found - all_alike(state)


def swappable(state: State) -> set[str]:
    "Tensors that have a segment which could change its place with another everywhere, and no shape would differ."
    paths = {tuple(name.split(".")): tuple(t.shape) for name, t in state.items()}
    users = defaultdict(list)
    for path in paths:
        for part in dict.fromkeys(path):
            if part not in LEAVES and not numbered_part(part): users[part].append(path)
    kinds = defaultdict(list)
    for part, own in users.items(): kinds[tuple(sorted(paths[path] for path in own))].append(part)
    found = set()
    for alike in kinds.values():
        for a, b in combinations(alike, 2):
            swap = {a: b, b: a}
            own = users[a] + users[b]
            if all(paths.get(tuple(swap.get(p, p) for p in path)) == paths[path] for path in own): found.update(own)
    return {".".join(path) for path in found} - all_alike(state)


def by_shape(state: State) -> list[list[str]]:
    names = defaultdict(list)
    for name, t in state.items(): names[t.shape, t.dtype].append(name)
    return list(names.values())


def all_alike(state: State) -> set[str]:
    "Tensors that equal all others of their shape, so that any of them is right."
    return {name for group in by_shape(state) for name in group
            if all(torch.equal(state[group[0]], state[other]) for other in group)}


def shared_shapes(state: State) -> set[str]:
    "Tensors that another tensor has the shape of, with other values."
    return set(state) - all_alike(state)


def inject(names, rename: Callable[[str], str]) -> bool:
    "Do all names stay different?"
    names = list(names)
    return len({rename(name) for name in names}) == len(names)


def noise(t: Tensor, g: torch.Generator, size: float = 1.) -> Tensor:
    return torch.randn(t.shape, generator=g)*size


def adam_state(state: State) -> dict:
    "What Adam keeps of each parameter, by number."
    return {"state": {i: {"step": torch.tensor(100.), "exp_avg": t*1e-3, "exp_avg_sq": t*t*1e-3}
                      for i, t in enumerate(state.values())},
            "param_groups": [{"lr": 1e-3, "params": list(range(len(state)))}]}


def averaged(state: State) -> State:
    "A moving average that is near the weights."
    return {name: .99*t + .001*t.abs() if t.is_floating_point() else t.clone() for name, t in state.items()}


# Easy: wrappers and prefixes

def prefixed(prefix: str): return lambda state, model, g: Draft(state, lambda name: prefix + name).all().done()


misfit("module. of DDP")(prefixed("module."))
misfit("_orig_mod. of compile")(prefixed("_orig_mod."))
misfit("_orig_mod.module. of both")(prefixed("_orig_mod.module."))


@misfit("Lightning checkpoint")
def lightning(state, model, g):
    draft = Draft(state, lambda name: "model." + name).all()
    draft.extra("criterion.weight", torch.rand(7, generator=g))
    return draft.done(lambda entries: {"epoch": 3, "global_step": 1200, "pytorch-lightning_version": "2.4.0",
        "state_dict": entries, "loops": {"fit_loop": {"state_dict": {}}}, "optimizer_states": [adam_state(state)],
        "lr_schedulers": [], "hparams_name": "kwargs"}, ("state_dict",))


@misfit("beside optimizer and EMA")
def beside(state, model, g):
    return Draft(state).all().done(lambda entries: {"optimizer": adam_state(state), "ema": averaged(state),
        "model": entries, "epoch": 12, "args": {"lr": 1e-3}}, ("model",))


@misfit("DeepSpeed checkpoint")
def deepspeed(state, model, g):
    return Draft(state).all().done(lambda entries: {"module": entries, "buffer_names": [], "global_steps": 7,
        "optimizer": None, "ds_version": "0.14.0"}, ("module",))


@misfit("averaged model")
def averaged_model(state, model, g):
    draft = Draft(state, lambda name: "module." + name)
    draft.extra("n_averaged", torch.tensor(20))
    return draft.all().done()


@misfit("wrappers inside of names")
def wrappers(state, model, g):
    def rename(name):
        return "_fsdp_wrapped_module." + re.sub(r"(?<=[._]\d\.)", "_checkpoint_wrapped_module.", name, count=1)
    return Draft(state, rename).all().done()


@misfit("a prefix taken off")
def taken_off(state, model, g):
    counts = defaultdict(int)
    for name in state: counts[name.partition(".")[0] + "."] += 1
    first = max(counts, key=counts.get)
    if counts[first] < .6*len(state): return None
    inner = {name for name in state if name.startswith(first)}
    if not inject(inner, lambda name: name.removeprefix(first)): return None
    return Draft(state, lambda name: name.removeprefix(first) if name in inner else None).all().done()


@misfit("inside of a larger model")
def inside(state, model, g):
    draft = Draft(state, lambda name: "visual.trunk." + name).all()
    for i in range(4):
        for name, shape in {"attn.weight": (52, 52), "attn.bias": (52,), "mlp.weight": (76, 52)}.items():
            draft.extra(f"text.layers.{i}.{name}", torch.randn(shape, generator=g))
    draft.extra("logit_scale_of_both", torch.tensor(2.6))
    return draft.done()


@misfit("a head of another size")
def other_head(state, model, g):
    head = head_of(model)
    if head is None: return None
    taken = {name for name in state if name.startswith(head + ".")}
    draft = Draft(state).all(taken)
    for name in taken: draft.extra(name, torch.randn(state[name].shape[0] + 3, *state[name].shape[1:], generator=g))
    return draft.done()


@misfit("counts of batches missing")
def no_counts(state, model, g):
    if not any(name.endswith("num_batches_tracked") for name in state): return None
    return Draft(state, lambda name: None if name.endswith("num_batches_tracked") else name).all().done()


@misfit("buffers of an older release")
def old_buffers(state, model, g):
    draft = Draft(state).all()
    asked = [name for name in state if re.search(r"\.(qkv|c_attn|q\w*)\.weight", name)]
    places = {name.rsplit(".", 2)[0] for name in asked}
    if not places: return None
    for place in places:
        draft.extra(place + ".masked_bias", torch.tensor(-1e4))
        draft.extra(place + ".rotary_emb.inv_freq", torch.rand(5, generator=g))
    return draft.done()


@misfit("LoRA around it")
def lora(state, model, g):
    usual = re.compile("q|v|attn|fc|mlp|dense|classif|head")
    wrapped = {name for name in state if is_linear(model, name) and usual.search(name)} - tied(model)
    if not wrapped: return None
    layers = {name.rpartition(".")[0] for name in wrapped}

    def rename(name):
        layer, _, leaf = name.rpartition(".")
        return f"base_model.model.{layer}.base_layer.{leaf}" if layer in layers else "base_model.model." + name
    draft = Draft(state, rename).all()
    for name in wrapped:
        layer = "base_model.model." + name.rpartition(".")[0]
        rows, columns = state[name].shape
        draft.extra(layer + ".lora_A.default.weight", torch.randn(4, columns, generator=g))
        draft.extra(layer + ".lora_B.default.weight", torch.randn(rows, 4, generator=g))
    return draft.done()


@misfit("a tied weight left out")
def untied(state, model, g):
    groups = ties(model)
    if not groups: return None
    first = {name: names[0] for names in groups for name in names[1:]}
    draft = Draft(state).all(set(first))
    for name, other in first.items():
        draft.right[name] = state[name]
        draft.sources[name] = Source((other,))
    return draft.done()


def plain_layers(model: nn.Module) -> list[str]:
    "Some layers that a parametrization is usual for."
    shared = tied(model)
    names = [name for name, layer in model.named_modules()
             if type(layer) in (nn.Linear, nn.Conv2d) and layer.weight.ndim > 1 and name + ".weight" not in shared]
    return names[:len(names)//2]


def parametrized(state: State, model: nn.Module, way: Callable, rename: Callable) -> tuple[dict, Truth] | None:
    "The model with a parametrization, and a checkpoint that has the names of the older way to do it."
    names = plain_layers(model)
    if not names: return None
    model = copy.deepcopy(model)
    model.load_state_dict(state)
    for name in names: way(model.get_submodule(name))
    new = {name: t.detach().clone() for name, t in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters(): p.normal_()
    return Draft(new, rename).all().done(model=model)


@misfit("weight_norm, older names")
def older_weight_norm(state, model, g):
    def rename(name):
        name = name.replace("parametrizations.weight.original0", "weight_g")
        return name.replace("parametrizations.weight.original1", "weight_v")
    return parametrized(state, model, parametrizations.weight_norm, rename)


@misfit("spectral_norm, older names")
def older_spectral_norm(state, model, g):
    def rename(name):
        name = name.replace("parametrizations.weight.original", "weight_orig")
        return re.sub(r"parametrizations\.weight\.0\._([uv])$", r"weight_\1", name)
    return parametrized(state, model, parametrizations.spectral_norm, rename)


@misfit("weight_norm to be folded in")
def folded_weight_norm(state, model, g):
    names = [name + ".weight" for name in plain_layers(model)]
    if not names: return None
    draft = Draft(state)

    def norm(t): return t.flatten(1).norm(dim=1).view(-1, *[1]*(t.ndim - 1))
    for name in names:
        factor = 1 + torch.rand(len(state[name]), *[1]*(state[name].ndim - 1), generator=g)
        draft.split(name, [name + "_g", name + "_v"], lambda t, factor=factor: (norm(t), t*factor),
                    lambda scale, v: v*(scale/norm(v)))
    return draft.all().done(near=set(names))


@misfit("rounded to bfloat16")
def rounded(state, model, g, rename=None, dtype=torch.bfloat16):
    draft = Draft(state, rename)
    for name, t in state.items():
        if not t.is_floating_point(): draft.put(name)
        else: draft.put(name, None, lambda t: t.to(dtype), lambda t: t.float(), t.to(dtype).float())
    return draft.done()


# Hard: other names

SYNONYMS = dict(pair.split(":") for pair in """
    layers:blocks layer:blocks blocks:layers h:blocks block:layers stages:levels attention:attn attn:attention
    self_attn:attention self_attention:attn SelfAttention:self_attn EncDecAttention:cross_attn
    encoder_attn:cross_attention query:q_proj key:k_proj value:v_proj q_proj:query
    k_proj:key v_proj:value q_lin:query k_lin:key v_lin:value
    o_proj:out_proj out_lin:out_proj LayerNorm:layer_norm layer_norm:norm layernorm:norm norm:layer_norm norm1:ln_1
    norm2:ln_2 ln_1:norm1 ln_2:norm2 ln_f:final_norm bn1:norm1 bn2:norm2 bn3:norm3 bn:norm conv1:conv_1 conv2:conv_2
    conv3:conv_3 fc1:linear1 fc2:linear2 lin1:fc1 lin2:fc2 c_fc:fc_in head:classifier classifier:head fc:classifier
    embeddings:embedding word_embeddings:token_embedding position_embeddings:position_embedding wte:token_embedding
    wpe:position_embedding embed_tokens:token_embedding embed_positions:position_embedding patch_embed:patch_embedding
    pos_embed:pos_embedding cls_token:class_token class_token:cls_token features:backbone mlp:ffn ffn:mlp
    downsample:shortcut layer1:stage1 layer2:stage2 layer3:stage3 layer4:stage4 input_layernorm:attention_norm
    post_attention_layernorm:ffn_norm gate_proj:gate up_proj:up down_proj:down trunk_output:stages mixer:ssm""".split())


def by_segment(words: dict[str, str]) -> Callable[[str], str]:
    return lambda name: ".".join(words.get(part, part) for part in name.split("."))


def synonymous(state: State) -> Callable[[str], str] | None:
    rename = by_segment(SYNONYMS)
    changed = sum(rename(name) != name for name in state)
    return rename if changed > len(state)/3 and inject(state, rename) else None


@misfit("synonyms", hard=True)
def synonyms(state, model, g):
    rename = synonymous(state)
    return rename and Draft(state, rename).all().done()


@misfit("synonyms, entries in another order", hard=True)
def synonyms_shuffled(state, model, g):
    rename = synonymous(state)
    if rename is None: return None
    names = list(state)
    order = torch.randperm(len(names), generator=g).tolist()
    return Draft({names[i]: state[names[i]] for i in order}, rename).all().done()


@misfit("synonyms, in bfloat16", hard=True)
def synonyms_rounded(state, model, g):
    rename = synonymous(state)
    return rename and rounded(state, model, g, rename)


def invented(state: State, g: torch.Generator) -> Callable[[str], str]:
    "Every segment but numbers and the leaves has a word that says nothing."
    parts = sorted({part for name in state for part in name.split(".")} - LEAVES)
    order = torch.randperm(len(parts), generator=g).tolist()
    words = [f"{a}{b}{c}" for a in "bdfglmnprstz" for b in "aeiou" for c in ("ko", "mi", "ru", "ta", "ve", "xu")]
    new = {part: words[i] for part, i in zip(parts, order)}
    return by_segment(new | {part: part if part.isdigit() else f"part_{numbered_part(part)}"
                             for part in parts if numbered_part(part)})


@misfit("invented words", hard=True)
def invented_words(state, model, g):
    return Draft(state, invented(state, g)).all().done(undecidable=swappable(state))


@misfit("invented words, entries in another order", hard=True)
def invented_shuffled(state, model, g):
    names = list(state)
    order = torch.randperm(len(names), generator=g).tolist()
    draft = Draft({names[i]: state[names[i]] for i in order}, invented(state, g)).all()
    return draft.done(undecidable=swappable(state))


@misfit("lists from 1", hard=True)
def from_one(state, model, g):
    def rename(name): return ".".join(str(int(part) + 1) if part.isdigit() else part for part in name.split("."))
    return Draft(state, rename).all().done() if sum(rename(name) != name for name in state) > 3 else None


@misfit("layers numbered through", hard=True)
def numbered(state, model, g):
    numbers = {layer: i for i, layer in enumerate(dict.fromkeys(name.rpartition(".")[0] for name in state))}

    def rename(name):
        layer, _, leaf = name.rpartition(".")
        return f"{numbers[layer]}.{leaf}"
    return Draft(state, rename).all().done(undecidable=interchangeable(state))


def opaque(state: State, numbers: list[int]) -> tuple[dict, Truth]:
    names = {name: f"p{i:04}" for name, i in zip(state, numbers)}
    return Draft(state, names.get).all().done(undecidable=shared_shapes(state))


@misfit("opaque names, in order", hard=True)
def opaque_names(state, model, g): return opaque(state, list(range(len(state))))


@misfit("opaque names, in another order", hard=True)
def opaque_shuffled(state, model, g):
    names = list(state)
    order = torch.randperm(len(names), generator=g).tolist()
    return opaque({names[i]: state[names[i]] for i in order}, torch.randperm(len(names), generator=g).tolist())


def is_norm(model: nn.Module, name: str) -> bool: return "norm" in type(owner(model, name)).__name__.lower()


@misfit("gamma and beta", hard=True)
def gamma_beta(state, model, g):
    words = {"weight": "gamma", "bias": "beta"}

    def rename(name):
        layer, _, leaf = name.rpartition(".")
        return f"{layer}.{words[leaf]}" if leaf in words and is_norm(model, name) else name
    if not inject(state, rename) or all(rename(name) == name for name in state): return None
    return Draft(state, rename).all().done()


@misfit("a layer too few, synonyms", hard=True)
def too_few(state, model, g):
    stack, rename = stack_of(state), synonymous(state) or str
    if stack is None: return None
    last = f"{stack[0]}{stack[1]}."
    return Draft(state, rename).all({name for name in state if name.startswith(last)}).done()


@misfit("a layer too many, synonyms", hard=True)
def too_many(state, model, g):
    stack, rename = stack_of(state), synonymous(state) or str
    if stack is None: return None
    draft = Draft(state, rename).all()
    last = f"{stack[0]}{stack[1]}."
    for name, t in state.items():
        if not name.startswith(last) or not t.is_floating_point(): continue
        draft.extra(rename(f"{stack[0]}{stack[1] + 1}.{name[len(last):]}"), t*(1 + noise(t, g, .3)))
    return draft.done()


# Hard: another form

@misfit("linear layers transposed", hard=True)
def transposed(state, model, g):
    draft, square = Draft(state), set()
    for name, t in state.items():
        if not is_linear(model, name): continue
        draft.put(name, None, lambda t: t.T, lambda t: t.T)
        if t.shape[0] == t.shape[1]: square.add(name)
    return draft.all().done(undecidable=square) if draft.entries else None


@misfit("layout and names of Flax", hard=True)
def flax(state, model, g):
    draft, unclear = Draft(state), set()
    words = {"running_mean": "mean", "running_var": "var"}
    for name, t in state.items():
        layer, (start, _, leaf) = owner(model, name), name.rpartition(".")
        if leaf == "weight" and is_linear(model, name): draft.put(name, start + ".kernel", lambda t: t.T, lambda t: t.T)
        elif leaf == "weight" and isinstance(layer, nn.Conv2d):
            draft.put(name, start + ".kernel", lambda t: t.permute(2, 3, 1, 0), lambda t: t.permute(3, 2, 0, 1))
        elif leaf == "weight" and is_norm(model, name): draft.put(name, start + ".scale")
        elif leaf == "weight" and isinstance(layer, nn.Embedding): draft.put(name, start + ".embedding")
        elif leaf in words: draft.put(name, f"{start}.{words[leaf]}")
        elif leaf != "num_batches_tracked": draft.put(name)
        turned = name in draft.sources and draft.sources[name].change is not same
        if turned and t.shape[0] == t.shape[1]: unclear.add(name)
    return draft.done(undecidable=unclear)


@misfit("1×1 convolutions as linear layers", hard=True)
def flat_convolutions(state, model, g):
    draft = Draft(state)
    for name, t in state.items():
        if t.ndim == 4 and t.shape[2:] == (1, 1) and t.shape[1] > 1:
            draft.put(name, None, lambda t: t.flatten(1), lambda t: t[:, :, None, None])
    return draft.all().done() if draft.entries else None


@misfit("first dimensions of one left out", hard=True)
def squeezed(state, model, g):
    draft = Draft(state)
    for name, t in state.items():
        if t.ndim > 1 and t.shape[0] == 1 and name.rpartition(".")[2] not in LEAVES:
            draft.put(name, None, lambda t: t.flatten(0, 1), lambda t: t[None] if t.ndim > 1 else t.view(1, 1, -1))
    return draft.all().done() if all(rebuilt(draft, name) for name in draft.entries) and draft.entries else None


def rebuilt(draft: Draft, name: str) -> bool:
    source = draft.sources[name]
    return source.change(draft.entries[source.names[0]]).shape == draft.state[name].shape


TRIPLES = [("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v")]


def joined(state: State, word: str, rename: Callable[[str], str] | None = None) -> Draft | None:
    "q, k and v of each attention in one entry. Where k alone has no bias, its part is zeros."
    draft, taken = Draft(state, rename), set()
    for name in state:
        for q, k, v in TRIPLES:
            start, _, leaf = name.rpartition(f".{q}.")
            names = [f"{start}.{part}.{leaf}" for part in (q, k, v)]
            if not start or names[2] not in state: continue
            draft.join(names, draft.rename(f"{start}.{word}.{leaf}"))
            taken.update(names)
    return draft.all(taken) if taken else None


@misfit("q, k and v joined", hard=True)
def qkv_joined(state, model, g):
    draft = joined(state, "qkv")
    return draft and draft.done()


@misfit("q, k and v joined under a name that says nothing", hard=True)
def fused(state, model, g):
    draft = joined(state, "fused")
    if draft is None: return None
    entries = [source.names[0] for source in draft.sources.values()]
    several = {name for name, source in draft.sources.items() if entries.count(source.names[0]) > 1}
    return draft.done(undecidable=several)


@misfit("q, k and v split", hard=True)
def qkv_split(state, model, g):
    draft, unclear = Draft(state), set()
    for name, t in state.items():
        found = re.fullmatch(r"(.*?)(qkv\.|in_proj_|c_attn\.|query_key_value\.)(weight|bias)", name)
        if not found or t.shape[0] % 3 and t.shape[-1] % 3: continue
        start, way, leaf = found.groups()
        entries = [f"{start}{part}_proj.{leaf}" for part in "qkv"]
        if way == "query_key_value.":  # three rows of each head in turn
            heads = model.config.num_attention_heads
            draft.split(name, entries, lambda t, heads=heads: [part.flatten(0, 1) for part in
                        t.view(heads, 3, -1, *t.shape[1:]).unbind(1)], lambda *parts, heads=heads: torch.stack(
                        [part.view(heads, -1, *part.shape[1:]) for part in parts], 1).flatten(0, 2))
            unclear.add(name)
            continue
        dim = t.ndim - 1 if way == "c_attn." else 0
        draft.split(name, entries, lambda t, dim=dim: t.chunk(3, dim), lambda *parts, dim=dim: torch.cat(parts, dim))
    return draft.all().done(undecidable=unclear) if draft.entries else None


# Hard: the names of another code base

def by_rules(rules: str) -> Callable[[str], str]:
    "Each line is a pattern and what takes its place, in order."
    pairs = [line.split() for line in rules.strip().splitlines()]

    def rename(name):
        for pattern, *new in pairs: name = re.sub(pattern, new[0] if new else "", name)
        return name
    return rename


META = by_rules(r"""
    ^model\.
    ^embed_tokens tok_embeddings
    self_attn\.([qkvo])_proj attention.w\1
    mlp\.gate_proj feed_forward.w1
    mlp\.down_proj feed_forward.w2
    mlp\.up_proj feed_forward.w3
    input_layernorm attention_norm
    post_attention_layernorm ffn_norm
    ^lm_head output""")
DETECTRON = by_rules(r"""
    ^conv1\. stem.conv1.
    ^bn1\. stem.conv1.norm.
    ^layer(\d) res\1
    ^res1 res2_
    ^res4 res5
    ^res3 res4
    ^res2\. res3.
    ^res2_ res2
    \.bn(\d)\. .conv\1.norm.
    downsample\.0 shortcut
    downsample\.1 shortcut.norm
    downsample\.2 shortcut.norm2
    ^fc linear""")
OTHERS: dict[str, Callable[[str], str | None]] = {
    "torchvision resnet18": DETECTRON,
    "torchvision resnext": DETECTRON,
    "torchvision vgg": by_rules(r"""
        features\.0\. conv1_1.
        features\.1\. bn1_1.
        features\.4\. conv2_1.
        features\.5\. bn2_1.
        features\.8\. conv3_1.
        features\.9\. bn3_1.
        features\.11\. conv3_2.
        features\.12\. bn3_2.
        features\.15\. conv4_1.
        features\.16\. bn4_1.
        features\.18\. conv4_2.
        features\.19\. bn4_2.
        classifier\.0 fc6
        classifier\.3 fc7
        classifier\.6 fc8"""),
    "torchvision densenet": by_rules(r"(denselayer\d+\.(?:norm|conv))(\d) \1.\2"),
    "torchvision vit": by_rules(r"""
        ^class_token cls_token
        ^conv_proj patch_embed.proj
        ^encoder.pos_embedding pos_embed
        ^encoder\.layers\.encoder_layer_ blocks.
        ^encoder\.ln norm
        ln_ norm
        self_attention\.in_proj_ attn.qkv.
        self_attention\.out_proj attn.proj
        mlp\.0 mlp.fc1
        mlp\.3 mlp.fc2
        ^heads\.head head"""),
    "torchvision swin": by_rules(r"""
        ^features\.0\.0 patch_embed.proj
        ^features\.0\.2 patch_embed.norm
        ^features\.1 layers.0.blocks
        ^features\.3 layers.1.blocks
        ^features\.5 layers.2.blocks
        ^features\.7 layers.3.blocks
        ^features\.2 layers.0.downsample
        ^features\.4 layers.1.downsample
        ^features\.6 layers.2.downsample
        mlp\.0 mlp.fc1
        mlp\.3 mlp.fc2"""),
    "torchvision convnext": by_rules(r"""
        ^features\.0 stem
        ^features\.1 stages.0.blocks
        ^features\.3 stages.1.blocks
        ^features\.5 stages.2.blocks
        ^features\.7 stages.3.blocks
        ^features\.2 stages.1.downsample
        ^features\.4 stages.2.downsample
        ^features\.6 stages.3.downsample
        block\.0 conv_dw
        block\.2 norm
        block\.3 mlp.fc1
        block\.5 mlp.fc2
        layer_scale gamma
        classifier\.0 head.norm
        classifier\.2 head.fc"""),
    "timm vit": by_rules(r"""
        ^cls_token class_token
        ^pos_embed encoder.pos_embedding
        ^patch_embed\.proj conv_proj
        ^blocks\. encoder.layers.encoder_layer_
        ^norm encoder.ln
        \.norm(\d) .ln_\1
        attn\.qkv\. self_attention.in_proj_
        attn\.proj self_attention.out_proj
        mlp\.fc1 mlp.0
        mlp\.fc2 mlp.3
        ^head heads.head"""),
    "timm convnext": by_rules(r"""
        ^stem downsample_layers.0
        stages\.(\d)\.downsample downsample_layers.\1
        blocks\.
        conv_dw dwconv
        mlp\.fc pwconv
        head\.fc head
        head\.norm norm"""),
    "timm resnet50d": DETECTRON,
    "transformers roberta": by_rules(r"""
        ^roberta\. encoder.sentence_encoder.
        embeddings\.word_embeddings embed_tokens
        embeddings\.position_embeddings embed_positions
        embeddings\.token_type_embeddings embed_segments
        embeddings\.LayerNorm layernorm_embedding
        encoder\.layer\. layers.
        attention\.self\.query self_attn.q_proj
        attention\.self\.key self_attn.k_proj
        attention\.self\.value self_attn.v_proj
        attention\.output\.dense self_attn.out_proj
        attention\.output\.LayerNorm self_attn_layer_norm
        intermediate\.dense fc1
        output\.dense fc2
        output\.LayerNorm final_layer_norm
        ^classifier classification_heads.mnli"""),
    "transformers distilbert": by_rules(r"""
        ^distilbert bert
        transformer\.layer encoder.layer
        sa_layer_norm attention.output.LayerNorm
        output_layer_norm output.LayerNorm
        attention\.q_lin attention.self.query
        attention\.k_lin attention.self.key
        attention\.v_lin attention.self.value
        attention\.out_lin attention.output.dense
        ffn\.lin1 intermediate.dense
        ffn\.lin2 output.dense
        vocab_transform cls.predictions.transform.dense
        vocab_layer_norm cls.predictions.transform.LayerNorm
        vocab_projector cls.predictions.decoder"""),
    "transformers llama": META,
    "transformers mistral": META,
    "transformers whisper": by_rules(r"""
        ^model\.
        embed_positions\.weight positional_embedding
        embed_tokens token_embedding
        \.layers .blocks
        self_attn_layer_norm attn_ln
        encoder_attn_layer_norm cross_attn_ln
        final_layer_norm mlp_ln
        self_attn attn
        encoder_attn cross_attn
        q_proj query
        k_proj key
        v_proj value
        out_proj out
        fc1 mlp.0
        fc2 mlp.2
        ^encoder\.layer_norm encoder.ln_post
        ^decoder\.layer_norm decoder.ln"""),
    "transformers mamba": by_rules(r"backbone\.embeddings backbone.embedding"),
}
VIT = by_rules(r"""
    ^vit\.
    embeddings\.cls_token cls_token
    embeddings\.position_embeddings pos_embed
    embeddings\.patch_embeddings\.projection patch_embed.proj
    ^layers blocks
    attention\. attn.
    o_proj proj
    layernorm_before norm1
    layernorm_after norm2
    ^layernorm norm
    ^classifier head""")
OPENAI_CLIP = by_rules(r"""
    ^text_model\.embeddings\.token_embedding token_embedding
    ^text_model\.embeddings\.position_embedding.weight positional_embedding
    ^text_model\.encoder\.layers transformer.resblocks
    ^text_model\.final_layer_norm ln_final
    ^vision_model\.embeddings\.class_embedding visual.class_embedding
    ^vision_model\.embeddings\.patch_embedding visual.conv1
    ^vision_model\.embeddings\.position_embedding.weight visual.positional_embedding
    ^vision_model\.encoder\.layers visual.transformer.resblocks
    ^vision_model\.pre_layrnorm visual.ln_pre
    ^vision_model\.post_layernorm visual.ln_post
    self_attn\.in_proj\. attn.in_proj_
    self_attn attn
    layer_norm ln_
    mlp\.fc1 mlp.c_fc
    mlp\.fc2 mlp.c_proj
    ^visual_projection.weight visual.proj
    ^text_projection.weight text_projection""")


def net_of(model: nn.Module) -> str | None: return getattr(model, "net", None)


@misfit("names of another code base", hard=True)
def other_names(state, model, g):
    rename = OTHERS.get(net_of(model))
    if rename is None: return None
    draft = Draft(state, rename)
    for name, t in state.items():  # only torchvision has two dimensions more than others
        if name.endswith("layer_scale"): draft.put(name, None, lambda t: t.flatten(), lambda t: t[:, None, None])
    return draft.all().done()


@misfit("names and form of another code base", hard=True)
def other_form(state, model, g):
    net = net_of(model)
    if net == "transformers vit": return joined(state, "qkv", VIT).done()
    if net == "transformers gpt2": return nano_gpt(state)
    if net == "transformers bert": return first_bert(state, model)
    if net != "transformers clip": return None
    draft = joined({name: t for name, t in state.items() if "projection.w" not in name}, "in_proj", OPENAI_CLIP)
    draft.state = state
    for name in ("visual_projection.weight", "text_projection.weight"):
        draft.put(name, None, lambda t: t.T, lambda t: t.T)
    return draft.done()


def nano_gpt(state: State) -> tuple[dict, Truth]:
    draft, square = Draft(state, lambda name: "_orig_mod." + name), set()
    for name, t in state.items():
        if not re.search(r"(c_attn|c_proj|c_fc)\.weight", name): continue
        draft.put(name, None, lambda t: t.T, lambda t: t.T)
        if t.shape[0] == t.shape[1]: square.add(name)
    return draft.all().done(lambda entries: {"model": entries, "iter_num": 5}, ("model",), undecidable=square)


def first_bert(state: State, model: nn.Module) -> tuple[dict, Truth]:
    "The names of the first release, whose matrices are transposed."
    rename = by_rules(r"""
        LayerNorm\.weight LayerNorm.gamma
        LayerNorm\.bias LayerNorm.beta
        layer\.(\d+) layer_\1
        embeddings\.weight embeddings
        predictions\.bias predictions.output_bias
        \. /""")
    draft, square = Draft(state, rename), set()
    for name, t in state.items():
        if not is_linear(model, name) or "decoder" in name: continue
        draft.put(name, rename(name.replace("weight", "kernel")), lambda t: t.T, lambda t: t.T)
        if t.shape[0] == t.shape[1]: square.add(name)
    return draft.all().done(undecidable=square)


@misfit("Meta's names, with rows for its rotary embedding", hard=True)
def rotary(state, model, g):
    if net_of(model) not in ("transformers llama", "transformers mistral"): return None
    draft, unclear, size = Draft(state, META), set(), 8

    def forth(t): return t.view(-1, 2, size//2, t.shape[1]).transpose(1, 2).reshape(t.shape)
    def back(t): return t.view(-1, size//2, 2, t.shape[1]).transpose(1, 2).reshape(t.shape)
    for name in state:
        if not re.search(r"[qk]_proj", name): continue
        draft.put(name, None, forth, back)
        unclear.add(name)
    return draft.all().done(undecidable=unclear)


# All of them

def state_of(net: str, seed: int = 0) -> State:
    return {name: t.detach().clone() for name, t in make(net, seed).state_dict().items()}


def model_of(net: str, seed: int = 1) -> nn.Module:
    "The network with other weights; it knows its name."
    model = make(net, seed)
    model.net = net
    return model


def generator_of(*names: str) -> torch.Generator: return torch.Generator().manual_seed(crc32(" ".join(names).encode()))


def planted(kind: str, net: str, state: State, model: nn.Module, of: dict | None = None):
    "The case of this kind for this network, or None; the same each time."
    g = generator_of(kind, net)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return (of or MISFITS)[kind].make(state, model, g)


def misfits(nets=None, kinds=None) -> Iterator[tuple[str, Misfit, nn.Module, dict, Truth]]:
    "All cases, or those of some networks and kinds: (network, kind, model, checkpoint, truth)."
    for net in nets or NETS:
        state, model = state_of(net), model_of(net)
        for kind in kinds or MISFITS:
            case = planted(kind, net, state, model)
            if case: yield net, MISFITS[kind], case[1].model or model, *case


# Equal checkpoints: nothing is to be said, and all is certain

EQUAL: dict[str, Callable[[State, torch.Generator], dict]] = {
    "the state itself": lambda state, g: dict(state),
    "copies": lambda state, g: {name: t.clone() for name, t in state.items()},
    "entries in another order": lambda state, g: {name: state[name] for name in sorted(state, key=lambda n: n[::-1])},
    "with parameters": lambda state, g: {name: nn.Parameter(t.clone()) if t.is_floating_point() else t
                                         for name, t in state.items()},
}


# Half loads

@dataclass
class Half:
    name: str
    loud: bool  # must it be found?
    make: Callable[[State, nn.Module, torch.Generator], dict | None]


HALVES: dict[str, Half] = {}


def half(name: str, loud: bool):
    def enter(f):
        HALVES[name] = Half(name, loud, f)
        return f
    return enter


def renamed(state: State, rename: Callable[[str], str]) -> State: return {rename(name): t for name, t in state.items()}


half("module. on all", True)(lambda state, model, g: renamed(state, lambda name: "module." + name))
half("_orig_mod. on all", True)(lambda state, model, g: renamed(state, lambda name: "_orig_mod." + name))
half("a whole checkpoint", True)(lambda state, model, g: {"state_dict": state, "epoch": 3, "optimizer": {}})
half("nothing", True)(lambda state, model, g: {})
half("invented words", True)(lambda state, model, g: renamed(state, invented(state, g)))
half("another model", True)(lambda state, model, g: {f"net.{i}.w": torch.randn(3, 3, generator=g) for i in range(9)})


@half("all but the head has a prefix", True)
def only_head(state, model, g):
    head = head_of(model)
    return head and {name if name.startswith(head) else "backbone." + name: t for name, t in state.items()}


@half("only the blocks are renamed", True)
def blocks_renamed(state, model, g):
    stack = stack_of(state)
    if stack is None or sum(name.startswith(stack[0]) for name in state) < len(state)/2: return None
    return renamed(state, lambda name: "decoder." + name if name.startswith(stack[0]) else name)


@half("gamma and beta", True)
def norms_renamed(state, model, g):
    case = gamma_beta(state, model, g)
    if case is None or len(set(case[0]) & set(state)) > .8*len(state): return None
    return case[0]


@half("a new head", False)
def new_head(state, model, g):
    head = head_of(model)
    return head and {name: t for name, t in state.items() if not name.startswith(head + ".")}


@half("a new head, and the old one under its own name", False)
def old_head(state, model, g):
    head = head_of(model)
    if head is None: return None
    kept = {name: t for name, t in state.items() if not name.startswith(head + ".")}
    return kept | {"old_head.weight": torch.randn(21, 5, generator=g), "old_head.bias": torch.zeros(21)}


@half("a new last block", False)
def new_block(state, model, g):
    stack = stack_of(state)
    if stack is None: return None
    last = f"{stack[0]}{stack[1]}."
    missing = sum(name.startswith(last) for name in state)
    if missing > .25*len(state): return None
    return {name: t for name, t in state.items() if not name.startswith(last)}


@half("counts of batches missing", False)
def half_counts(state, model, g):
    case = no_counts(state, model, g)
    return case and case[0]


@half("buffers of an older release", False)
def half_buffers(state, model, g):
    case = old_buffers(state, model, g)
    return case and case[0]


half("all of it", False)(lambda state, model, g: dict(state))


def halves(nets=None, kinds=None) -> Iterator[tuple[str, Half, nn.Module, dict]]:
    "All half loads: (network, kind, model, the state to be loaded with `strict=False`)."
    for net in nets or NETS:
        state, model = state_of(net), model_of(net)
        for kind in kinds or HALVES:
            given = planted(kind, net, state, model, HALVES)
            if given is not None: yield net, HALVES[kind], model, given

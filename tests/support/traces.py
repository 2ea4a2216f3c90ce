"""What a run leaves behind, to compare a model with hooks with the same model without."""
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

import hooklab as hl
from hooklab.hooks.tree import named_tensors


class Run(NamedTuple):
    "Everything that hooks must not change."
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    state: dict[str, Tensor]
    random_state: Tensor
    training: dict[str, bool]


def run(model: nn.Module, inputs: dict[str, Any], start: dict[str, Tensor] | None = None, forward: Callable | None = None) -> Run:
    "Forward and backward: always with the same seed, without gradients from before, and with the buffers of `start`."
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if start: buffer.copy_(start[name])
    model.zero_grad()
    inputs = {name: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for name, x in inputs.items()}
    torch.manual_seed(1)
    out = forward(model, inputs) if forward else model(**inputs)
    loss(out).backward()
    parts = dict(model.named_parameters()) | {f"input {name}": x for name, x in inputs.items() if isinstance(x, Tensor)}
    return Run({name: t.detach() for name, t in named_tensors(out)}, {name: t.grad for name, t in parts.items()},
               buffers(model), torch.get_rng_state(), {name: m.training for name, m in model.named_modules()})


def loss(out) -> Tensor:
    "A number to which each element of `out` contributes with a weight of its own; the output's own loss, if it has one."
    if getattr(out, "loss", None) is not None: return out.loss
    return sum((t.float()*torch.linspace(-1, 1, t.numel(), device=t.device).view(t.shape)).sum() for t in hl.tensors(out) if t.requires_grad)


def buffers(model: nn.Module) -> dict[str, Tensor]: return {name: t.detach().clone() for name, t in model.named_buffers()}


def difference(a: Run, b: Run) -> list[str]:
    "Where two runs differ, to the last bit."
    found = []
    for kind in ("outputs", "gradients", "state"):
        one, other = getattr(a, kind), getattr(b, kind)
        found += [f"{kind}: {name}" for name in one | other if not same(one.get(name), other.get(name))]
    if not torch.equal(a.random_state, b.random_state): found.append("random state")
    return found + [f"mode: {name}" for name in a.training if a.training[name] != b.training[name]]


def same(a: Tensor | None, b: Tensor | None) -> bool:
    "The same bits, NaN included; on the meta device, where there are none, the same shape."
    if a is None or b is None: return a is b
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device: return False
    return a.device.type == "meta" or torch.equal(a, b) or bool(((a == b) | (a != a) & (b != b)).all())


def ours(model: nn.Module) -> list: return [one for one in hl.hooks_on(model) if one.ours]


def untouched(model: nn.Module, act: Callable) -> Any:
    "Run `act` on a model, half of which is in eval mode, and see that the model is what it was."
    model.train()
    for m in list(model.modules())[1::2]: m.training = False
    modes, random_state = [m.training for m in model.modules()], torch.get_rng_state()
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    versions = {name: t._version for name, t in tensors.items() if not is_lazy(t)}
    state = {name: t.clone() for name, t in model.state_dict().items() if not is_lazy(t)}
    attributes = {name: id(value) for name, value in vars(model).items()}
    fast = torch.backends.mha.get_fastpath_enabled()
    try: return act(model)
    finally:
        assert modes == [m.training for m in model.modules()] and torch.equal(random_state, torch.get_rng_state())
        assert not ours(model) and torch.backends.mha.get_fastpath_enabled() == fast
        assert attributes == {name: id(value) for name, value in vars(model).items()}
        after = dict([*model.named_parameters(), *model.named_buffers()])
        assert all(after[name] is t and t.grad is None for name, t in tensors.items())
        assert all(tensors[name]._version == version for name, version in versions.items())
        now = {name: t for name, t in model.state_dict().items() if not is_lazy(t)}
        assert now.keys() == state.keys() and all(same(t, state[name]) for name, t in now.items())

"""What hooking costs on 1,000 layers that do nothing: attaching and removing, and being called."""
import torch
from fastai.callback import hook as fastai
from torch import nn
from torchhook import HookManager

import hooklab as hl
from tests.bench.measure import ratios


def identities(): return nn.Sequential(*(nn.Identity() for _ in range(1000)))
def keep(m, inputs, output): return output


class Raw:
    "What a user would write with torch alone: store a detached copy."
    def __init__(self, m): self.handle = m.register_forward_hook(self)
    def __call__(self, m, inputs, output): self.stored = output.detach().clone()
    def remove(self): self.handle.remove()


def torchhook(model, **options):
    manager = HookManager(model, max_size=1)
    for name, m in model.named_children(): manager.add(name, m, **options)  # by name alone it lists the model's layers for each hook
    return manager


def attach_and_remove():
    layers = identities()
    def raw():
        for handle in [m.register_forward_hook(keep) for m in layers]: handle.remove()
    return ratios(raw, {
        "hooklab": lambda: hl.Hooks(layers, keep).remove(),
        "TorchHook": lambda: torchhook(layers, custom_hook=keep).clear_hooks(),
        "fastai": lambda: fastai.Hooks(layers, keep).remove(),
    })


def attach_and_remove_pairs():
    layers = identities()
    def raw():
        pairs = [(m.register_forward_pre_hook(keep), m.register_forward_hook(keep, always_call=True)) for m in layers]
        for pair in pairs:
            for handle in pair: handle.remove()
    return ratios(raw, {"hooklab": lambda: hl.Hooks(layers, keep, is_forward=False).remove()})


def dispatch(with_gradients):
    "A pass through all layers. fastai and TorchHook do not copy."
    x = torch.randn(4, 8, requires_grad=with_gradients)
    def passing(attach):
        def work():
            with torch.set_grad_enabled(with_gradients): model(x)
        model = identities()
        work.hooks = attach(model)
        return work
    raw = passing(lambda model: [Raw(m) for m in model])
    return ratios(raw, {"hooklab": passing(hl.hook_outputs), "TorchHook": passing(torchhook), "fastai": passing(fastai.hook_outputs)})


def measure():
    return {
        "attach and remove 1,000 forward hooks, to raw torch": attach_and_remove(),
        "attach and remove 1,000 gradient hooks, to pairs of raw hooks": attach_and_remove_pairs(),
        "call 1,000 hooks that store a detached copy, without gradients, to raw hooks": dispatch(False),
        "call 1,000 hooks that store a detached copy, with gradients, to raw hooks": dispatch(True),
    }

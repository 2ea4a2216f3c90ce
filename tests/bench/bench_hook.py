"""What hooking costs on 1,000 layers that do nothing: attaching and removing, and being called."""
import torch
from fastai.callback import hook as fastai
from torch import nn

import hooklab as hl

from tests.bench.measure import ratios

layers = nn.Sequential(*(nn.Identity() for _ in range(1000)))
x = torch.randn(4, 8)


def keep(m, inputs, output): return output


class Raw:
    "What a user would write with torch alone: store a detached copy."
    def __init__(self, m): self.handle = m.register_forward_hook(self)
    def __call__(self, m, inputs, output): self.stored = output.detach().clone()
    def remove(self): self.handle.remove()


def attach_and_remove():
    def raw():
        for handle in [m.register_forward_hook(keep) for m in layers]: handle.remove()
    def of(hooks):
        def work(): hooks(layers, keep).remove()
        return work
    return ratios(raw, {"hooklab": of(hl.Hooks), "fastai": of(fastai.Hooks)})


def dispatch():
    "A pass through all layers with hooks that store a detached copy (fastai's stores what it is given, detached)."
    def passing(attach):
        def work():
            with torch.no_grad(): model(x)
        model = nn.Sequential(*(nn.Identity() for _ in range(1000)))
        work.hooks = attach(model)
        return work
    works = {"hooklab": passing(hl.hook_outputs), "fastai": passing(fastai.hook_outputs)}
    raw = passing(lambda model: [Raw(m) for m in model])
    found = ratios(raw, works)
    for work in (raw, *works.values()):
        for hook in work.hooks: hook.remove()
    return found


def measure():
    return {"attach and remove 1,000 hooks, to raw torch": attach_and_remove(), "call 1,000 hooks that store, to raw torch": dispatch()}

"""Outputs of layers of resnet50, batches of 8 pictures of 96 by 96, in eval mode and without gradients, to the plain model."""
import nnsight  # after fastai, which cannot be imported once this one is
import torch
from fastai.callback.hook import hook_outputs
from torchhook import HookManager
from torchvision.models import resnet50
from torchvision.models.feature_extraction import create_feature_extractor

import hooklab as hl
from tests.bench.measure import ratios

torch.manual_seed(0)
model, x = resnet50().eval(), torch.randn(8, 3, 96, 96)


def plain(): model(x)


def raw(names):
    found = {}
    handles = [m.register_forward_hook(lambda m, i, o, name=name: found.__setitem__(name, o)) for name, m in hl.layers(model, *names).items()]
    model(x)
    for handle in handles: handle.remove()
    return found


def with_fastai(names):
    with hook_outputs(hl.layers(model, *names).values()) as hooks:
        model(x)
        return dict(zip(names, hooks.stored))


def with_nnsight(names, stop=False):
    traced = nnsight.NNsight(model)
    with traced.trace(x) as trace:  # the block runs elsewhere: what shall come back from it is saved
        found = nnsight.save({name: traced.get(name).output for name in names})
        if stop: trace.stop()
    return found


def with_torchhook(names):
    manager = HookManager(model)
    for name in names: manager.add(name)
    model(x)
    found = {name: manager.get_features(name)[0] for name in names}
    manager.clear_hooks()
    return found


class Stop(Exception):
    "Ends a pass."


def raw_stop(name):
    def stop(m, i, o):
        found[name] = o
        raise Stop
    found, handle = {}, model.get_submodule(name).register_forward_hook(stop)
    try: model(x)
    except Stop: return found
    finally: handle.remove()


def compare(variants):
    "The ratios, after all agree to the last bit."
    wanted = variants["raw hooks"]()
    for name, f in variants.items():
        for layer, t in f().items(): assert torch.equal(t, wanted[layer]), (name, layer)
    return ratios(plain, variants, rounds=11)


@torch.no_grad()
def measure():
    three = ["layer2", "layer4", "avgpool"]
    ours, ours_stop = hl.FeatureExtractor(model, three), hl.FeatureExtractor(model, "layer2", stop=True)
    pruned, pruned_stop = (create_feature_extractor(model, names) for names in (three, ["layer2"]))
    return {
        "layer2, layer4 and avgpool of resnet50, to the plain model": compare({
            "raw hooks": lambda: raw(three), "hooklab": lambda: ours(x), "torchvision": lambda: pruned(x),
            "fastai": lambda: with_fastai(three), "TorchHook": lambda: with_torchhook(three), "nnsight": lambda: with_nnsight(three)}),
        "layer2 of resnet50, and stop there, to the plain model": compare({
            "raw hooks": lambda: raw_stop("layer2"), "hooklab": lambda: ours_stop(x), "torchvision": lambda: pruned_stop(x),
            "nnsight": lambda: with_nnsight(["layer2"], stop=True)}),
    }

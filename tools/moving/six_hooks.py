"""One training step of lesson 02's network as events, as it was found and with five changes."""
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.debug.timeline import Event
from moving.lessons import Lesson

lessons = [Lesson("lessons/02-four-signatures", "Reader", "Fixed", "x_valid", "y_valid")]


@cache
def lesson(): return lessons[0].load()


def frozen() -> nn.Module:
    model = lesson().Fixed()
    model.conv2.requires_grad_(False)
    return model


def in_place() -> nn.Module:
    model = lesson().Fixed()
    model.act = nn.ReLU(inplace=True)
    return model


def too_few_channels() -> nn.Module:
    model = lesson().Fixed()
    model.conv2 = nn.Conv2d(4, 16, 3, stride=2, padding=1)  # gets 8 channels
    return model


def checkpointed() -> nn.Module:
    class Checkpointed(lesson().Fixed):
        def forward(self, x):
            x = checkpoint(lambda x: self.act(self.conv2(self.act(self.conv1(x)))), x, use_reentrant=False)
            return self.head(x.flatten(1))
    return Checkpointed()


CASES = {"as found: detach": lambda: lesson().Reader(), "fixed": lambda: lesson().Fixed(), "conv2 frozen": frozen,
         "act in place": in_place, "conv2 raises": too_few_channels, "checkpointed": checkpointed}


def step(make) -> dict:
    """The events of one step, each with its kind, its layer and a shape; the parameters that would learn; and how many
    percent of the output of conv1 are negative when its forward hook gets it, and when the step is over."""
    torch.manual_seed(0)
    model, kept, negative = make(), [], []

    def keep(m, i, o):
        kept.append(o)
        negative.append(percent_negative(o))

    with hl.Timeline(model, "*") as timeline:
        def after(name, m, inputs, output):
            "Writes what a hook with always_call=True sees of a layer that raised: no output."
            if output is None: timeline.rows.append(Event("forward, always_call", name, "None"))

        handles = [layer.register_forward_hook(partial(after, name), always_call=True)
                   for name, layer in model.named_children()]
        handles.append(model.conv1.register_forward_hook(keep))
        error = ""
        try: F.cross_entropy(model(lesson().x_valid[:32]), lesson().y_valid[:32]).backward()
        except RuntimeError as raised: error = str(raised).split(",")[-1].strip()
    for handle in handles: handle.remove()
    events = [[event.label, event.name, event.shapes] for event in timeline.rows]
    return {"events": events, "error": error, "negative": [negative[0], percent_negative(kept[0])],
            "learning": [name for name, p in model.named_parameters() if p.requires_grad]}


def percent_negative(t: Tensor) -> int: return round(100*(t < 0).float().mean().item())


def measure() -> dict:
    layers = [name for name, _ in lesson().Fixed().named_children()]
    return {"layers": layers, "cases": {name: step(make) for name, make in CASES.items()}}

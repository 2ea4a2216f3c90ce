"""A witness of a training run, with plain torch only: what a diagnosis says of the run can be held against it."""
import contextlib

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

LOSSES = ("mse_loss", "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
          "l1_loss")


class LossCalls(TorchFunctionMode):
    "Notes what torch's loss functions are given."
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in LOSSES and len(args) > 1: self.seen.append((func.__name__, *(t.detach() for t in args[:2])))
        return func(*args, **(kwargs or {}))


class Witness:
    "Stands in for a record, hands everything on to it, and looks on by itself."
    def __init__(self, record):
        self.record, self.calls = record, LossCalls()
        self.outputs, self.inputs, self.results, self.modes = {}, [], [], []  # of layers by name; of the model
        self.losses, self.lengths, self.rates, self.gradients = [], [], [], []  # of each optimizer step

    @contextlib.contextmanager
    def on(self, model, optimizer=None, **options):
        self.model, many = model, optimizer if isinstance(optimizer, list) else [optimizer]
        self.optimizers = [o for o in many if o is not None]
        self.first = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.ever = set()  # parameters that an optimizer had, by id
        hooks = [m.register_forward_hook(self.of_layer(name)) for name, m in model.named_modules()]
        for o in self.optimizers:
            hooks += [o.register_step_pre_hook(self.before), o.register_step_post_hook(self.after)]
        self.came = set()  # parameters to which a gradient came
        self.new, self.kept = {}, []  # what came since the last step; was there more in the gradient of a parameter?
        for name, p in model.named_parameters():
            if p.requires_grad: hooks.append(p.register_hook(lambda g, name=name: self.arrives(name, g)))
        try:
            with self.calls, self.record.on(model, optimizer=optimizer, **options): yield self
        finally:
            for hook in hooks: hook.remove()
            self.last = {name: p.detach().clone() for name, p in model.named_parameters()}

    def step(self, loss=None):
        self.losses.append(float("nan") if loss is None else float(loss))
        self.record.step(loss)

    def of_layer(self, name):
        def hook(m, inputs, output):
            if not torch.is_grad_enabled(): return
            t = next((x for x in ([output] if isinstance(output, torch.Tensor) else output)
                      if isinstance(x, torch.Tensor)), None)
            if t is None or not t.is_floating_point(): return
            if name == "":
                self.modes.append(m.training)
                self.inputs += [x.detach() for x in inputs[:1] if isinstance(x, torch.Tensor)]
                self.results.append(t.detach())
            self.outputs.setdefault(name, []).append(t.detach())
        return hook

    def arrives(self, name, g):
        self.came.add(name)
        self.new[name] = self.new.get(name, 0) + g.detach()

    def before(self, optimizer, args, kwargs):
        params = [p for group in optimizer.param_groups for p in group["params"]]
        self.ever |= set(map(id, params))
        self.rates.append(max(float(group["lr"]) for group in optimizer.param_groups))
        self.gradients.append([None if p.grad is None else float(p.grad.norm()) for p in params])
        own = [(p.grad, self.new[name]) for name, p in self.model.named_parameters()
               if name in self.new and p.grad is not None and any(p is one for one in params)]
        self.kept.append(any(not torch.allclose(grad, new, rtol=1e-3, atol=1e-7) for grad, new in own))
        self.new = {}
        self.here = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def after(self, optimizer, args, kwargs):
        now = dict(self.model.named_parameters())
        moved = [float((now[name] - p).norm()/p.norm()) for name, p in self.here.items() if p.norm() > 0]
        self.lengths.append(moved)

    @property
    def moved(self) -> set[str]: return {name for name, p in self.first.items() if not torch.equal(p, self.last[name])}

    def types(self, kind) -> list[nn.Module]: return [m for m in self.model.modules() if isinstance(m, kind)]

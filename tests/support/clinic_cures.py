"What a learner could write against each disease of the clinic."
import torch
from torch import nn
from torch.nn import functional as F


def usual_step(p, x, y):
    p.model.train()
    loss = p.loss(p.model(x), y)
    p.optimizer.zero_grad()
    loss.backward()
    p.optimizer.step()
    return loss


def fresh_weights(p):
    for layer in p.model.modules():
        if not isinstance(layer, nn.Linear): continue
        init = nn.init.xavier_normal_ if p.kind == "tanh" else nn.init.kaiming_normal_
        init(layer.weight)
        nn.init.zeros_(layer.bias)


def fresh_where_zero(p):
    for layer in p.model.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any(): nn.init.kaiming_normal_(layer.weight)


def zero_biases(p):
    for layer in p.model.modules():
        if isinstance(layer, (nn.Linear, nn.BatchNorm2d)): nn.init.zeros_(layer.bias)


def relu_everywhere(p):
    for name, _ in list(p.model.named_children()):
        if name.startswith("act"): setattr(p.model, name, nn.ReLU())


def activations(p):
    for name, _ in list(p.model.named_children()):
        if name.startswith("act"): setattr(p.model, name, nn.Tanh() if p.kind == "tanh" else nn.ReLU())


def plus(p):
    p.loss = F.cross_entropy
    p.optimizer.param_groups[0]["maximize"] = False


def own_optimizer(p):
    p.optimizer = type(p.optimizer)(p.model.parameters(), **p.optimizer.defaults)


def new_optimizer(p):
    ps = p.model.parameters()
    p.optimizer = torch.optim.Adam(ps, 2e-3) if p.kind in ("cnn", "rnn") else torch.optim.SGD(ps, .03, momentum=.9)


def standardize(p):
    mean, std = p.x.mean(), p.x.std()
    p.prepare = lambda x: (x - mean)/std


def usual_batches(p): p.batch = lambda p, i: (p.prepare(p.x[p.rows[i]]), p.y[p.rows[i]])
def all_samples(p): p.rows = torch.randint(len(p.x), p.rows.shape)
def same_samples_mixed(p): p.rows = p.rows.flatten()[torch.randperm(p.rows.numel())].view_as(p.rows)
def usual_loop(p): p.step = usual_step
def task_only(p): p.parts = lambda task, **others: task
def nothing(p): pass


def no_scheduler(p): p.scheduler = None


def higher_is_better(p):
    p.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(p.optimizer, mode="max", patience=2, factor=.2)


def unscaled(p):
    scaler = torch.amp.GradScaler("cpu")
    def step(p, x, y):
        p.model.train()
        loss = p.loss(p.model(x), y)
        p.optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(p.optimizer)
        nn.utils.clip_grad_norm_(p.model.parameters(), 5.)
        scaler.step(p.optimizer)
        scaler.update()
        return loss
    p.step = step


def no_last(p): p.model.last = nn.Identity()
def no_decay(p): p.optimizer.param_groups[0]["weight_decay"] = 0
def unfreeze(p): p.model.requires_grad_(True)
def less_dropout(p): p.model.drop.p = .1
def identity(p): nn.init.eye_(p.model.rnn.weight_hh_l0)


def momentum(p):
    for layer in p.model.modules():
        if isinstance(layer, nn.BatchNorm2d): layer.momentum = .1


CURES = {
    "dead units": zero_biases, "saturated": zero_biases, "constant output": fresh_where_zero,
    "units alike": fresh_weights,
    "activations vanish": fresh_weights, "activations explode": fresh_weights, "gradients explode": identity,
    "gradients vanish": relu_everywhere, "not trained": relu_everywhere, "samples alike": relu_everywhere,
    "NaN or Inf": relu_everywhere, "frozen part": unfreeze, "dropout too strong": less_dropout, "batch norm": momentum,
    "constant inputs": standardize, "inputs not scaled": standardize, "labels shuffled": usual_batches,
    "label in the input": usual_batches, "train and validation differ": usual_batches, "too few samples": all_samples,
    "wrong sign": plus, "activation before the loss": no_last, "learning rate too large": new_optimizer,
    "learning rate too small": new_optimizer, "weight decay too strong": no_decay,
    "not in the optimizer": own_optimizer, "other parameters in the optimizer": own_optimizer,
    "no zero_grad": usual_loop, "step before backward": usual_loop,
    "eval mode": usual_loop, "scheduler each batch": usual_loop, "clipping too tight": usual_loop,
    "learning rate jumps": usual_loop, "losses fight": task_only, "loss outweighs": usual_loop,
    "no activation": activations, "samples not shuffled": same_samples_mixed, "clipping before unscaling": unscaled,
    "wrong plateau mode": higher_is_better}
OTHER_CURES = {"samples not shuffled": [all_samples], "clipping before unscaling": [usual_loop],
               "wrong plateau mode": [no_scheduler, usual_loop]}

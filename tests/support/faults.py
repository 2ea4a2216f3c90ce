"""Models that differ from another in one weight, and which layers a comparison calls at fault."""
import torch


def at_fault(c): return list(dict.fromkeys(row.a for row in c.rows if row.is_fault))


def seeded(make, *args, seed=0, **kwargs):
    torch.manual_seed(seed)
    return make(*args, **kwargs).eval()


@torch.no_grad()
def spoil(model, name, by=.1, parameter="weight"):
    "One number of a weight is wrong, by a share of the weight's size."
    weight = getattr(model.get_submodule(name), parameter)
    weight.view(-1)[1] += by*weight.pow(2).mean().sqrt()
    return model


@torch.no_grad()
def percent(model, name, by=.05):
    "Each number of a weight is wrong, by about a share of itself."
    weight = model.get_submodule(name).weight
    torch.manual_seed(5)
    weight.mul_(1 + by*torch.randn_like(weight))
    return model

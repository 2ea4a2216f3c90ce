"Histories of losses that were never trained: gradients as a fault would have them, for each sentence about losses."
import torch

from hooklab.stats.losses.comparing_losses import findings_in
from hooklab.stats.records.loss_history import LossHistory, Pulls

STEPS = 12


def history(products, values, reached=None, without=(), layers=3):
    "Products of the gradients and values of the losses: of one step, or a list with those of each."
    losses = tuple("abc"[:len(values if not isinstance(values, list) else values[0])])
    found = LossHistory([f"layer{i}" for i in range(layers)], STEPS)
    reached = torch.ones(layers, len(losses)) if reached is None else torch.tensor(reached)
    for step in range(STEPS):
        own = torch.tensor(products[step] if isinstance(products, list) else products)
        value = values[step] if isinstance(values, list) else values
        found.add(Pulls(losses, own.expand(layers, *own.shape[-2:]), reached, torch.zeros(layers, len(losses)),
                        torch.tensor(value), without), 10*step)
    return found


def pair(one, other, cosine): return ((one*one, cosine*one*other), (cosine*one*other, other*other))


def findings():
    "Every sentence that is said of losses."
    later = [pair(2., 1., .5)]*3 + [pair(2., 1., -.9)]*(STEPS - 3)
    zero, moving = pair(1., 0., 0.), [(1., 1. + .1*i) for i in range(STEPS)]
    swinging = [pair(1., 100. if i % 2 else .01, 0.) for i in range(STEPS)]
    alone, apart = [[1., 0.]]*3, [[1., 1.], [1., 0.], [1., 0.]]
    three = tuple(tuple(x*y*(1. if i == j else 0.) for j, y in enumerate((500., 400., 1.)))
                  for i, x in enumerate((500., 400., 1.)))
    cases = [
        history(later, (1., 1.)), history(pair(1., 1., -.9), (1., 1.), layers=1),
        history(pair(1., 1., -.4), (1., 1.)),
        history(zero, (1., 1.), alone, ("b",)), history(zero, (1., 1.), alone),
        history(zero, moving), history(zero, (1., 1.)),
        history(pair(1000., 1., 0.), (1., 1.)), history(three, (1., 1., 1.)),
        history(pair(1., 1., 0.), (1., 1.), apart), history(swinging, (1., 1.))]
    return [finding for case in cases for finding in findings_in(case)]

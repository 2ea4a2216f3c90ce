"A run of several processes beside the same run in one: where do their numbers differ?"
import torch

import hooklab as hl
from hooklab.stats.records.statistics import UPDATE_ROWS
from support.sharded import loss_of, words

STEPS = 3


def sgd(parameters): return torch.optim.SGD(parameters, lr=.1)


def recorded(model, batches, make_optimizer=sgd, **options):
    optimizer = make_optimizer(model.parameters())
    asked = {"include_paramless": True, "grads": True, "with_hist": True, "loop": True}
    s = hl.ActivationStats(**asked | options)
    s.attention_too = True
    with s.on(model, optimizer):
        for x in batches:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            s.step(loss)
    return s


def part_of_run(model, part=0, parts=1, **options):
    "The run, on one of so many parts of each batch."
    return recorded(model, [words(step).chunk(parts)[part] for step in range(STEPS)], **options)


def far_apart(a, b, scale, limit):
    "Where two series differ by more than a part of `scale`, or one alone is unknown."
    scale = scale.double().abs().clamp(min=1e-12)
    return (a.isnan() != b.isnan()) | ((a.double() - b.double()).abs()/scale > limit)


def differences(found, whole, limit=1e-5, counts=True, unknown=()):
    """The numbers of `found` that are not those of `whole`, as lines of text. Gradients of queries and keys are not
    counted: at the first position they are zero, give or take rounding, so how many lie above zero is left to chance.
    `unknown` are numbers of the loop that no process can know, and numbers of parameters that it cannot of some."""
    lines = []
    for kind, history in whole.histories.items():
        other = found.histories[kind]
        if sorted(history.names) != sorted(other.names): return [f"other layers: {other.names}"]
        order = [other.names.index(name) for name in history.names]
        whats = [*history.whats, *(["n"] if kind != "updates" else []), *(["hist"] if history.has_hist else [])]
        for what in whats if counts else [what for what in whats if what in ("mean", "std", *UPDATE_ROWS, "ratio")]:
            a, b = history.values(what), other.values(what)[order]
            if what in unknown: a = a.where(~b.isnan(), b)
            by_rounding = kind == "gradients" and what not in ("mean", "std", "n")
            wrong = far_apart(a, b, history.values("std") if what == "mean" else a, limit).flatten(1).any(1)
            names = [name for name, is_wrong in zip(history.names, wrong) if is_wrong]
            names = [name for name in names if not (by_rounding and name[-2:] in (".q", ".k"))]
            if names: lines.append(f"{what} of {kind}: {', '.join(names)}")
    for what in ("loss", "grad_norm", "grad_norm_unclipped", "updates", "rate"):
        a, b = whole.log.values(what), found.log.values(what)
        if what in unknown: lines += [] if b.isnan().all() else [f"{what} of the loop is known: {b.tolist()}"]
        elif far_apart(a, b, a, limit).any(): lines.append(f"{what} of the loop: {b.tolist()} and not {a.tolist()}")
    for what in ("entropy", "largest_logit", "query_norm", "first_share"):
        a, b = whole.attention.values(what), found.attention.values(what)
        if a.keys() != b.keys() or any(a[call].shape != b[call].shape for call in a):
            lines.append(f"other heads: {[*b]}")
        elif any(far_apart(a[call], b[call], a[call], 10*limit).any() for call in a): lines.append(f"{what} of heads")
    return lines

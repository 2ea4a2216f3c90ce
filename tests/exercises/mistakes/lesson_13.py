"""Typical wrong answers to the exercises of lesson 13, and what their authors should be told."""

mistakes = {
    "13a": [
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)", "return model(x)",
         "Nothing has changed"),
        ("hl.edit_output(layer, hl.ablate(units, dim=-1))", "hl.Hook(layer, lambda m, i, o: o * 0)",
         "A function that only looks"),
        ("hl.ablate(units, dim=-1)", "hl.ablate(units[0], dim=-1)", "Only one of the units is off"),
        ("hl.ablate(units, dim=-1)", "hl.scale(0)", "All units are off"),
        ("hl.ablate(units, dim=-1)", "hl.ablate([k for k in range(6) if k not in units], dim=-1)",
         "all other units are off"),
        ("return model(x)", "model(x)", "Is the `return` missing?"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "edit = hl.edit_output(layer, hl.ablate(units, dim=-1))\n    return model(x)",
         "a hook stays on the model when"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "if hasattr(layer, 'weight'): layer.weight[units] = 0\n    return model(x)", "Nothing has changed"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "layer.weight[units] = 0\n    layer.bias[units] = 0\n    return model(x)",
         "change its output in a hook"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "model.first.weight[units] = 0\n    model.first.bias[units] = 0\n    return model(x)",
         "change the layer's output, not the layer"),
        (", dim=-1", "", "where are the channels of"),
        ("hl.ablate(units, dim=-1)", "hl.ablate(units, dim=1)", "Some positions are zero"),
        ("hl.ablate(units, dim=-1)", "lambda m, i, o: o.index_fill(0, torch.tensor(units), 0)",
         "Some samples of the batch are zero"),
        ("hl.ablate(units, dim=-1)", "hl.ablate(units, dim=-1, to='mean')", "set them to zero"),
        ("hl.edit_output(layer,", "hl.edit_output(model.tap,", "You edit another layer"),
        ("hl.edit_output(layer, hl.ablate(units, dim=-1))",
         "hl.edit_output(model, hl.ablate([k for k in units if k < 3], dim=-1))", "You edit another layer"),
        ("return model(x)", "return layer(x)", "run the whole model on"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "for k in units:\n        with hl.edit_output(layer, hl.ablate(k, dim=-1)): y = model(x)\n    return y",
         "Only one of the units is off"),
        ("def without(model, layer, units, x):\n    def cut(m, i, o):\n        o[..., units] = 0\n"
         "    handle = layer.register_forward_hook(cut)\n    try: return model(x)\n    finally: handle.remove()",
         "change a `clone()`"),
        ("def without(model, layer, units, x):\n    def cut(m, i, o):\n        o[..., units] = 0\n"
         "        return o\n    handle = layer.register_forward_hook(cut)\n    try: return model(x)\n"
         "    finally: handle.remove()", "change a `clone()`"),
        ("def without(model, layer, units, x):\n    def cut(m, i, o):\n        o.clone()[..., units] = 0\n"
         "    handle = layer.register_forward_hook(cut)\n    try: return model(x)\n    finally: handle.remove()",
         "a hook that returns nothing"),
        ("def without(model, layer, units, x):\n"
         "    def cut(m, i, o): return o.index_fill(-1, torch.tensor(units), 0)\n"
         "    handle = layer.register_forward_hook(cut)\n    y = model(x)\n    handle.remove()\n    return y",
         "When the model raises, your hook stays on"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "model.train()\n    with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "leave its mode as it is"),
        ("with hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "try:\n        with hl.edit_output(layer, hl.ablate(units, dim=-1)):\n            return model(x)\n"
         "    except Exception: return x", "hides the error"),
        ("hl.ablate(units, dim=-1)", "hl.ablate(units[:1], dim=-1)",
         "Only one of the units is off: switch all of them off"),
        ("hl.edit_output(layer, hl.ablate(units, dim=-1)): return model(x)",
         "hl.hook_output(layer) as h:\n        model(x)\n        h.stored[..., units] = 0\n        return h.stored",
         "The model's output for `x` should have the shape (5, 3);"),
    ],
    "13b": [
        (", to=means[units]", "", "The units are zero"),
        ("to=means[units]", "to='mean'", 'as `to="mean"` takes it'),
        ("in others", "in [x]", "Take the mean over `others`"),
        ("to=means[units]", "to=means", "choose from them: `means[units]`"),
        (".sum((0, 2, 3))", ".sum(0)", "choose from them: `means[units]`"),
        ("[:, 0].numel()", ".numel()", "That is not the model's output"),
        ("hook.stored[:, 0].numel()", "batch.numel()", "You count the values of the images that go into"),
        ("hook.stored[:, 0].numel()", "batch[:, 0].numel()", "You count the values of the images that go into"),
        ("[:, 0].numel()", ".shape[0]", "You divide by the number of images"),
        ("total / count", "total", "Those are sums"),
        ("to=means[units]", "to=means[:len(units)]", "Those are the means of the first units"),
        ("to=means[units]", "to=means[units].mean().item()", "You use one mean for all units"),
        ("to=means[units]", "to=means[sorted(units)]", "assigned to the wrong units"),
        ("with hl.edit_output(layer, hl.ablate(units, to=means[units])): return model(x)",
         "for k in units:\n        with hl.edit_output(layer, hl.ablate(k, to=means[k])): y = model(x)\n"
         "    return y", "Only one of the units is at its mean"),
        ("total = total + hook.stored.sum((0, 2, 3))\n            count += hook.stored[:, 0].numel()",
         "total = total + hook.stored.mean((0, 2, 3))\n            count += 1", "the mean of the batch means"),
        ("def at_mean(model, layer, units, x, others):\n    with hl.hook_output(layer) as hook:\n"
         "        for batch in others: model(batch)\n        means = hook.stored.mean((0, 2, 3))\n"
         "    with hl.edit_output(layer, hl.ablate(units, to=means[units])): return model(x)",
         "the mean of the last batch alone"),
        ("in others", "in others[:1]", "the mean of the first batch alone"),
        ("in others", "in [torch.cat(others)]", "run the model batch by batch"),
        ("        for batch in others:\n            model(batch)\n"
         "            total = total + hook.stored.sum((0, 2, 3))\n            count += hook.stored[:, 0].numel()",
         "        model(others)\n        total, count = hook.stored.sum((0, 2, 3)), hook.stored[:, 0].numel()",
         "run them one after the other"),
        ("return model(x)", "model(x)", "Is the `return` missing?"),
        ("return model(x)", "pass\n    return model(x)", "Nothing has changed"),
        ("with hl.edit_output(layer, hl.ablate(units, to=means[units])): return model(x)",
         "def put(m, i, o):\n        for k in units: o[:, k] = means[k]\n"
         "    with layer.register_forward_hook(put): return model(x)", "change a `clone()`"),
        ("with hl.edit_output(layer, hl.ablate(units, to=means[units])): return model(x)",
         "h = hl.edit_output(layer, hl.ablate(units, to=means[units]))\n    y = model(x)\n    h.remove()\n"
         "    return y", "When the model raises, your hook stays on"),
        ("count += hook.stored[:, 0].numel()", "count += len(batch)",
         "You divide by the number of images: divide by images ×"),
    ],
    "13c": [
        ("return whole - score()", "return score() - whole", "The sign is flipped"),
        ("return whole - score()", "return score()", "Return how much the score drops"),
        ("with hl.edit_output(layer, hl.ablate(units)): return", "return", "measure while they are off"),
        ("    own = drop(units)", "    own = sum(drop([k]) for k in units)", "the other does the same"),
        (">= own", "> own", "*At least as large* includes them"),
        (">= own", "< own", "The wrong way around"),
        (" / len(draws)", "", "The second number should be a fraction"),
        ("drop(draw) >= own", "max(drop([k]) for k in draw) >= own", "off together"),
        ("return whole - score()", "return 1 - score() / whole", "Do not divide the drop"),
        ("with hl.edit_output(layer, hl.ablate(units)): return", "hl.edit_output(layer, hl.ablate(units)); return",
         "remove the edit of each draw"),
        ("hl.ablate(units)): return", "hl.ablate(units, to='mean')): return", "(not to a mean)"),
        ("drop(draw) >= own", "drop(units) >= own", "Switch off the units of the draw, not `units`"),
        ("own, sum(drop(draw) >= own for draw in draws) / len(draws)", "own", "should be two numbers"),
        ("own, sum(drop(draw) >= own for draw in draws) / len(draws)",
         "own, [drop(draw) >= own for draw in draws]", "The fraction of the draws should be one number"),
        ("drop(draw) >= own", "abs(drop(draw)) >= abs(own)", "leave out `abs`"),
        ("with hl.edit_output(layer, hl.ablate(units)): return whole - score()",
         "def cut(m, i, o): o[:, units] = 0\n"
         "        with layer.register_forward_hook(cut): return whole - score()", "change a `clone()`"),
        ("with hl.edit_output(layer, hl.ablate(units)): return whole - score()",
         "h = hl.edit_output(layer, hl.ablate(units))\n        f = whole - score()\n        h.remove()\n"
         "        return f", "your hook stays on it"),
        ("return own, sum(drop(draw) >= own for draw in draws) / len(draws)",
         "try: return own, sum(drop(draw) >= own for draw in draws) / len(draws)\n"
         "    except Exception: return own, 0.", "hides the error"),
        ("drop(draw) >= own", "drop(draw) <= own", "Your answer counts every draw"),
    ],
}


right = {
    "13c": [
        ("sum(drop(draw) >= own for draw in draws) / len(draws)",
         "torch.tensor([drop(draw) >= own for draw in draws]).float().mean().item()"),
    ],
    "13b": [
        ("hook.stored.sum((0, 2, 3))", "hook.stored.transpose(0, 1).flatten(1).sum(1)"),
    ],
}

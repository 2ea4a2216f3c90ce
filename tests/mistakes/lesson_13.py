"""Typical wrong answers to the exercises of lesson 13, and what their authors should be told."""

mistakes = {
    "13a": [
        ("with hl.edit_output(layer, hl.ablate(units)): return model(x)", "return model(x)", "Nothing has changed"),
        ("hl.edit_output(layer, hl.ablate(units))", "hl.Hook(layer, lambda m, i, o: o * 0)", "A function that only looks"),
        ("hl.ablate(units)", "hl.ablate(units[0])", "Only one of the units is off"),
        ("hl.ablate(units)", "hl.scale(0)", "All units are off"),
        ("hl.ablate(units)", "hl.ablate([k for k in range(6) if k not in units])", "all others are off"),
        ("return model(x)", "model(x)", "Is the `return` missing?"),
        ("with hl.edit_output(layer, hl.ablate(units)): return model(x)", "edit = hl.edit_output(layer, hl.ablate(units))\n    return model(x)",
         "a hook stays on the model when"),
        ("with hl.edit_output(layer, hl.ablate(units)): return model(x)", "model[0].weight[units] = 0\n    model[0].bias[units] = 0\n    return model(x)",
         "change what the layer returns, not the layer"),
        ("return model(x)", "return layer(x)", "run the whole model on `x`"),
        ("def without(model, layer, units, x):\n    def cut(m, i, o): o.clone()[:, units] = 0\n"
         "    handle = layer.register_forward_hook(cut)\n    y = model(x)\n    handle.remove()\n    return y", "a hook that returns nothing"),
    ],
    "13b": [
        (", to=means[units]", "", "The units are zero"),
        ("to=means[units]", "to='mean'", "as `to=\"mean\"` takes it"),
        ("model(others)", "model(x)", "The mean over `others` was asked for"),
        ("to=means[units]", "to=means", "choose them, `means[units]`"),
        ("to=means[units]", "to=means[:2]", "those of the first units"),
        (".mean((0, 2, 3))", ".mean().repeat(6)", "It is not what the model makes"),
        ("to=means[units]", "to=means[units].mean().item()", "One mean for all units"),
        ("to=means[units]", "to=means[sorted(units)]", "given to the wrong units"),
        ("hook.stored.mean((0, 2, 3))", "hook.stored[0].mean((1, 2))", "the first picture alone"),
        ("return model(x)", "model(x)", "Is the `return` missing?"),
    ],
    "13c": [
        ("return whole - measure()", "return measure() - whole", "Upside down"),
        ("return whole - measure()", "return measure()", "How far it falls was asked for"),
        ("with hl.edit_output(layer, hl.ablate(units)): return", "return", "measure while they are off"),
        ("    own = fall(units)", "    own = sum(fall([k]) for k in units)", "the other does the same"),
        (">= own", "> own", "*at least as far* includes it"),
        (">= own", "< own", "The wrong way round"),
        (" / len(draws)", " * 4 + 1", "A share was asked for"),
        ("with hl.edit_output(layer, hl.ablate(units)): return", "hl.edit_output(layer, hl.ablate(units)); return", "Take each off again"),
        ("own, sum(fall(draw) >= own for draw in draws) / len(draws)", "own", "Two numbers were asked for"),
    ],
}

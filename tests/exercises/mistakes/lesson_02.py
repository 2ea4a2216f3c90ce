"""Typical wrong answers to the exercises of lesson 02, and what their authors should be told."""

mistakes = {
    "02a": [
        ('("backward pre", "second"), ("backward", "second"),\n            ("backward pre", "first"), ("backward", "first")',
         '("backward pre", "first"), ("backward", "first"),\n            ("backward pre", "second"), ("backward", "second")', "`second` comes first"),
        ('("forward pre", "first"), ("forward", "first")', '("forward", "first"), ("forward pre", "first")', "as its name says"),
        ('("forward", "first"),\n            ("forward pre", "second")', '("forward pre", "second"), ("forward", "first")', "when `first` has ended"),
        (', ("backward", "first")]', "]", "eight events"),
        ('"backward pre"', '"full backward pre"', "is not one of the events"),
        ("def eight_events():\n    return 'forward, backward'", "a list of pairs"),
        ("def eight_events():\n    return [(kind, name) for name in ('first', 'second') for kind in ('forward pre', 'forward', 'backward pre', 'backward')]",
         "when the forward pass has ended"),
    ],
    "02b": [
        (", with_kwargs=True", "", "with three arguments"),
        ("def named_arguments(model, layer, x):\n    found = {}\n    def look(m, i, named, o):\n        found.update(named)\n        return named\n"
         "    layer.register_forward_hook(look, with_kwargs=True)\n    model(x)\n    return found", "replaces the layer's output"),
        ("    return found", "", "Is the `return` missing?"),
        ("with hl.Hook(layer, look, with_kwargs=True):", "layer.register_forward_hook(look, with_kwargs=True);", "a hook stays on the model when"),
        ("hl.Hook(layer", "hl.Hook(model", "Your dict is empty"),
        (": model(x)", ": layer(x)", "did the whole model run"),
        ("found.update(named)", "found.update(dict.fromkeys(named))", "The values should be"),
        ("def named_arguments(model, layer, x):\n    found = []\n    def look(m, i, named, o): found.append(i)\n"
         "    handle = layer.register_forward_hook(look, with_kwargs=True)\n    model(x)\n    handle.remove()\n    return found[0]", "The tuple holds the positional arguments"),
        ("m, i, named, o", "m, i, o, named", "with the dict before the output"),
        ("m, i, named, o", "m, i, named", "with the dict before the output"),
        ("found.update(named)", "found = named", "not `found = named`"),
        ("def named_arguments(model, layer, x):\n    with hl.Hook(layer, lambda m, i, o, named: named, with_kwargs=True) as hook:\n        model(x)\n        return hook.stored",
         "the dict comes before it"),
    ],
    "02c": [
        ("lambda name, m: not hl.has_children(m)", "'*'", "only layers without layers inside"),
        ('heard("forward") - heard("backward pre")', "{n for n, m in model.named_modules() if not hl.has_children(m)} - heard('backward pre')", "`spare` never runs"),
        ('heard("forward") - heard("backward pre")', 'heard("backward pre")', "which gets its gradient"),
        ('heard("forward") - heard("backward pre")', 'heard("forward") - heard("backwards")', "which gets its gradient"),
        ("        model(x).sum().backward()", "        model(x)", "which gets its gradient"),
        ("def unreached(model, x):\n    out = []\n    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]\n"
         "    def look(name, o):\n        if not o.requires_grad: out.append(name)\n"
         "    hs = [m.register_forward_hook(lambda m, i, o, n=n: look(n, o)) for n, m in leaves]\n"
         "    model(x)\n    for h in hs: h.remove()\n    return out", "not whose output `requires_grad`"),
        ("        model(x).sum().backward()", "        out = model(x)\n    out.sum().backward()", "while you listen"),
    ],
}

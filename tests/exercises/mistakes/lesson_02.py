"""Typical wrong answers to the exercises of lesson 02, and what their authors should be told."""

mistakes = {
    "02a": [
        ('("forward pre", "outer"), ("forward pre", "inner")', '("forward pre", "inner"), ("forward pre", "outer")',
         "The block starts before the layer inside it"),
        ('("forward", "inner"), ("forward", "outer")', '("forward", "outer"), ("forward", "inner")',
         "the block ends after the layer"),
        ('("backward pre", "outer"), ("backward pre", "inner")',
         '("backward pre", "inner"), ("backward pre", "outer")', "arrives first"),
        ('("backward", "inner"), ("backward", "outer")', '("backward", "outer"), ("backward", "inner")',
         "The block's backward pass ends after"),
        ('("forward pre", "inner"),\n            ("forward", "inner")',
         '("forward", "inner"),\n            ("forward pre", "inner")', "as its name says"),
        (', ("backward", "outer")]', "]", "eight events"),
        ('"backward pre"', '"full backward pre"', "One of your events is ('full backward pre', 'outer')"),
        ('("forward", "inner")', '"forward inner"', "One of your events is 'forward inner'"),
        ("def eight_events():\n    return 'forward, backward'", "a list of pairs"),
        ("def eight_events():\n"
         "    return [(kind, name) for name in ('outer', 'inner') for kind in ('forward pre', 'forward', "
         "'backward pre', 'backward')]", "when the forward pass has ended"),
    ],
    "02b": [
        (", with_kwargs=True", "", "registered with `with_kwargs=True`"),
        ("def named_arguments(model, layer, x):\n    found = {}\n    def look(m, i, named, o):\n"
         "        found.update(named)\n        return named\n"
         "    layer.register_forward_hook(look, with_kwargs=True)\n    model(x)\n    return found",
         "replaces the layer's output"),
        ("    return found", "", "Is the `return` missing?"),
        ("with hl.Hook(layer, look, with_kwargs=True):", "layer.register_forward_hook(look, with_kwargs=True);",
         "a hook stays on the model when"),
        ("hl.Hook(layer", "hl.Hook(model", "Your dict is empty"),
        (": model(x)", ": layer(x)", "did you run the whole model"),
        ("found.update(named)", "found.update(dict.fromkeys(named))", "The values should be"),
        ("def named_arguments(model, layer, x):\n    found = []\n    def look(m, i, named, o): found.append(i)\n"
         "    handle = layer.register_forward_hook(look, with_kwargs=True)\n    model(x)\n    handle.remove()\n"
         "    return found[0]", "The positional arguments are in a tuple"),
        ("m, i, named, o", "m, i, o, named", "with the dict before the output"),
        ("m, i, named, o", "m, i, named", "with the dict before the output"),
        ("found.update(named)", "found = named", "not `found = named`"),
        ("def named_arguments(model, layer, x):\n"
         "    with hl.Hook(layer, lambda m, i, o, named: named, with_kwargs=True) as hook:\n        model(x)\n"
         "        return hook.stored", "the dict comes before it"),
        ("return found", "return list(found.items())",
         "The answer should be the dict itself, but yours is a list of 2"),
        ("return found", "return str(found)", "The answer should be a dict"),
        ("return found", "return {name: value for name, value in found.items() if name in ('mask', 'scale')}",
         "passed `shift=2` by keyword"),
        ("return found", "return found or None", "return an empty dict"),
        ("def named_arguments(model, layer, x):\n    found = {}\n    def look(m, i, named):\n"
         "        found.update(named)\n        return named\n"
         "    handle = layer.register_forward_pre_hook(look, with_kwargs=True)\n    model(x)\n    handle.remove()\n"
         "    return found", "A hook that only looks returns nothing"),
        ("def named_arguments(model, layer, x):\n    found = {}\n    def look(m, i, named, o):\n"
         "        found.update(named)\n        return 2 * o\n"
         "    handle = layer.register_forward_hook(look, with_kwargs=True)\n    model(x)\n    handle.remove()\n"
         "    return found", "changes the model's output"),
        ("found.update(named)", "found.update(enumerate(i))",
         "`mask` and `scale` are passed by keyword; you return ['0']"),
        ("return found", "return list(found)", "The answer should be the dict itself, but yours is a list"),
        ("found.update(named)", "found['named'] = named", "copies its entries"),
        ("return found", "return [found]", "The dict is in it"),
        ("return found", "return found['mask']", "That is the value of `mask` alone"),
        ("def named_arguments(model, layer, x):\n    import inspect\n"
         "    return dict(inspect.signature(layer.forward).parameters)", "`shift` is not passed"),
        ("found.update(named)", "found.update(named, x=i[0])", "`x` is passed by position: leave it out"),
        ("found.update(named)", "found.update((name, str(value)) for name, value in named.items())",
         "and yours is a str"),
        ("found.update(named)", "found.update((name, value.float() if torch.is_tensor(value) else value) "
         "for name, value in named.items())", "torch.bool, and yours is a tensor of shape (3, 4) of torch.float32"),
        ("found.update(named)", "found.update((name, value.item()) for name, value in named.items())",
         "return them as they are"),
        ("def look(m, i, named, o): found.update(named)",
         "def look(m, i, named, o):\n        for name, value in named: found[name] = value", "use `.items()`"),
        ("m, i, named, o): found.update(named)\n    with hl.Hook(layer, look, with_kwargs=True)",
         "m, i, o): found.update(i[1])\n    with hl.Hook(layer, look)", "only the positional arguments"),
        ("    with hl.Hook(layer, look, with_kwargs=True): model(x)", "    model(x)\n"
         "    with hl.Hook(layer, look, with_kwargs=True): pass", "no hook was on it when the model ran"),
        ("def named_arguments(model, layer, x):\n    found = {}\n    def look(m, i, named, o): found.update(named)\n"
         "    with hl.Hooks(model, look, names='*', with_kwargs=True): model(x)\n    return found",
         "hook only `layer`"),
    ],
    "02c": [
        ("lambda name, m: not hl.has_children(m)", "'*'", "only leaf layers"),
        ('names("forward") - names("backward pre")',
         "{n for n, m in model.named_modules() if not hl.has_children(m)} - names('backward pre')",
         "`spare` never runs"),
        ('names("forward") - names("backward pre")', 'names("backward pre")', "which gets its gradient"),
        ('names("forward") - names("backward pre")', 'names("forward") - names("backwards")',
         "which gets its gradient"),
        ("        model(x).sum().backward()", "        model(x)", "which gets its gradient"),
        ("def unreached(model, x):\n    out = []\n"
         "    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]\n"
         "    def look(name, o):\n        if not o.requires_grad: out.append(name)\n"
         "    hs = [m.register_forward_hook(lambda m, i, o, n=n: look(n, o)) for n, m in leaves]\n    model(x)\n"
         "    for h in hs: h.remove()\n    return out", "not which outputs have `requires_grad`"),
        ("def unreached(model, x):\n    ran, got, hs = [], [], []\n    for name, m in model.named_modules():\n"
         "        if list(m.children()): continue\n        def look(m, i, o): ran.append(name)\n"
         "        def back(m, go): got.append(name)\n"
         "        hs += [m.register_forward_hook(look), m.register_full_backward_pre_hook(back)]\n"
         "    model(x).sum().backward()\n    for h in hs: h.remove()\n    return set(ran) - set(got)",
         "each must keep its own name"),
        ("        model(x).sum().backward()", "        model(x.requires_grad_()).sum().backward()",
         "Use `x` as it is"),
        ("        model(x).sum().backward()", "        out = model(x)\n    out.sum().backward()",
         "while your hooks are on"),
        ("def unreached(model, x):\n    out, got = [], []\n    def look(m, i, o):\n        out.append(m)\n"
         "        o.register_hook(lambda g: got.append(m))\n"
         "    leaves = {m: n for n, m in model.named_modules() if not list(m.children())}\n"
         "    hs = [m.register_forward_hook(look) for m in leaves]\n    try: model(x).sum().backward()\n"
         "    finally:\n        for h in hs: h.remove()\n"
         "    return {leaves[m] for m in out} - {leaves[m] for m in got}", "check `o.requires_grad` first"),
        ('return sorted(names("forward") - names("backward pre"))', "rows = [e for e in timeline.rows]\n"
         "    return [e.name for e in rows if e.kind == 'forward' and sum(r.kind == 'forward' and r.name == "
         "e.name for r in rows) > sum(r.kind == 'backward pre' and r.name == e.name for r in rows)]",
         "runs twice, and its second output"),
        ("return sorted(", "return 2 * sorted(", "List each name once"),
        ("return sorted(", "return len(", "a list of names"),
        ('names("forward") - names("backward pre")', '{"stem.0", "stem.1", "aside"} & names("forward")',
         "In a model without a cut"),
        ("model(x).sum().backward()", "model(x.clone().requires_grad_()).sum().backward()",
         "Without a cut, but with a frozen `stem.0`, no output of"),
        ("lambda name, m: not hl.has_children(m)", "lambda name, m: True", "List only leaf layers"),
    ],
}


right = {
    "02c": [
        ('sorted(names("forward") - names("backward pre"))', '[*names("forward") - names("backward pre")]'),
    ],
}

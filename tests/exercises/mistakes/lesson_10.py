"""Typical wrong answers to the exercises of lesson 10, and what their authors should be told."""

mistakes = {
    "10a": [
        ("not all(t.isfinite().all() for t in tensors)", "any(t.isnan().any() for t in tensors)", "not only for NaN"),
        ("not all(t.isfinite().all()", "all(t.isfinite().all()", "`first` is fine"),
        ("t.isfinite().all() for", "not t.isinf().any() for", "`bad` makes a NaN, and no Inf"),
        ("t.isfinite().all() for", "t.sum().isfinite() for", "their sum is not"),
        ("t.isfinite().all() for", "t.norm().isfinite() for", "their sum is not"),
        ("t.isfinite().all() for", "(t.max() - t.min()).isfinite() for", "their sum is not"),
        ("t.isfinite().all() for", "t.float().std().isfinite() for", "their sum is not"),
        ("t.isfinite().all() for", "bool(t.abs().max() < 1e30) for", "their sum is not"),
        ("bad.append(names[m])", "names[m] and not list(m.children()) and bad.append(names[m])",
         "A container is a layer, too"),
        ("bad.append(names[m])", "isinstance(m, (torch.nn.Sequential, torch.nn.Linear)) or not [*m.children()] and "
         "bad.append(names[m])", "A container is a layer, too"),
        ("bad.append(names[m])", "any([*c.children()] for c in m.children()) or bad.append(names[m])",
         "A container is a layer, too"),
        ('names="*"): model(x)', 'names="*"): model(x), model(x)', "the model runs 2 times"),
        ("def first_bad(model, x):\n    class Stop(Exception): pass\n"
         "    names = {m: n for n, m in model.named_modules()}\n"
         "    def look(m, i, o):\n        if any(not t.isfinite().all() for t in (o if type(o) is tuple else [o])):\n"
         "            raise Stop(names[m])\n    try:\n        with hl.Hooks(model, look, names='*'): model(x)\n"
         "    except Stop as stop: return str(stop)\n    return ''", "the model stops there"),
        ("o if isinstance(o, tuple) else (o,)", "(o,)", "may return a tuple of tensors"),
        ("o if isinstance(o, tuple) else (o,)", "(o[0],) if isinstance(o, tuple) else (o,)",
         "Look at all tensors of a tuple"),
        ("def first_bad(model, x):\n    bad, handles = [], []\n    for name, layer in model.named_modules():\n"
         "        def look(m, i, o):\n            if not o.isfinite().all(): bad.append(name)\n"
         "        handles.append(layer.register_forward_hook(look))\n    model(x)\n"
         "    for handle in handles: handle.remove()\n    return bad[0] if bad else ''", "bind it with `name=name`"),
        ("bad[0] if bad", "bad[-1] if bad", "`last` runs after the bad layer"),
        ("bad[0] if bad", "bad if bad", "should be a name"),
        ('else ""', "else None", "returns nothing"),
        ('with hl.Hooks(model, look, names="*"): model(x)', "hl.Hooks(model, look, names='*'); model(x)",
         "a hook stays on the model when"),
        ('names="*"', "names=['first', 'middle', 'last']", "only the container"),
        ("def first_bad(model, x):\n"
         "    with hl.Hooks(model, lambda m, i, o: not o.isfinite().all(), names='*') as hooks:\n"
         "        model(x)\n        return next((h.name for h in hooks if h.stored), '')",
         "in the order in which layers finish"),
        ("def first_bad(model, x):\n"
         "    handles = [m.register_forward_hook(lambda m, i, o: o.isfinite().all()) for m in model.modules()]\n"
         "    model(x)", "that replaces the layer's output"),
        ("t.isfinite().all() for", "t.isfinite() for", "`.all()` combines them into one"),
        ("not all(t.isfinite().all() for", "not all(t.isfinite().any() for", "one bad number is enough"),
        (' if bad else ""', "", "return the empty string then"),
        ("t.isfinite().all()", "not t.isnan().any()", "`last` runs after the bad layer"),
    ],
    "10b": [
        ("given and not", "not", "only passed it on"),
        ("for name, layer in model.named_modules():", "for name, layer in model.named_modules():\n"
         "        if [*layer.children()]: continue", "A container is a layer, too"),
        ("for name, layer in model.named_modules():", "for name, layer in model.named_modules():\n"
         "        if any([*c.children()] for c in layer.children()): continue", "A container is a layer, too"),
        ("not o.isfinite().all()", "o.isinf().any()", "`bad` makes a NaN, and no Inf"),
        ("not o.isfinite().all()", "not o.sum().isfinite()", "their sum is not"),
        ("not o.isfinite().all()", "not (o.max() - o.min()).isfinite()", "their sum is not"),
        ("t.isfinite().all() for t in i", "t.mean().isfinite() for t in i", "their sum is not"),
        ("t.isfinite().all() for t in i", "not t.isinf().any() for t in i", "a NaN was in the data"),
        ("t.isfinite().all() for t in i", "bool(t.max() < torch.inf) for t in i", "a negative Inf was in the data"),
        ("all(t.isfinite().all() for t in i)", "i[0].isfinite().all()", "look at all of `i`"),
        ("all(t.isfinite().all() for t in i)", "not any(t.isnan().any() for t in i)", "only passed it on"),
        ("for t in i)", "for t in i[0])", "look at all of `i`"),
        ("named_modules", "named_children", "only the container"),
        ("            given = all(t.isfinite().all() for t in i)\n            if given and not o.isfinite().all()",
         "            if o.isnan().any() and not any(t.isnan().any() for t in i)", "An input of `last` is Inf"),
        ("        for handle in handles: handle.remove()\n", "        pass\n", "a hook stays on the model when"),
        ("    try: model(x)\n    finally:\n        for handle", "    model(x)\n    if True:\n        for handle",
         "When the model raises, your hook stays"),
        ("    finally:\n", "    except Exception: pass\n    if True:\n", "your function hides the error"),
        ("all(t.isfinite().all() for t in i)", "i.isfinite().all()", "`go` are tuples"),
        ("(m, i, o, name=name)", "(m, i, o)", "bind it with `name=name`"),
        ("all(t.", "any(t.", "look at all of `i`"),
        ("makers[0]", "makers[-1]", "which finishes last: keep all names, and return the first"),
    ],
    "10c": [
        ("fine(go) and not fine(gi)", "not fine(gi)", "`go` must be finite"),
        ("fine(go) and not fine(gi)", "fine(gi) and not fine(go)", "got was already bad"),
        (" if g is not None", "", "its `gi` contains None"),
        ("not list(m.children()) and ", "", "only the container"),
        ('kind="backward", ', "", "finds nothing"),
        ("loss().backward()", "loss()", "finds nothing"),
        ("fine(go) and not fine(gi)", "go[0].isfinite().all() and not gi.isfinite().all()", "`go` are tuples"),
        ("loss().backward()", "loss.backward()", "`loss` is a function"),
        ("def gradient_maker(model, loss):\n    loss().backward()\n"
         "    return next(n for n, p in model.named_parameters() if not p.grad.isfinite().all())", "is a parameter"),
        ("def gradient_maker(model, loss):\n    bad = []\n    def look(m, gi, go):\n"
         "        if any(g is not None and not g.isfinite().all() for g in gi): bad.append(m)\n"
         "    names = {m: n for n, m in model.named_modules() if not list(m.children())}\n"
         "    handles = [m.register_full_backward_hook(look) for m in names]\n    loss().backward()\n"
         "    for handle in handles: handle.remove()\n    return names[bad[0]] if bad else ''",
         "Here the loss itself spoils the gradient"),
        ("not list(m.children()) and fine(go)",
         "m is not model and not isinstance(m, torch.nn.Sequential) and fine(go)",
         "only layers without layers inside count"),
        ("fine(go) and not fine(gi)", "fine(go)", "whose gradients are all finite"),
        ("g.isfinite().all() for", "not g.isnan().any() for", "got was already bad"),
        ("g.isfinite().all() for", "not g.isinf().any() for", "makes a NaN, not an Inf"),
    ],
    "10r": [
        ("A", "`log` makes the first number that is not finite"),
        ("B", "the NaN appears on the way back"),
        ("C", "But so are those of D"),
        ("D", "But so are those of C"),
    ],
}


right = {
    "10a": [
        ("t.isfinite().all() for", "t.abs().max().isfinite() for"),
        ("t.isfinite().all() for", "bool((t*0 == 0).all()) for"),
        ("t.isfinite().all() for", "not (t.isnan() | t.isinf()).any() for"),
        ("def first_bad(model, x):\n    try:\n        with hl.find_nan(model, gradients=False): model(x)\n"
         "    except hl.NonFiniteError as error: return error.layer\n    return ''",),
        ("def first_bad(model, x):\n    found, names = [], {m: n for n, m in model.named_modules()}\n"
         "    def look(m, i, o):\n        parts = o if isinstance(o, (tuple, list)) else [o]\n"
         "        if not torch.cat([t.flatten() for t in parts]).isfinite().all(): found.append(m)\n"
         "    with hl.global_hook(look): model(x)\n    return names[found[0]] if found else ''",),
        ("def first_bad(model, x):\n    rows = []\n"
         "    with torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: rows.append((m, all("
         "t.isfinite().all() for t in (o if isinstance(o, tuple) else [o]))))): model(x)\n"
         "    bad = [m for m, fine in rows if not fine]\n"
         "    return {m: n for n, m in model.named_modules()}[bad[0]] if bad else str()",),
    ],
    "10b": [
        ("not o.isfinite().all()", "(o - o).isnan().any()"),
        ("def maker(model, x):\n    names, made = {m: n for n, m in model.named_modules()}, []\n"
         "    def look(m, i, o):\n        made.extend([names[m]]*(all(t.isfinite().all() for t in i) and not "
         "o.isfinite().all()))\n    with hl.global_hook(look): model(x)\n    return next(iter(made), '')",),
    ],
}

"""Typical wrong answers to the exercises of lesson 10, and what their authors should be told."""

mistakes = {
    "10a": [
        ("not all(t.isfinite().all() for t in tensors)", "any(t.isnan().any() for t in tensors)", "not only for NaN"),
        ("not all(t.isfinite().all()", "all(t.isfinite().all()", "`first` is fine"),
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
        ("all(t.isfinite().all() for t in i)", "i[0].isfinite().all()", "look at all of `i`"),
        ("all(t.isfinite().all() for t in i)", "not any(t.isnan().any() for t in i)", "only passed it on"),
        ("for t in i)", "for t in i[0])", "look at all of `i`"),
        ("named_modules", "named_children", "only the container"),
        ("            given = all(t.isfinite().all() for t in i)\n            if given and not o.isfinite().all()",
         "            if o.isnan().any() and not any(t.isnan().any() for t in i)", "An input of `last` is Inf"),
        ("        for handle in handles: handle.remove()\n", "        pass\n", "your hooks stay on"),
        ("    try: model(x)\n    finally:\n        for handle", "    model(x)\n    if True:\n        for handle",
         "when the model raises an error"),
        ("    finally:\n", "    except Exception: pass\n    if True:\n", "your function swallows it"),
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

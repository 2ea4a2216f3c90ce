"""Typical wrong answers to the exercises of lesson 01, and what their authors should be told."""

mistakes = {
    "01a": [
        ("def layer_shape(model, layer, x):\n    shapes = []\n"
         "    layer.register_forward_hook(lambda m, i, o: shapes.append(o.shape))\n    model(x)\n"
         "    layer._forward_hooks.clear()\n    return shapes[0]", "`clear()` removes every hook"),
        ("hook.stored.shape", "hook.stored", "the tensor itself"),
        ("return hook.stored.shape", "hook.stored.shape", "Is the `return` missing?"),
        ("return hook.stored.shape", "return model(x).shape", "shape of the whole model's output"),
        ("model(x)", "layer(x)", "run the whole model on `x`"),
        ("as hook: model(x)", "as hook: pass\n    model(x)", "unless the model runs while it's on"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n"
         "    layer.register_forward_hook(lambda m, i, o: shapes.append(o.shape))\n    model(x)\n"
         "    return shapes[0]", "a hook stays on the model when"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n"
         "    h = layer.register_forward_hook(lambda m, i, o: shapes.append(i[0].shape))\n    model(x)\n"
         "    h.remove()\n    return shapes[0]", "is the input shape of `stem`"),
        ("def layer_shape(model, layer, x):\n    shapes = {}\n"
         "    layer.register_forward_hook(lambda m, i, o: shapes.setdefault(0, o.shape))\n    model(x)\n"
         "    return shapes[0]", "replaces the layer's output"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n"
         "    layer.register_forward_hook(lambda m, o: shapes.append(o.shape))\n    model(x)\n    return shapes[0]",
         "with three arguments"),
        ("hook.stored.shape", "[hook.stored.shape]", "take it out with `[0]`"),
        ("def layer_shape(model, layer, x):\n    with hl.Hooks(layer, lambda m, i, o: o.shape) as hooks:\n"
         "        model(x)\n        return hooks.stored", "hooks the layer itself"),
        ("hook.stored.shape", "[hook.stored]", "a list of tensors"),
        ("hook.stored.shape", "hook.stored.numel()", "should be a shape, but yours is the number 768"),
        ("hook.stored.shape", "[float(n) for n in hook.stored.shape]", "contains only integers"),
        ("hook.stored.shape", "str(hook.stored.shape)", "should be a shape"),
        ("hook.stored.shape", "len(hook.stored.shape)", "The answer should be a shape, but yours is the number 4"),
        ("return hook.stored.shape", "return list(layer.parameters())[0].shape",
         "The output of `stem` has shape (3, 4, 8, 8); your function"),
    ],
    "01b": [
        (" if not list(m.children())", "", "Count only leaf layers"),
        ("named_modules", "named_children", "sees the top level only"),
        ("dict.fromkeys(names.values(), 0)", "__import__('collections').Counter()", "start every count at 0"),
        ("counts[names[m]] += 1", "counts[names[m]] = 1", "`act` runs twice"),
        ("    for handle in handles: handle.remove()\n", "", "a hook stays on the model when"),
        ("def count_calls(model, x):\n"
         "    names = [name for name, m in model.named_modules() if not list(m.children())]\n"
         "    counts = dict.fromkeys(names, 0)\n    handles = []\n    for name in names:\n"
         "        def count(m, i, o): counts[name] += 1\n"
         "        handles.append(model.get_submodule(name).register_forward_hook(count))\n    model(x)\n"
         "    for h in handles: h.remove()\n    return counts", "Bind it with `name=name`"),
        ("dict.fromkeys(names.values(), 0)", "{}", "Start every count at 0"),
        ("    counts = dict.fromkeys(names.values(), 0)\n    def count(m, i, o): counts[names[m]] += 1",
         "    counts = dict.fromkeys(names, 0)\n    def count(m, i, o): counts[m] += 1", "should be the names"),
        ("    counts = dict.fromkeys(names.values(), 0)\n    def count(m, i, o): counts[names[m]] += 1",
         "    counts = dict.fromkeys([type(m).__name__ for m in names], 0)\n"
         "    def count(m, i, o): counts[type(m).__name__] += 1", "The names should be"),
        ("def count_calls(model, x):\n    return {}", "Your dict is empty"),
        ("    model(x)\n", "", "Every count is 0"),
        ("handle.remove()", "[m._forward_hooks.clear() for m in names]", "on the model before is gone"),
        ("return counts", "return {name: [n] for name, n in counts.items()}",
         "The count of `stem.0` should be one number"),
        ("def count_calls(model, x):\n    return {'stem.0': 1, 'stem.1': 1, 'act': 2, 'spare': 0, 'head': 1}",
         "but wrong for another"),
        ("if not list(m.children())", "", "Count only leaf layers: leave out those"),
        ("    for handle in handles: handle.remove()\n", "    handles[0].remove()\n",
         "The result is right, but a hook stays on the model when"),
    ],
    "01c": [
        ("(o.std() / i[0].std()).item()", "o.std() / i[0].std()", "keeps the graph of the whole pass in memory"),
        ("o.std() / i[0].std()", "o.std(correction=0) / i[0].std(correction=0)", "as NumPy's do"),
        ("(o.std() / i[0].std()).item()", "float(o.detach().numpy().std() / i[0].detach().numpy().std())",
         "as NumPy's do"),
        ("(o.std() / i[0].std()).item()", "round((o.std() / i[0].std()).item(), 2)", "but rounded"),
        ("(o.std() / i[0].std()).item()", "round((o.std() / i[0].std()).item(), 4)", "but rounded"),
        ("o.std() / i[0].std()", "(o.std() / i[0].std()).round(decimals=3)", "but rounded"),
        ("o.std() / i[0].std()", "o.std() / (i[0].std() + 1e-4)", "It should be about"),
        ("o.std() / i[0].std()", "o.mean() / i[0].mean()", "ratios of means"),
        ("o.std() / i[0].std()", "o.norm() / i[0].norm()", "ratios of norms"),
        ("o.std() / i[0].std()", "i[0].std() / o.std()", "Upside down"),
        ("o.std() / i[0].std()", "o.std() / i.std()", "the tensor is `i[0]`"),
        ("(o.std() / i[0].std())", "o.std()", "divide by the `std` of the layer's input"),
        ("o.std() / i[0].std()", "o.std() / x.std()", "Each layer has its own"),
        ("return found", "return found[:2]", "one number for each of the 4 calls"),
        ("def gains(model, x):\n    got = []\n"
         "    hs = [m.register_forward_hook(lambda m, i, o: got.append(float(o.std() / i[0].std()))) for m in "
         "model.children()]\n    model(x)\n    for h in hs: h.remove()\n    return got",
         "When the model raises, your hook stays"),
        ("def gains(model, x):\n    got = []\n"
         "    for m in model.children(): m.register_forward_hook(lambda m, i, o: got.append(float(o.std() / "
         "i[0].std())))\n    model(x)\n    return got", "a hook stays on the model when"),
        ("def gains(model, x):\n    got = []\n"
         "    with hl.Hooks(model.children(), lambda m, i, o: got.append((o.std() / i[0].std()).item())):\n"
         "        try: model(x)\n        except Exception: return []\n        return got",
         "your function hides the error: let it pass"),
        ("return found", "return dict(enumerate(found))", "yours is a dict of 4"),
        ("o.std() / i[0].std()", "o.var() / i[0].var()", "ratios of variances"),
        ("def gains(model, x): return model(x).std() / x.std()", "a list with one number for each call"),
        ("def gains(model, x):\n"
         "    with hl.Hooks(model.children(), lambda m, i, o: o.std() / i[0].std()) as hooks: model(x)\n"
         "    return hooks.stored", "only the last call of each layer"),
        ("def gains(model, x):\n    found = []\n    for layer in model.children():\n        y = layer(x)\n"
         "        found.append((y.std() / x.std()).item())\n        x = y\n    return found", "Run the whole model"),
        ("model.children()", "model.modules()", "Hook only `model.children()`"),
        ("model.children(), look", "[model], look", "one number for each of the 4 calls"),
        ("return found", "return [found[2], found[1], found[3], found[0]]", "in the order of the calls"),
        ("    with hl.Hooks(model.children(), look): model(x)",
         "    with hl.Hooks(model.children(), look): pass\n    model(x)", "Your list is empty"),
        (".item())", ".repeat(2))", "Each entry should be one number"),
        ("return found", "return sorted(found)", "It should be about"),
        ("(o.std() / i[0].std())", "(o.std() - i[0].std())", "Those are differences"),
    ],
}


right = {
    "01c": [
        ("(o.std() / i[0].std()).item()", "float(o.detach().double().std() / i[0].detach().double().std())"),
        ("(o.std() / i[0].std()).item()", "float(o.detach().numpy().std(ddof=1) / i[0].detach().numpy().std(ddof=1))"),
        ("(o.std() / i[0].std()).item()", "(o.var() / i[0].var()).sqrt().item()"),
    ],
    # what was stored is read in the `with`
    "01a": [("as hook: model(x)\n    return", "as hook:\n        model(x)\n        return")],
}

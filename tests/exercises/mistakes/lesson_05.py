"""Typical wrong answers to the exercises of lesson 05, and what their authors should be told."""

BY_HAND = ("def dead_units(model, batches):\n    alive, handles = {{}}, []\n"
           "    def look(m, i, o, name):\n"
           "        alive[name] = alive.get(name, 0) | (o > 0).transpose(0, 1).flatten(1).any(1)\n{last}"
           "    for name, m in hl.layers(model, nn.ReLU).items():\n"
           "        hook = lambda m, i, o, name=name: look(m, i, o, name)\n"
           "        handles.append(m.register_forward_hook(hook))\n    for x in batches: model(x)\n{finish}"
           "    return {{name: (units == 0).nonzero().flatten().tolist() for name, units in alive.items()}}")

mistakes = {
    "05a": [
        ("    return (", "    (", "Is the `return` missing?"),
        ("def dead_fraction(o):\n    return (torch.cat(o) == 0).float().mean().item()",
         "fraction of numbers that are zero"),
        ("def dead_fraction(o):\n    return (o[0] == 0).float().mean()", "fraction of numbers that are zero"),
        ("<= 0", "> 0", "units that are alive"),
        ("<= 0", "<= 0.05", "not nearly zero"),
        ("def dead_fraction(o): return (torch.cat(o).mean((0, 2, 3)) < 1e-3).float().mean().item()", "not nearly zero"),
        (".float().mean()", ".float().sum()", "counts the units"),
        (".float().mean()", ".squeeze()", "stopped with"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.cat(o).amin((0, 2, 3))", "positive once"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.cat(o).amax((2, 3))", "positive once"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.cat(o).amax(0)", "positive once"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.cat(o).amax((1, 2, 3))",
         "Units are dimension 1"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "o[0].amax((0, 2, 3))", "in one of the batches"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)",
         "torch.stack(o).amax((0, 1, 3, 4))", "`torch.cat` joins batches of different sizes"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.stack([t.amax((0, 2, 3)) for t in o])",
         "average the fractions"),
        ("def dead_fraction(o):\n"
         "    return sum((t.amax((0, 2, 3)) == 0).float().mean().item()*len(t) for t in o)/13",
         "average the fractions"),
        ("def dead_fraction(o): return (o.amax((0, 2, 3)) <= 0).float().mean().item()", "stopped with"),
        (".float().mean().item()", ".float().mean().item()*100", "percentage"),
        (".float().mean().item()", ".tolist()", "should be one number"),
        ("return (largest <= 0).float().mean().item()", "return {'dead': 0.125}", "should be one number"),
        ("def dead_fraction(o):\n    o = torch.cat(o)\n    dead = 0\n    for u in range(o.shape[1]):\n"
         "        if o[:, u].max() == 0: dead += 1\n    return dead/len(o)", "by the number of images"),
        ("    largest", "    for t in o: t.clamp_(min=.5)\n    largest", "changes the outputs"),
        ("torch.stack([t.amax((0, 2, 3)) for t in o]).amax(0)", "torch.cat(o[:-1]).amax((0, 2, 3))",
         "in the last batch"),
        ("largest <= 0", "largest == largest.min()", "If no unit is dead, the fraction should be 0: compare with"),
        (".mean().item()", ".mean().item() * 8", "That counts the units"),
    ],
    "05b": [
        ("    return image", "    layer._forward_hooks.clear()\n    return image", "Remove only your own"),
        ("histc(40, 0, 10)", "histc(40)", "has its own range"),
        (".log1p()", "", "These are the counts"),
        (".log1p()", ".log()", "minus infinity"),
        ("image.log1p()", "(1 + image).log2()", "These look like `log2`"),
        ("image.log1p()", "(1 + image).log10()", "These look like `log10`"),
        ("image.log1p()", "image.log1p().T", "lies on its side"),
        ("image.log1p()", "image.log1p().flip(0)", "Upside down"),
        ("def color_image(model, layer, batches):\n    columns = []\n    for x in batches:\n"
         "        layer.register_forward_hook(lambda m, i, o: columns.append(o.detach().histc(40, 0, 10)))\n"
         "        model(x)\n    return torch.stack(columns, 1).log1p()", "Six columns"),
        ("image.log1p()", "list(image.log1p())", "a list of 40"),
        ("histc(40", "abs().histc(40", "the absolute values"),
        ("histc(40", "clamp(0, 10).histc(40", "to its ends"),
        ("def color_image(model, layer, batches):\n    kept = []\n"
         "    handle = layer.register_forward_hook(lambda m, i, o: kept.append(o.detach()))\n    try:\n"
         "        for x in batches: model(x)\n    finally: handle.remove()\n"
         "    return torch.stack([o.histc(40, 0, 10) for o in kept], 1).log1p()",
         "overwrites its output in place"),
        ("def color_image(model, layer, batches):\n    columns = []\n"
         "    handle = layer.register_forward_hook(lambda m, i, o: "
         "columns.append(o.detach().histc(40, 0, 10)))\n    for x in batches: model(x)\n    handle.remove()\n"
         "    return torch.stack(columns, 1).log1p()", "When the model raises, your hook stays"),
        ("            model(x)\n            image",
         "            try: model(x)\n            except Exception: break\n            image",
         "your function hides the error"),
        ("hook_output(layer)", "hook_output(model)", "hook `layer`"),
        ("hl.hook_output(layer)", "hl.Hook(layer, lambda m, i, o: i[0].clone())", "the input of `layer`"),
        ("image.log1p()", "image[:10].log1p()", "40 bins and 3 batches"),
        ("model(x)", "layer(x)", "run the whole model on `x`"),
        ("def color_image(model, layer, batches):\n    columns = []\n"
         "    def count(m, i, o): columns.append(o.detach().histc(40, 0, 10))\n"
         "    layer.register_forward_hook(count)\n    for x in batches: model(x)\n"
         "    return sum(c[:, None] * c.new_tensor([k == j for j in range(3)]) for k, c in "
         "enumerate(columns)).log1p()", "a hook stays on the model when"),
        ("image.log1p()", "image.log10()", "log(0) is minus infinity: take log(1 + count), `.log1p()`"),
        ("histc(40, 0, 10)", "histc(40, -10, 10)", "Your bins go from -10 to 10"),
        ("histc(40, 0, 10)", "histc(10, 0, 40)", "`histc` takes the number of bins first"),
    ],
    "05c": [
        ("return {name", "{name", "Is the `return` missing?"),
        ("hl.layers(model, nn.ReLU)", "{n: m for n, m in model.named_children() if isinstance(m, nn.ReLU)}",
         "`named_children()` doesn't"),
        ("hl.layers(model, nn.ReLU)", "hl.layers(model)", "Only layers that are an `nn.ReLU`"),
        ("{name: (most", "{name.split('.')[-1]: (most", 'has its path, "block.act"'),
        ("{name: (most", "{relus[name]: (most", "The keys are the layers themselves"),
        ("{name: (most", "{len(name): (most", "The keys should be the names of the ReLUs"),
        ("in largest.items()}", "in largest.items() if (most == 0).any()}", "its list is empty"),
        ("in largest.items()}", "in [*largest.items()][1:]}", "'act1' missing"),
        ("(most == 0).nonzero().flatten().tolist()", "(most == 0).tolist()", "True and False"),
        ("(most == 0).nonzero().flatten().tolist()", "most == 0", "True and False"),
        ("(most == 0).nonzero().flatten().tolist()", "(most == 0).nonzero().tolist()", "in a list of its own"),
        ("(most == 0).nonzero().flatten().tolist()", "(most == 0).float().mean().item()", "a list of dead units"),
        ("(most == 0).nonzero().flatten().tolist()", "(most == 0).sum()", "a list of dead units"),
        ("flatten().tolist()", "flatten().add(1).tolist()", "Count units from 0"),
        ("most == 0", "most > 0", "units that are alive"),
        ("most == 0", "most != 0", "units that are alive"),
        ("most == 0", "most <= 0.05", "not near zero"),
        ("most == 0", "most < 0", "some units are dead"),
        ("torch.maximum(most, largest.get(name, most))", "most", "zero in the last batch"),
        ("torch.maximum(most, largest.get(name, most))", "largest.get(name, most)", "zero in the first batch"),
        ("torch.maximum(most, largest.get(name, most))", "torch.minimum(most, largest.get(name, most))",
         "keep the largest value over all batches"),
        ("            for name, o in zip(relus, hooks.stored):\n                most",
         "        for name, o in zip(relus, hooks.stored):\n                most", "zero in the last batch"),
        (".amax(1)", ".amin(1)", "is positive in batch 0"),
        ("o.transpose(0, 1).flatten(1)", "o.flatten(1)", "Units are dimension 1, images dimension 0"),
        ("o.transpose(0, 1).flatten(1).amax(1)", "o.amax((0, 2, 3))", "makes a row of each unit, for either shape"),
        ("def dead_units(model, batches):\n    alive, handles = {}, []\n"
         "    for name, m in hl.layers(model, nn.ReLU).items():\n"
         "        def look(m, i, o):\n"
         "            alive[name] = alive.get(name, 0) | (o > 0).transpose(0, 1).flatten(1).any(1)\n"
         "        handles.append(m.register_forward_hook(look))\n    for x in batches: model(x)\n"
         "    for handle in handles: handle.remove()\n"
         "    return {name: (units == 0).nonzero().flatten().tolist() for name, units in alive.items()}",
         "All hooks write under the last name"),
        (BY_HAND.format(last="", finish="    for handle in handles: handle.remove()\n"),
         "When the model raises, your hook stays on it"),
        (BY_HAND.format(last="", finish=""), "a hook stays on the model"),
        (BY_HAND.format(last="        return alive[name]\n", finish=""), "a hook that only looks returns nothing"),
        ("def dead_units(model, batches):\n    kinds = hl.layers(model, nn.ReLU)\n"
         "    return dict(zip(kinds, ([0], [2, 6], [2, 4, 6], [])))", "Here is another model"),
    ],
    "05r": [
        ("A", "every unit is positive for many of the images"),
        ("B", "zeros in the title are in other places of the same images"),
        ("D", "each unit is positive somewhere in every image"),
        ("E", "about units, and about all training images"),
    ],
}

right = {
    "05a": [("<= 0", "== 0"), ("def dead_fraction(o):\n    alive = sum((t > 0).sum((0, 2, 3)) for t in o)\n"
                              "    return sum(n == 0 for n in alive.tolist()) / len(alive)",)],
    "05b": [("image.log1p()", "torch.log(1 + image)"), ("image.log1p()", "image.add(1).log2() * 0.6931471805599453")],
    "05c": [
        ("hl.hook_outputs(relus) as hooks", "torch.no_grad(), hl.hook_outputs(relus) as hooks"),
        ("(most == 0).nonzero().flatten().tolist()", "(most <= 0).nonzero().flatten()"),
        ("(most == 0).nonzero().flatten().tolist()", "{k for k in range(len(most)) if most[k] == 0}"),
        ("(most == 0).nonzero().flatten().tolist()", "[*torch.where(most == 0)[0]]"),
        ("def dead_units(model, batches):\n    with hl.hook_outputs(hl.layers(model, nn.ReLU)) as hooks:\n"
         "        model(torch.cat(batches))\n        stored = hooks.stored\n"
         "    most = [o.max(0)[0].view(o.shape[1], -1).max(1)[0] for o in stored]\n"
         "    return {n: (m == 0).nonzero().view(-1).tolist() for n, m in zip(hl.layers(model, nn.ReLU), most)}",),
    ],
}

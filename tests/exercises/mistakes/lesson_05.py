"""Typical wrong answers to the exercises of lesson 05, and what their authors should be told."""

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
        ("histc(40, 0, 10)", "histc(40)", "a range of its own"),
        (".log1p()", "", "These are the counts"),
        (".log1p()", ".log()", "minus infinity"),
        ("image.log1p()", "(1 + image).log2()", "1.443 times the natural ones"),
        ("image.log1p()", "(1 + image).log10()", "0.434 times the natural ones"),
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
        ("hl.hook_output(layer)", "hl.Hook(layer, lambda m, i, o: i[0].clone())", "is the input of `layer`"),
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
        ("x.var(correction=0).item() * k",
         "x.std().item()**2 * (k - 1)", "NaN, as soon as a tensor has only one number"),
        ("        k, gap", "        if x.numel() == 1: continue\n        k, gap", "until a tensor has only one number"),
        ("        m2 += x.var(correction=0).item() * k + gap**2 * n * k / (n + k)\n"
         "        mean += gap * k / (n + k)\n",
         "        mean += gap * k / (n + k)\n        gap = x.mean().item() - mean\n"
         "        m2 += x.var(correction=0).item() * k + gap**2 * n * k / (n + k)\n", "after `mean` has moved"),
        ("x.numel()", "len(x)", "only its rows"),
        ("return mean, (m2 / (n - 1))**0.5", "return (m2 / (n - 1))**0.5, mean", "wrong way round"),
        ("mean += gap * k / (n + k)", "mean += gap / (1 + (n > 0) * (n // k + 1))", "The mean should be about"),
        (" + gap**2 * n * k / (n + k)", "", "gap between the means"),
        ("(m2 / (n - 1))**0.5", "m2 / (n - 1)", "take the square root"),
        ("m2 / (n - 1)", "m2 / n", "divides by n - 1"),
        ("x.var(correction=0)", "x.var()", "divided by n - 1 already"),
        ("return mean, (m2 / (n - 1))**0.5", "return mean", "should be two numbers"),
        ("for x in stream:", "for x in list(stream):", "alive at the same time"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.std().item()) for x in stream]\n"
         "    return sum(m for m, _ in xs)/len(xs), sum(s for _, s in xs)/len(xs)", "the mean of the means"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.std().item(), x.numel()) for x in stream]\n"
         "    n = sum(k for *_, k in xs)\n    return sum(m*k for m, _, k in xs)/n, sum(s*k for _, s, k in xs)/n",
         "Standard deviations cannot be averaged"),
        ("def mean_and_std(stream):\n    n = sum(x.numel() for x in stream)\n"
         "    mean = sum(x.sum().item() for x in stream)/n\n    return mean, 0.", "only once"),
        ("def mean_and_std(stream):\n    n, s, q = 0, 0., 0.\n"
         "    for x in stream: n, s, q = n + x.numel(), s + x.sum(), q + x.square().sum()\n"
         "    return s.item()/n, ((q - s*s/n)/(n - 1)).clamp(min=0).sqrt().item()",
         "until the numbers are far from zero"),
        ("def mean_and_std(stream):\n    n, s, q = 0, 0., 0.\n"
         "    for x in stream: n, s, q = n + x.numel(), s + x.sum().item(), q + (x**2).sum().item()\n"
         "    mean = s/n\n    return mean, ((q - n*mean**2)/(n - 1))**0.5", "is complex"),
        ("def mean_and_std(stream):\n    n, s, q = 0, 0., 0.\n"
         "    for x in stream: n, s, q = n + x.numel(), s + x.sum().item(), q + (x**2).sum().item()\n"
         "    mean = s/n\n    return mean, max(0, (q - n*mean**2)/(n - 1))**0.5",
         "until the numbers are far from zero"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.var().item(), x.numel()) for x in stream]\n"
         "    n = sum(k for *_, k in xs)\n"
         "    return sum(m*k for m, _, k in xs)/n, (sum(v*k for _, v, k in xs)/n)**0.5", "gap between the means"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.var().item(), x.numel()) for x in stream]\n"
         "    n = sum(k for *_, k in xs)\n"
         "    return sum(m*k for m, _, k in xs)/n, (sum(v for _, v, k in xs)/len(xs))**0.5",
         "gap between the means"),
        ("return mean, (m2 / (n - 1))**0.5", "return None, None", "The mean should be one number"),
        ("return mean, (m2 / (n - 1))**0.5", "return {'mean': mean, 'std': (m2 / (n - 1))**0.5}",
         "two numbers, `mean, std`"),
        ("gap**2 * n * k / (n + k)", "gap * n * k / (n + k)", "counts squared"),
    ],
    "05r": [
        ("A", "every unit is positive for many of the images"),
        ("B", "zeros in the title are in other places of the same images"),
        ("D", "each unit is positive somewhere in every image"),
        ("E", "about units, and about all training images"),
    ],
}

SQUARES = ("def mean_and_std(stream):\n    n, s, q = 0, 0., 0.\n    for x in stream:\n        x = x.double()\n"
           "        n, s, q = n + x.numel(), s + x.sum().item(), q + (x**2).sum().item()\n    mean = s/n\n"
           "    return mean, {}")

right = {
    "05a": [("<= 0", "== 0"), ("def dead_fraction(o):\n    alive = sum((t > 0).sum((0, 2, 3)) for t in o)\n"
                              "    return sum(n == 0 for n in alive.tolist()) / len(alive)",)],
    "05b": [("image.log1p()", "torch.log(1 + image)"), ("image.log1p()", "image.add(1).log2() * 0.6931471805599453")],
    "05c": [(SQUARES.format("((q - n*mean**2)/(n - 1))**0.5"),),
            (SQUARES.format("max(0, (q/n - mean**2)*n/(n - 1))**0.5"),),
            ("x.var(correction=0).item() * k", "(x - x.mean()).square().sum().item()"),
            ("def mean_and_std(stream):\n    n, mean, m2 = 0, 0., 0.\n    for x in stream:\n"
             "        for v in x.flatten().tolist():\n            n += 1\n            gap = v - mean\n"
             "            mean += gap / n\n            m2 += gap * (v - mean)\n    return mean, (m2 / (n - 1))**0.5",)],
}

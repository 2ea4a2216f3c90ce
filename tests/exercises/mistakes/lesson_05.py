"""Typical wrong answers to the exercises of lesson 05, and what their authors should be told."""

mistakes = {
    "05a": [
        ("    return (", "    (", "Is the `return` missing?"),
        ("(o.amax((0, 2, 3)) <= 0)", "(o == 0)", "share of numbers that are zero"),
        ("<= 0", "> 0", "units that are alive"),
        ("<= 0", "<= 0.05", "not nearly zero"),
        (".mean()", ".sum()", "counts the units"),
        (".mean()", ".squeeze()", "stopped with"),
        ("o.amax((0, 2, 3))", "o.amin((0, 2, 3))", "speaks once"),
        ("o.amax((0, 2, 3))", "o[0].amax((1, 2))", "speaks once"),
        ("o.amax((0, 2, 3))", "o.amax((2, 3))", "speaks once"),
        ("o.amax((0, 2, 3))", "o.amax((1, 2, 3))", "Units are dimension 1"),
        ("o.amax((0, 2, 3))", "o.amax(0)", "speaks once"),
        (".mean().item()", ".mean().item()*100", "percentage"),
        (".float().mean().item()", ".tolist()", "should be one number"),
        ("def dead_share(o):\n    dead = 0\n    for u in range(o.shape[1]):\n        if o[:, u].max() == 0: dead += 1\n    return dead/len(o)", "by the number of pictures"),
    ],
    "05b": [
        ("histc(40, 0, 10)", "histc(40)", "a range of its own"),
        (".log1p()", "", "These are the counts"),
        (".log1p()", ".log()", "minus infinity"),
        ("image.log1p()", "image.log1p().T", "lies on its side"),
        ("image.log1p()", "image.log1p().flip(0)", "Upside down"),
        ("def colour_image(model, layer, batches):\n    columns = []\n    for x in batches:\n"
         "        layer.register_forward_hook(lambda m, i, o: columns.append(o.detach().histc(40, 0, 10)))\n        model(x)\n"
         "    return torch.stack(columns, 1).log1p()", "Six columns"),
        ("image.log1p()", "list(image.log1p())", "not list"),
        ("hook_output(layer)", "hook_output(model)", "hook `layer`"),
        ("hl.hook_output(layer)", "hl.Hook(layer, lambda m, i, o: i[0].clone())", "is the input of `layer`"),
        ("image.log1p()", "image[:10].log1p()", "40 bins and 3 batches"),
        ("model(x)", "layer(x)", "run the whole model on `x`"),
        ("def colour_image(model, layer, batches):\n    columns = []\n    def count(m, i, o): columns.append(o.detach().histc(40, 0, 10))\n"
         "    layer.register_forward_hook(count)\n    for x in batches: model(x)\n"
         "    return sum(c[:, None] * c.new_tensor([k == j for j in range(3)]) for k, c in enumerate(columns)).log1p()", "a hook stays on the model when"),
    ],
    "05c": [
        ("mean += gap * k / (n + k)", "mean += gap / (1 + (n > 0) * (n // k + 1))", "The mean should be about"),
        (" + gap**2 * n * k / (n + k)", "", "The means of the tensors differ"),
        ("(m2 / (n - 1))**0.5", "m2 / (n - 1)", "take the square root"),
        ("m2 / (n - 1)", "m2 / n", "divides by n - 1"),
        ("x.var(correction=0)", "x.var()", "divided by n - 1 already"),
        ("return mean, (m2 / (n - 1))**0.5", "return mean", "should be two numbers"),
        ("for x in stream:", "for x in list(stream):", "alive at the same time"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.std().item()) for x in stream]\n"
         "    return sum(m for m, _ in xs)/len(xs), sum(s for _, s in xs)/len(xs)", "the mean of the means"),
        ("def mean_and_std(stream):\n    xs = [(x.mean().item(), x.std().item(), x.numel()) for x in stream]\n    n = sum(k for *_, k in xs)\n"
         "    return sum(m*k for m, _, k in xs)/n, sum(s*k for _, s, k in xs)/n", "Deviations cannot be averaged"),
        ("def mean_and_std(stream):\n    n = sum(x.numel() for x in stream)\n    mean = sum(x.sum().item() for x in stream)/n\n"
         "    return mean, 0.", "only once"),
        ("def mean_and_std(stream):\n    n, s, q = 0, 0., 0.\n    for x in stream: n, s, q = n + x.numel(), s + x.sum(), q + x.square().sum()\n"
         "    return s.item()/n, ((q - s*s/n)/(n - 1)).clamp(min=0).sqrt().item()", "until the numbers are far from zero"),
    ],
}

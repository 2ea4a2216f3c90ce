"""Typical wrong answers to the exercises of lesson 21, and what their authors should be told."""

mistakes = {
    "21a": [
        ("def step_change(model, layer, x, step):\n    kept, mode = [], model.training\n"
         "    with layer.register_forward_hook(lambda m, i, o: kept.append(o.detach().clone())):\n"
         "        model.eval()\n        model(x)\n        model.train(mode)\n        step()\n        model.eval()\n"
         "        model(x)\n    model.train(mode)\n"
         "    return (kept[1] - kept[0]).pow(2).mean().sqrt().item()", "Your hook was on during `step()`"),
        ("        model.eval()\n", "", "Is the model in eval mode"),
        ("        model.train(mode)\n", "", "restore the mode before the step"),
        ("        model.train(mode)\n", "        model.train()\n", "restore the mode before the step"),
        ("    step()\n", "", "`step` was not called"),
        ("    step()\n", "    step()\n    step()\n", "called 2 times"),
        (".pow(2).mean().sqrt().item()", ".mean().item()", "in which signs cancel"),
        (".pow(2).mean().sqrt().item()", ".pow(2).mean().item()", "the root is missing"),
        (".pow(2).mean().sqrt().item()", ".norm().item()", "its norm, a sum"),
        (".pow(2).mean().sqrt().item()", ".abs().mean().item()", "the mean of its absolute values"),
        (".pow(2).mean().sqrt().item()", ".std().item()", "its standard deviation"),
        (".pow(2).mean().sqrt().item()", "", "should be one number"),
        (
            "(measured() - before).pow(2).mean().sqrt()",
            "(measured().pow(2).mean().sqrt() - before.pow(2).mean().sqrt())",
            "subtract the outputs first",
        ),
        (
            "        with layer.register_forward_hook(keep): model(x)\n",
            "        layer.register_forward_hook(keep)\n        model(x)\n",
            "a hook stays on the model",
        ),
        (
            "def step_change(model, layer, x, step):\n    model.eval()\n    a = hl.hook_output(layer)\n"
            "    model(x)\n    before = a.stored.clone()\n    step()\n    model(x)\n    after = a.stored.clone()\n"
            "    a.remove()\n    return (after - before).pow(2).mean().sqrt().item()",
            "found the model in eval mode",
        ),
        (
            "def step_change(model, layer, x, step):\n    step()\n    kept, mode = [], model.training\n"
            "    model.eval()\n    with layer.register_forward_hook(lambda m, i, o: kept.append(o.clone())):\n"
            "        model(x)\n        model(x)\n    model.train(mode)\n"
            "    return (kept[1] - kept[0]).pow(2).mean().sqrt().item()",
            "The change is always zero",
        ),
        ("layer.register_forward_hook(keep)", "model.register_forward_hook(keep)", "change of the model's output"),
        ("o.detach().clone()", "o.detach()", "The next layer works in place and has overwritten what you"),
    ],
    "21b": [
        ("if p.dim() == 2 else 1", "if p.dim() > 1 else 1", "three dimensions and is not a matrix"),
        ("model.named_parameters():\n",
         "model.named_parameters(remove_duplicate=False):\n        name = name.replace('again.weight', 'up.weight')\n",
         "two layers share it"),
        ("    return groups",
         "    return groups + [{'params': [model.embed.bias], 'lr': lr}]", "Your groups contain `None`"),
        ("p.shape[1] if p.dim() == 2 else 1", "p.shape[0] if p.dim() == 2 else 1", "rate"),
        ("narrow[name].shape[1] / p.shape[1]", "narrow[name].shape[0] / p.shape[0]", "The inputs are `shape[1]`"),
        ("narrow[name].shape[1] / p.shape[1]", "p.shape[1] / narrow[name].shape[1]", "That is the inverse"),
        ("narrow[name].shape[1] / p.shape[1]", "(narrow[name].shape[1] / p.shape[1])**0.5", "That is the root"),
        ("lr * ratio", "lr", "scale it"),
        ("lr * ratio", "ratio", "gets lr="),
        (
            "    for name, p in model.named_parameters():\n",
            "    for name, p in model.named_parameters():\n        if p.dim() != 2: continue\n",
            "would never be updated",
        ),
        ("[p]", "[name]", "the optimizer needs the parameters themselves"),
        ("[p]", "[narrow[name]]", "isn't a parameter of `model`"),
        ("[p]", "[p.detach()]", "isn't a parameter of `model`"),
        (', "lr": lr * ratio', "", "Each group needs both"),
        (
            "    return groups",
            "    return groups + [{'params': list(model.parameters()), 'lr': lr}]",
            "in two groups",
        ),
        ("    return groups", "    return {name: lr for name in narrow}", "should be a list of dicts"),
        ("    return groups", "    return torch.optim.Adam(groups)", "should be a list of dicts"),
        (
            "def mup_groups(model, base, lr):\n    width = model.up.in_features\n"
            "    ratio = base.up.in_features / width\n"
            "    return [{'params': [p], 'lr': lr * ratio} for p in model.parameters()]",
            "rate",
        ),
        (
            "def mup_groups(model, base, lr):\n"
            "    return [{'params': [p], 'lr': lr / p.shape[1] if p.dim() == 2 and p.shape[1] != q.shape[1] "
            "else lr}\n            for p, q in zip(model.parameters(), base.parameters())]",
            "multiply by the number of inputs in `base`",
        ),
        ("if p.dim() == 2 else 1", "if name.endswith('weight') and p.dim() > 0 and len(p.shape) > 1 else 1",
         "`conv.weight` has rate 0.005, but it has three dimensions"),
    ],
    "21c": [
        (".pow(2).mean().sqrt().log()", ".abs().mean().log()", "mean of absolute values"),
        (".pow(2).mean().sqrt().log()", ".abs().amax().log()", "The exponent of `a` should be about"),
        (".pow(2).mean().sqrt().log()", ".norm().log()", "The exponent of `a` should be about"),
        (" if v[0] > -torch.inf}", "}", "Leave out layers that do not change"),
        (
            "\ndef exponents(make, widths, seeds, x):\n    def outputs(model):\n        kept, handles = {}, []\n"
            "        for name, layer in model.named_modules():\n            if not hl.has_children(layer):\n"
            "                handles.append(layer.register_forward_hook(lambda m, i, o, name=name: "
            "kept.update({name: o})))\n        model(x)\n        for handle in handles: handle.remove()\n"
            "        return kept\n    logs = {}\n    for width in widths:\n        for seed in seeds:\n"
            "            model, train = make(width, seed)\n            before = outputs(model)\n"
            "            train()\n            after = outputs(model)\n"
            "            for name in after: logs.setdefault(name, []).append((after[name] - "
            "before[name]).pow(2).mean().sqrt().log())\n"
            "    u = torch.tensor(widths).log().repeat_interleave(len(seeds))\n    u = u - u.mean()\n"
            "    return {name: ((u * torch.stack(v)).sum() / (u * u).sum()).item() for name, v in logs.items()}\n",
            "keep a `clone()`",
        ),
        (
            "\ndef exponents(make, widths, seeds, x):\n    def outputs(model):\n        kept, handles = {}, []\n"
            "        for name, layer in model.named_modules():\n            if True:\n"
            "                handles.append(layer.register_forward_hook(lambda m, i, o, name=name: "
            "kept.update({name: o})))\n        model(x)\n        for handle in handles: handle.remove()\n"
            "        return kept\n    logs = {}\n    for width in widths:\n        for seed in seeds:\n"
            "            model, train = make(width, seed)\n            before = outputs(model)\n"
            "            train()\n            after = outputs(model)\n"
            "            for name in after: logs.setdefault(name, []).append((after[name] - "
            "before[name]).pow(2).mean().sqrt().log())\n"
            "    u = torch.tensor(widths).log().repeat_interleave(len(seeds))\n    u = u - u.mean()\n"
            "    return {name: ((u * torch.stack(v)).sum() / (u * u).sum()).item() for name, v in logs.items()}\n",
            "Leave out layers that contain layers",
        ),
        ("        train()\n", "", "no layer changes in your numbers"),
        (".pow(2).mean().sqrt().log()", ".pow(2).mean().log()", "exponent of the squares"),
        (".pow(2).mean().sqrt().log()", ".pow(2).mean().sqrt()", "take the logarithm of the size, too"),
        ("torch.tensor(widths).log()", "torch.tensor(widths).float()", "take the logarithm of the width, too"),
        ("(o - before[name])", "o", "Is it the change"),
        (" if not hl.has_children(layer)]", " if name]", "Leave out layers that contain layers"),
        ("    u = u - u.mean()\n", "", "The exponent of `a` should be"),
        (
            "for width in widths for seed in seeds)",
            "for width in widths for seed in [*seeds][:1] * len(seeds))",
            "each width and each seed",
        ),
        (
            "for width in widths for seed in seeds)",
            "for seed in seeds for width in widths)",
            "The exponent of `a` should be",
        ),
        ("    return {name:", "    return {name: 1 /", "The axes are swapped"),
        (
            "    u = u - u.mean()\n"
            "    return {name: ((u * torch.stack(v)).sum() / (u * u).sum()).item() for name, v in logs.items() if v[0] "
            "> -torch.inf}",
            "    n = len(seeds)\n"
            "    return {name: ((torch.stack(v[-n:]).mean() - torch.stack(v[:n]).mean()) / (u[-1] - "
            "u[0])).item() for name, v in logs.items()}",
            "only use the narrowest and the widest",
        ),
        (
            "    u = u - u.mean()\n"
            "    return {name: ((u * torch.stack(v)).sum() / (u * u).sum()).item() for name, v in logs.items() if v[0] "
            "> -torch.inf}",
            "    u = torch.tensor(widths).log()\n    u = u - u.mean()\n"
            "    means = {name: torch.stack(v).exp().view(len(widths), -1).mean(1).log() for name, v in "
            "logs.items()}\n    return {name: ((u * v).sum() / (u * u).sum()).item() for name, v in means.items()}",
            "take the mean of their logarithms",
        ),
        ("    return {name: ((u", "    return {'layer ' + name: ((u", "The names should be"),
    ],
}


right = {
    "21c": [
        (".pow(2).mean().sqrt().log()", ".double().pow(2).mean().log().div(2).float()"),
    ],
}

"""Typical wrong answers to the exercises of lesson 07, and what their authors should be told."""

mistakes = {
    "07a": [
        ("o.abs() > 0.97", "o > 0.97", "only the upper end"),
        ("> 0.97", "< 0.97", "values that are not saturated"),
        ("hl.hook_outputs(model, names=kind)", "hl.Hooks(model, lambda m, i, o: i[0].clone(), names=kind)",
         "the inputs of the tanhs"),
        ("names=kind", "names='*'", "one number for each of the 4 tanhs"),
        ("model, names=kind", "[m for m in model.children() if isinstance(m, kind)]", "there are no layers to hook"),
        (".float().mean().item()", "", "tensors of comparisons"),
        (".float().mean().item()", ".sum().item()", "These are not fractions"),
        (".float().mean().item()", ".float().mean().item() * 100", "1 means all of them"),
        ("(o.abs() > 0.97).float().mean().item()", "(o.abs() > 0.97).sum().item() / len(o)", "images times units"),
        ("o.abs() > 0.97", "o.mean(0).abs() > 0.97", "Compare each number first"),
        ("(o.abs() > 0.97).float().mean().item()", "float(o.abs().mean() > 0.97)", "Compare each number first"),
        ("in hooks.stored]", "in hooks.stored][0]", "is the number"),
        ("def saturated(model, kind, x):\n    shares = []\n    for m in model.modules():\n"
         "        if isinstance(m, kind):\n            x = m(x)\n"
         "            shares.append((x.abs() > 0.97).float().mean().item())\n    return shares", "tanhs alone"),
        ("as hooks:\n        model(x)\n        return", "as hooks: pass\n    model(x)\n    return",
         "unless the model runs while it's on"),
        ("names=kind", "names=nn.Tanh", "no layer of this Sequential matches Tanh"),
        ("[(o.abs() > 0.97).float().mean().item() for o in hooks.stored]",
         "([(o.abs() > 0.97).float().mean().item() for o in hooks.stored] * 4)[:4]", "Use `kind`"),
        ("return [(o.abs() > 0.97).float().mean().item() for o in hooks.stored]",
         "return hooks.stored[0].mean()", "one number for each layer"),
        ("(o.abs() > 0.97).float().mean().item()", "None", "Each entry of the list"),
        ("> 0.97)", "> 0.99)", "You count outputs beyond ±0.99: the limit is 0.97"),
    ],
    "07b": [
        ("(low + high) / 2", "(low - high) / 2", "a gain is positive"),
        ("def gain_of(act, z):\n    return (1/act(z).square().mean().sqrt()).item()", "Right for ReLU"),
        ("def gain_of(act, z):\n    return act(z).square().mean().sqrt().item()", "1 divided by that size"),
        ("def gain_of(act, z):\n    return (1/act(z).square().mean()).item()", "the size is its square root"),
        ("def gain_of(act, z):\n    return (1/act(z).std()).item()", "You made the standard deviation 1"),
        ("    return middle", "", "Is the `return` missing?"),
        ("mean() < 1", "mean() > 1", "an end of the interval"),
        (".square().mean()", ".square().sum()", "an end of the interval"),
        ("low, high = 0.1, 10.", "low, high = 1., 2.", "With your gain of"),
        ("low, high = 0.1, 10.", "low, high = 1., 10.", "With your gain of"),
        (".square().mean()", ".std()", "You made the standard deviation 1"),
        (".square().mean()", ".mean()", "You made the mean 1"),
        ("range(40)", "range(3)", "With your gain of"),
        ("act(middle * z)", "(middle * act(z))", "Right for ReLU"),
        ("return middle", "return middle, act(middle * z)", "should be one number"),
        ("return middle", "return [middle]", "should be one number"),
        ("return middle", "return act(middle * z)", "output of the activation"),
        ("act(middle * z)", "nn.functional.relu(middle * z)", "the gain of ReLU. Each activation has its own"),
        ("def gain_of(act, z):\n    return nn.init.calculate_gain('relu')",
         "the gain of ReLU. Each activation has its own"),
        ("def gain_of(act, z):\n    return act(z).square().mean()", "without a gain. The gain is the factor"),
        ("def gain_of(act, z):\n    return act(z).square().mean().item()",
         "That is the mean of the squares of `act(z)`"),
        ("return middle", "return act(middle * z).square().mean()",
         "Do you return the size that the search has reached"),
        ("mean() < 1", "mean() < 0.5", "does it compare with a number other than 1"),
        ("    return middle", "        return middle", "so your interval was never halved"),
        ("        else: high = middle", "    else: high = middle", "so your interval was never halved"),
        ("return middle", "return high - low", "return the last middle"),
        (".square().mean() < 1", " < 1", "A comparison of tensors has one result per element"),
        ("    return middle", "    for g in torch.arange(0.1, 10, 0.1):\n"
         "        if act(g * z).square().mean() > 1: return g", "so the gain is too large"),
        ("act(middle * z).square().mean() < 1", "act(middle * z).abs().mean() < 1", "You made the mean 1"),
    ],
    "07c": [
        ("std = o.std(0)", "std = o.std(0, correction=0)", "1 if you divide by n"),
        ("std = o.std(0)", "std = (o - o.mean(0)).square().mean(0).sqrt()", "1 if you divide by n"),
        ("        return o / std\n", "", "they were scaled for their old inputs"),
        ("        if m.bias is not None: m.bias.div_(std)\n", "", "divide it, too"),
        ("        if m.bias is not None: m.bias.div_(std)\n", "        m.bias.div_(std)\n", "One layer has no bias"),
        ("        if m.bias is not None: m.bias.div_(std)\n", "        m.bias.data /= std\n", "One layer has no bias"),
        ("o.std(0)", "o.std(1)", "The shapes do not match"),
        ("m.weight.div_(std[:, None])", "m.weight.div_(std)", "a column with a number for each row"),
        ("m.weight.div_(std[:, None])", "m.weight = m.weight / std[:, None]", "cannot replace a parameter"),
        ("        m.weight.div_(std[:, None])\n        if m.bias is not None: m.bias.div_(std)\n", "",
         "The weights have not changed"),
        ("m.weight.div_(std[:, None])", "m.weight = nn.Parameter(m.weight / std[:, None])",
         "The model has new parameters"),
        ("@torch.no_grad()\n", "", "Autograd does not let you"),
        ("@torch.no_grad()\ndef set_stds(model, kind, x):\n    for m in model.modules():\n"
         "        if not isinstance(m, kind): continue\n        with hl.hook_output(m) as hook:\n"
         "            model(x)\n            m.weight /= hook.stored.std(0)[:, None]\n"
         "        if m.bias is not None: m.bias.zero_()\n    return model", "biases are zero now"),
        ("@torch.no_grad()\ndef set_stds(model, kind, x):\n    for m in model.modules():\n"
         "        if not isinstance(m, kind): continue\n        x = m(x)\n        std = x.std(0)\n"
         "        m.weight /= std[:, None]\n        if m.bias is not None: m.bias /= std\n        x = x / std\n"
         "    return model", "those after it are not"),
        ("m.weight.div_(std[:, None])", "m.weight.mul_(std[:, None])", "not divided by the same numbers"),
        ("o.std(0)", "o.std()", "one number for the whole layer"),
        ("        std = o.std(0)\n        m.weight.div_(std[:, None])\n",
         "        std = o.std()\n        m.weight.div_(std)\n", "not each of its units"),
        ("m.bias.div_(std)", "m.bias.sub_(o.mean(0)).div_(std)", "do not subtract"),
        ("@torch.no_grad()\ndef set_stds(model, kind, x):\n    for m in model.modules():\n"
         "        if not isinstance(m, kind): continue\n        seen = []\n"
         "        handle = m.register_forward_hook(lambda m, i, o: seen.append(o))\n        model(x)\n"
         "        handle.remove()\n        o = seen[0]\n        m.weight /= o.std(0)[:, None]\n"
         "        if m.bias is not None: m.bias.copy_((m.bias - o.mean(0)) / o.std(0))\n    return model",
         "do not subtract"),
        ("    with hl.edit_output(model, scale, names=kind): model(x)",
         "    for m in model.modules():\n        if isinstance(m, kind): m.register_forward_hook(scale)\n"
         "    model(x)", "A hook stays on the model"),
        ("names=kind", "names=lambda name, m: isinstance(m, kind) and name.startswith('0.')",
         "The last layer, outside"),
        ("    return model", "    return model(x)", "not Tensor"),
        ("    return model", "    return __import__('copy').deepcopy(model)", "another model"),
        ("    return model", "    return model.requires_grad_(False)", "frozen"),
    ],
    "07r": [
        ("A", "you can still tell the images apart"),
        ("C", "That is the healthy one"),
        ("D", "its standard deviation is 0.00"),
        ("E", "whatever the gradients are"),
    ],
}


right = {
    "07c": [
        ("std = o.std(0)", "std = o.var(0).sqrt()"),
    ],
    "07a": [("        return", "    return")],  # what was stored is read behind the `with`
}

"""Typical wrong answers to the exercises of lesson 07, and what their authors should be told."""

mistakes = {
    "07a": [
        ("o.abs() > 0.97", "o > 0.97", "only the upper end"),
        ("> 0.97", "< 0.97", "values that are not saturated"),
        ("hl.hook_outputs(model, names=kind)", "hl.Hooks(model, lambda m, i, o: i[0].clone(), names=kind)", "the inputs of the tanhs"),
        ("names=kind", "names='*'", "one number for each of the 4 tanhs"),
        ("model, names=kind", "[m for m in model.children() if isinstance(m, kind)]", "there are no layers to hook"),
        (".float().mean().item()", "", "tensors of comparisons"),
        (".float().mean().item()", ".sum().item()", "These are counts"),
        ("o.abs() > 0.97", "o.mean(0).abs() > 0.97", "Compare first"),
        ("in hooks.stored]", "in hooks.stored][0]", "not float"),
        ("def saturated(model, kind, x):\n    shares = []\n    for m in model.modules():\n        if isinstance(m, kind):\n            x = m(x)\n"
         "            shares.append((x.abs() > 0.97).float().mean().item())\n    return shares", "tanhs alone"),
        ("as hooks:\n        model(x)\n        return", "as hooks: pass\n    model(x)\n    return", "unless the model ran while it was on"),
    ],
    "07b": [
        ("def gain_of(act, z):\n    return (1/act(z).square().mean().sqrt()).item()", "Right for ReLU"),
        ("def gain_of(act, z):\n    return act(z).square().mean().sqrt().item()", "1 divided by that size"),
        ("def gain_of(act, z):\n    return (1/act(z).square().mean()).item()", "the size is its square root"),
        ("def gain_of(act, z):\n    return (1/act(z).std()).item()", "You made the deviation 1"),
        ("    return middle", "", "Is the `return` missing?"),
        ("mean() < 1", "mean() > 1", "With your gain of"),
        (".square().mean()", ".std()", "You made the deviation 1"),
        (".square().mean()", ".mean()", "With your gain of"),
        ("range(40)", "range(3)", "With your gain of"),
        ("act(middle * z)", "(middle * act(z))", "Right for ReLU"),
    ],
    "07c": [
        ("        return o / std\n", "", "they were scaled for their old inputs"),
        ("        m.bias.data /= std\n", "", "divide it too"),
        ("        m.weight.data /= std\n        m.bias.data /= std\n", "", "The weights are as they were"),
        ("        m.weight.data /= std\n", "        m.weight = type(m.weight)(m.weight.data / std)\n", "The model has new parameters"),
        ("m.weight.data /= std", "m.weight /= std", "Autograd does not let you"),
        ("def set_deviations(model, kind, x):\n    with torch.no_grad():\n        for m in model.modules():\n            if not isinstance(m, kind): continue\n"
         "            with hl.hook_output(m) as hook:\n                model(x)\n                m.weight /= hook.stored.std()\n            m.bias.zero_()\n    return model", "biases are zero now"),
        ("def set_deviations(model, kind, x):\n    with torch.no_grad():\n        for m in model.modules():\n            if not isinstance(m, kind): continue\n"
         "            x = m(x)\n            m.weight /= x.std()\n            m.bias /= x.std()\n            x = x / x.std()\n    return model", "those after it are not"),
        ("m.weight.data /= std", "m.weight.data *= std", "Divide weight and bias"),
        ("    with hl.edit_output(model, scale, names=kind): model(x)",
         "    for m in model.modules():\n        if isinstance(m, kind): m.register_forward_hook(scale)\n    model(x)", "A hook stays on the model"),
        ("names=kind", "names=lambda name, m: isinstance(m, kind) and name.startswith('0.')", "The last layer, outside"),
        ("    return model", "    return model(x)", "not Tensor"),
        ("    return model", "    return __import__('copy').deepcopy(model)", "another model"),
    ],
}

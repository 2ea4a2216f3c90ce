"""Typical wrong answers to the exercises of lesson 18, and what their authors should be told."""

mistakes = {
    "18a": [
        ("output.clone()", "output", "keep a `clone()`"),
        ("            if not hl.has_children(layer): handles", "            handles", "that has layers inside"),
        ("for name in a if", "for name, _ in model.named_modules() if name in a and", "runs earlier"),
        (" * a[name].norm()", "", "the error is relative"),
        (
            "(a[name] - b[name]).norm() > limit * a[name].norm()",
            "(a[name] - b[name]).abs().max() > limit",
            "the error is relative",
        ),
        ("limit * a[name].norm()", "limit * b[name].norm()", "not the port's"),
        ("        for handle in handles: handle.remove()\n", "", "a hook stays on the model"),
        (
            'next((name for name in a if (a[name] - b[name]).norm() > limit * a[name].norm()), "")',
            "next((name for name in a if (a[name] - b[name]).norm() > limit * a[name].norm()))",
            "StopIteration",
        ),
        (
            '(a[name] - b[name]).norm() > limit * a[name].norm()), "")',
            "(a[name] - b[name]).norm() > limit * a[name].norm()), None)",
            "returns nothing",
        ),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()", "not torch.equal(a[name], b[name])", "below 0.05"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "(a[name] - b[name]).abs().mean() > limit * a[name].abs().mean()",
         "another measure"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "(a[name] - b[name]).abs().max() > limit * a[name].abs().max()",
         "The largest numbers alone"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()", "(a[name] - b[name]).std() > limit * a[name].std()",
         "what all numbers share"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "(a[name] - b[name]).square().sum() > limit * a[name].square().sum()",
         "Those are squares of lengths"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()", "((a[name] - b[name]) / a[name]).abs().max() > limit",
         "You divide number by number"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "((a[name] - b[name]).norm(dim=1) / a[name].norm(dim=1)).mean() > limit",
         "Take the length of the difference"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "(a[name] - b[name]).abs().median() > limit * a[name].abs().median()",
         "does not depend on the limit"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()", "not torch.allclose(a[name], b[name], rtol=limit)",
         "Take the length of the difference"),
        ('return next((name for name in a if (a[name] - b[name]).norm() > limit * a[name].norm()), "")',
         "e = {n: ((a[n] - b[n]).norm() / a[n].norm()).item() for n in a}\n"
         "    return max(e, key=e.get) if max(e.values()) > limit else ''", "whose error is the largest"),
        ("next((name for name in a", "next((name for name in [*a][::-1]", "runs earlier"),
        ("output, name=name): kept[name]", "output): kept[name]", "whose relative error is below"),
        (
            '    return next((name for name in a if (a[name] - b[name]).norm() > limit * a[name].norm()), "")',
            "    return max(a, key=lambda name: (a[name] - b[name]).norm() / a[name].norm())",
            'and it should be ""',
        ),
        (
            "def parting(model, port, x, limit):\n"
            "    return [name for name, p in model.named_parameters() if not torch.equal(p, "
            "port.get_parameter(name))]",
            "should be a name",
        ),
    ],
    "18b": [
        ("    if torch.equal", "    model.eval()\n    if torch.equal", "it was in train mode"),
        ('    if torch.equal(model(x), port(x)): return "equal"\n', "", 'the answer should be "equal"'),
        ("copy.deepcopy(m).double()", "m.double()", "Work on a `copy.deepcopy`"),
        (" * a.norm()", "", "the error is relative"),
        ("(x.double()) for", "(x.double()).float() for",
         "converted back to float32"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a.float() - b.float()).norm() < 1e-10 * a.norm()",
         "converted back to float32"),
        ("(a - b).norm() < 1e-10 * a.norm()", "torch.equal(a.float(), b.float())",
         "converted back to float32"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).norm() < 1e-8 * a.norm()",
         "and should be one from 1e-10 on"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).norm() < 1e-12 * a.norm()",
         "and should be one from 1e-10 on"),
        ("(a - b).norm() < 1e-10 * a.norm()", "torch.allclose(a, b, rtol=1e-10)",
         "and should be one from 1e-10 on"),
        ("(a - b).norm() < 1e-10 * a.norm()", "torch.allclose(a, b, rtol=1e-10, atol=0)",
         "You divide number by number"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).abs().max() < 1e-10 * a.abs().max()",
         "The largest numbers alone"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).abs().mean() < 1e-10 * a.abs().mean()",
         "another measure"),
        ("copy.deepcopy(m).double()", "copy.deepcopy(m).half().double()",
         "The error is there in float64, too"),
        ("(x.double())", "(x)", "dtype"),
        ("copy.deepcopy(m).double()(x.double())", "m(x).double()", "Are model *and* input converted?"),
        ('"rounding" if (a - b)', '"mistake" if (a - b)', 'the answer should be "rounding"'),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n"
            '    if torch.equal(model(x), port(x)): return "equal"\n'
            '    return "rounding" if torch.allclose(model(x), port(x)) else "mistake"',
            "The error is there in float64, too",
        ),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n"
            '    if torch.allclose(model(x), port(x)): return "equal"\n'
            "    a, b = (copy.deepcopy(m).double()(x.double()) for m in (model, port))\n"
            '    return "rounding" if (a - b).norm() < 1e-10 * a.norm() else "mistake"',
            "to the last bit",
        ),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n"
            "    a, b = (copy.deepcopy(m).double()(x.double()) for m in (model, port))\n"
            '    if torch.equal(a, b): return "equal"\n'
            '    return "rounding" if (a - b).norm() < 1e-10 * a.norm() else "mistake"',
            "First compare the outputs in float32",
        ),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n    return torch.equal(model(x), port(x))",
            "yours is",
        ),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n"
            '    if torch.equal(model(x), port(x)): return "Equal"\n    return "rounding"',
            "yours is 'Equal'",
        ),
        (
            "def kind_of_difference(model, port, x):\n    import copy\n    x = x.double()\n"
            "    a, b = model.double()(x), port.double()(x)\n    model.float()\n    port.float()\n"
            '    if (a - b).norm() < 1e-10 * a.norm(): return "equal"\n    return "mistake"',
            'should be "rounding"',
        ),
        ("torch.equal(model(x), port(x))", "torch.allclose(model(x), port(x))",
         "For a port that adds up in another order the answer should"),
    ],
    "18c": [
        ("        def after(m, args, output, kept=kept, partner=partner): return partner(kept.pop())\n"
         "        with layer.register_forward_pre_hook(before), layer.register_forward_hook(after):\n"
         "            errors[name] = ((port(x) - right).norm() / right.norm()).item()\n",
         "        def after(m, args, output, kept=kept, partner=partner, name=name):\n"
         "            mine = partner(kept.pop())\n            errors[name] = ((mine - output).norm() / "
         "mine.norm()).item()\n"
         "        with layer.register_forward_pre_hook(before), layer.register_forward_hook(after): port(x)\n",
         "that layer's own output"),
        ("kept.append(args[0].clone())", "kept.append(args[0])", "has overwritten its input"),
        (
            "        with layer.register_forward_pre_hook(before), layer.register_forward_hook(after):\n"
            "            errors",
            "        if True:\n            errors",
            "without any exchange",
        ),
        ("min(errors", "max(errors", "take the smallest"),
        ("return best, errors[best]", "return best, round(errors[best], 3)",
         "which is rounded"),
        ("return best, errors[best]", "return best, round(errors[best], 4)",
         "which is rounded"),
        ("return best, errors[best]", "return best, round(errors[best], 5)",
         "which is rounded"),
        ("return best, errors[best]", "return best, float(f'{errors[best]:.3g}')", "which is rounded"),
        ("    return best, errors[best]", "    return best", "a name and a number"),
        ("    return best, errors[best]", "    return errors[best], best", "the first is"),
        (" / right.norm()", "", "divide by that of the output"),
        (
            "- right).norm() / right.norm()",
            "- right).norm() / port(x).norm()",
            "by the length of the port's output",
        ),
        (
            "        if hl.has_children(layer): continue\n",
            "        if name == '': continue\n",
            "Name one of the layers without layers inside",
        ),
        ("return partner(kept.pop())", "partner(kept.pop())", "without any exchange"),
        (
            "def best_fix(model, port, x):\n    right, errors = model(x), {}\n"
            "    for name, layer in port.named_modules():\n        if hl.has_children(layer): continue\n"
            "        partner = model.get_submodule(name)\n"
            "        with layer.register_forward_hook(lambda m, i, o, p=partner: p(i[0])):\n"
            "            errors[name] = ((port(x) - right).norm() / right.norm()).item()\n"
            "    best = min(errors, key=errors.get)\n    return best, errors[best]",
            "has overwritten its input",
        ),
        (
            "def best_fix(model, port, x):\n    right, errors = model(x), {}\n"
            "    for name, layer in port.named_modules():\n        if hl.has_children(layer): continue\n"
            "        with hl.hook_output(model.get_submodule(name)) as hook:\n            model(x)\n"
            "            of_model = hook.stored.clone()\n"
            "        with layer.register_forward_hook(lambda m, i, o, new=of_model: new.clone()):\n"
            "            errors[name] = ((port(x) - right).norm() / right.norm()).item()\n"
            "    best = min(errors, key=errors.get)\n    return best, errors[best]",
            "hides every mistake before",
        ),
        (
            "def best_fix(model, port, x):\n    right, errors = model(x), {}\n"
            "    for name, layer in port.named_modules():\n        if hl.has_children(layer): continue\n"
            "        layer.load_state_dict(model.get_submodule(name).state_dict())\n"
            "        errors[name] = ((port(x) - right).norm() / right.norm()).item()\n"
            "    best = min(errors, key=errors.get)\n    return best, errors[best]",
            "Work on a `copy.deepcopy`",
        ),
        (
            "def best_fix(model, port, x):\n    right, errors = model(x), {}\n"
            "    for name, layer in port.named_modules():\n        if hl.has_children(layer): continue\n"
            "        partner = model.get_submodule(name)\n"
            "        layer.register_forward_pre_hook(lambda m, a: None)\n"
            "        old, layer.forward = layer.forward, partner.forward\n"
            "        errors[name] = ((port(x) - right).norm() / right.norm()).item()\n        layer.forward = old\n"
            "    best = min(errors, key=errors.get)\n    return best, errors[best]",
            "a hook stays on the model",
        ),
        (
            "def best_fix(model, port, x):\n    right, errors = model(x), {}\n"
            "    for name, layer in port.named_modules():\n        if hl.has_children(layer): continue\n"
            "        partner = model.get_submodule(name)\n"
            "        old, layer.forward = layer.forward, partner.forward\n"
            "        errors[name] = ((port(x) - right).norm() / right.norm()).item()\n        layer.forward = old\n"
            "    best = min(errors, key=errors.get)\n"
            "    return best, ((port(x) - right).norm() / right.norm()).item() - errors[best]",
            "how much the error falls",
        ),
        ("return partner(kept.pop())", "return partner(args[0])",
         "It works in place, and has overwritten its input before a"),
    ],
    "18r": [
        ("B", "does not say how many mistakes made it"),
        ("C", "differs by rounding"),
        ("D", "In the run it looks like A"),
        ("E", "That is true of rings"),
    ],
}


right = {
    "18a": [
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "torch.dist(a[name].double(), b[name].double()) / a[name].double().norm() > limit"),
        ("(a[name] - b[name]).norm() > limit * a[name].norm()",
         "((a[name] - b[name]).square().mean() / a[name].square().mean()).sqrt() > limit"),
    ],
    "18b": [
        ("(a - b).norm() < 1e-10 * a.norm()", "((a - b).norm() / a.norm()).item() < 1e-10"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).square().sum() <= 1e-20 * a.square().sum()"),
        ("(a - b).norm() < 1e-10 * a.norm()", "(a - b).float().norm() < 1e-10 * a.float().norm()"),
    ],
    "18c": [
        ("return best, errors[best]", "return best, torch.tensor(errors[best])"),
        ("((port(x) - right).norm() / right.norm()).item()",
         "(torch.dist(port(x).double(), right.double()) / right.double().norm()).item()"),
    ],
}

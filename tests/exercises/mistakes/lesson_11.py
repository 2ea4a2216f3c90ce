"""Typical wrong answers to the exercises of lesson 11, and what their authors should be told."""

mistakes = {
    "11a": [
        ("    model.eval()\n", "", "that is dropout in train mode"),
        ("    for m, mode in modes.items(): m.training = mode\n", "", "store the mode first"),
        ("    for m, mode in modes.items(): m.training = mode\n", "    model.train()\n",
         "was in eval mode, and now it is not"),
        ("    for m, mode in modes.items(): m.training = mode\n", "    model.train(modes[model])\n",
         "`model.train()` switches all layers"),
        ("def rows(model, name, x):\n    modes, found = {m: m.training for m in model.modules()}, []\n"
         "    model.eval()\n"
         "    h = model.get_submodule(name).register_forward_hook(lambda m, i, o: found.append(o.detach()))\n"
         "    model(x)\n    h.remove()\n    for m, mode in modes.items(): m.training = mode\n"
         "    return found[0].flatten(1)", "the ReLU after it works in place"),
        (".flatten(1)", "", "`flatten(1)` makes one row"),
        (".flatten(1)", ".flatten()", "one for each sample"),
        (", detach=True", "", "still require gradients"),
        ("found[name].flatten(1)", "found", "take the layer's tensor"),
        ("found[name].flatten(1)", "model(x).detach()", "the output of the model"),
        ("return found", "found", "Is the `return` missing?"),
        ("hl.FeatureExtractor(model, name, detach=True)(x)", "{name: model.get_submodule(name)(x).detach()}",
         "You give `x` to the layer itself"),
        ("found[name].flatten(1)", "found[name].flatten(2).mean(2) if found[name].dim() == 4 else found[name]",
         "has 12 numbers for each sample"),
        ("def rows(model, name, x):\n    found, modes = [], {m: m.training for m in model.modules()}\n"
         "    model.eval().get_submodule(name).register_forward_hook(lambda m, i, o: "
         "found.append(o.detach().clone().flatten(1)))\n    model(x)\n    for m in modes: m.training = modes[m]\n"
         "    return found[-1].clone()", "a hook stays on the model when"),
    ],
    "11b": [
        ("(predict(f[n:]) == y[n:])", "(predict(f[:n]) == y[:n])", "which it has memorized"),
        ("(predict(f[n:]) == y[n:])", "(predict(f) == y)", "You test the probe on all rows"),
        ("fit(f[:n], labels[:n])", "fit(f, labels)", "on more than the first 40 rows"),
        ("== y[n:]", "== labels[n:]", "compare it with the true labels"),
        ("accuracy(y), accuracy(nonsense)", "accuracy(nonsense), accuracy(y)", "In the wrong order"),
        ("accuracy(y), accuracy(nonsense)", "accuracy(y), accuracy(y)", "Your control was trained on the true labels"),
        ("accuracy(y), accuracy(nonsense)", "accuracy(y)", "should be two numbers"),
        (".float().mean().item()", "", "should be one number"),
        (".float().mean().item()", ".float().sum().item()", "It is the fraction of matches"),
        ("fit(f[:n], labels[:n])", "fit(f[:n], labels)", "as many labels"),
        ("fit(f[:n], labels[:n])", "fit(f[-n:], labels[-n:])", "on the first 40 rows"),
        ("== y[n:]", "== y", "as many predictions as labels"),
        ("def honest(fit, f, y, nonsense, n):\n    predict = fit(f[:n], y[:n])\n"
         "    return [(predict(f[n:]) == labels[n:]).float().mean() for labels in (y, nonsense)]",
         "You train only one probe"),
        ("return accuracy(y), accuracy(nonsense)", "return 1, 0", "never calls `fit`"),
    ],
    "11c": [
        ("read(model) - sum(read(make()) for _ in range(3)) / 3", "read(model)", "A comparison is missing"),
        ("read(make())", "(make(), read(model))[1]", "you compare the model with itself"),
        ("sum(read(make()) for _ in range(3)) / 3", "read(make())", "only one untrained network"),
        ("sum(read(make()) for _ in range(3)) / 3", "sum(map(read, [make()] * 3)) / 3", "only one untrained network"),
        ("range(3)", "range(10)", "you made 10"),
        (" / 3", "", "You subtract the sum"),
        ("read(model) - sum(read(make()) for _ in range(3)) / 3",
         "sum(read(make()) for _ in range(3)) / 3 - read(model)", "In the wrong order"),
        ("read(model) - sum(read(make()) for _ in range(3)) / 3",
         "read(model) / (sum(read(make()) for _ in range(3)) / 3)", "You divide"),
        ("found[name].flatten(1)", "found", "take those of the layer"),
        ("read(model) - sum", "sum", "alone: subtract it from"),
        (".flatten(1)", "", "`probe` needs rows"),
        ("found[name]", "m(x).detach()", "these rows are not the output of layer"),
        ("hl.FeatureExtractor(m, name, detach=True)(x)", "{name: m[0](x).detach()}",
         "these rows are not the output of layer"),
        ("sum(read(make()) for _ in range(3)) / 3", "sorted(read(make()) for _ in range(3))[1]",
         "You subtract the median"),
        ("range(3)) / 3", "range(1))", "You use only one untrained network: use three, each from"),
    ],
}

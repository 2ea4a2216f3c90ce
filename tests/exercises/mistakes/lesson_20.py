"""Typical wrong answers to the exercises of lesson 20, and what their authors should be told."""

mistakes = {
    "20a": [
        ("def induction_score(weights, tokens):\n    table = torch.zeros(*tokens.shape, tokens.shape[1], dtype=bool)\n"
         "    table[:, :, 1:] = (tokens[:, :, None] == tokens[:, None, :-1]).tril()\n"
         "    return (weights * table[:, None]).sum((0, 2, 3)) / table.any(2).sum()",
         "an earlier occurrence of itself"),
        ("(weights * after[:, None])",
         "(weights[..., :-1] * earlier[:, None, :, 1:])", "right before earlier occurrences"),
        ("on_them.sum((0, 2)) / counts.sum()", "(on_them.sum(2) / counts.sum(1)[:, None].clamp(min=1)).mean(0)",
         "a mean of the texts' means"),
        ("earlier.roll(1, 2)", "earlier", "on the earlier occurrences themselves"),
        ("earlier.roll(1, 2)", "earlier.roll(-1, 2)", "right before earlier"),
        (".tril(-1)", ".tril()", "leave out the diagonal"),
        (".tril(-1)", "", "Later occurrences are in your table"),
        ("on_them.sum((0, 2)) / counts.sum()", "on_them.mean((0, 2))", "the mean over all queries"),
        ("on_them.sum((0, 2)) / counts.sum()", "on_them.sum((0, 2))", "That is a sum"),
        ("counts.sum()", "after.sum()", "the number of earlier occurrences"),
        ("on_them.sum((0, 2)) / counts.sum()", "on_them.sum() / counts.sum()", "one number for all heads"),
        ("on_them.sum((0, 2)) / counts.sum()",
         "(on_them.sum(2) / counts.sum(1)[:, None]).mean(0)",
         "Your answer has NaN"),
        ("on_them.sum((0, 2)) / counts.sum()",
         "(on_them.sum(2) / counts.sum(1)[:, None])[1:].mean(0)",
         "a mean of the texts' means"),
        ("on_them.sum((0, 2)) / counts.sum()",
         "on_them.sum(2) / counts.sum(1)[:, None]",
         "numbers for each text"),
        ("(weights * after", "(weights.mT * after", "Queries and keys are swapped"),
        ("after = earlier.roll(1, 2)",
         "after = earlier.roll(1, 2)\n    after = after & (after.flip(2).cumsum(2).flip(2) == 1)",
         "You count only the last of the earlier occurrences"),
        ("    on_them = (weights * after[:, None]).sum(-1)",
         "    on_them = weights.mul_(after[:, None]).sum(-1)",
         "work on copies"),
        ("def induction_score(weights, tokens):\n    return weights.diagonal(-3, 2, 3).mean((0, 2))",
         "You look at a fixed distance"),
        ("/ counts.sum()", "/ counts.numel()", "You take the mean over all queries"),
    ],
    "20b": [
        ("head(found", "model.get_submodule(head)(found", "already a layer: use it directly"),
        ("head(found[name][:, -1]).softmax(-1)",
         "head(found[name][:, -1]).mean(0, keepdim=True).softmax(-1).expand(len(target), -1)",
         "first its probability, then the mean"),
        (".softmax(-1)", "", "These are logits"),
        (".softmax(-1)", ".log_softmax(-1)", "These are log-probabilities"),
        (".softmax(-1)", ".softmax(0)", "softmax is over tokens"),
        ("for name in names:", "for name in found:", "in the order of `names`"),
        ("[:, -1]", "[:, 0]", "That is the first position"),
        ("[:, -1]", ".mean(1)", "the mean over positions"),
        ("probabilities.gather(1, target[:, None])", "probabilities.amax(1)", "the most likely token"),
        ("probabilities.gather(1, target[:, None])", "probabilities[:, target]", "picks all targets in each row"),
        ("probabilities.gather(1, target[:, None]).mean()",
         "(probabilities.argmax(1) == target).float().mean()",
         "That is the accuracy"),
        (".mean().item()", ".sum().item()", "That is a sum over the texts"),
        ("head(found", "head[-1](found", "You leave out the norm in `head`"),
        ("found[name][:, -1]", "found[names[0]][:, -1]", "the model's own output"),
        ("    return means", "    return dict(zip(names, means))", "That is a dict"),
        ("    return means", "    return sum(means) / len(means)", "a list of 4 numbers"),
        ("        model(tokens)\n", "        model.eval()\n        model(tokens)\n", "in eval mode now"),
        ("        model(tokens)\n", "        for _ in names: model(tokens)\n", "You run the model 4 times"),
        ("def lens(model, names, head, tokens, target):\n    kept, handles = {}, []\n    for name in names:\n"
         "        def keep(m, i, o, name=name): kept[name] = o\n"
         "        handles.append(model.get_submodule(name).register_forward_hook(keep))\n    model(tokens)\n"
         "    for handle in handles: handle.remove()\n    rows = torch.arange(len(target))\n"
         "    return [head(kept[name][:, -1]).softmax(-1)[rows, target].mean().item() for name in names]",
         "works in place"),
        ("    with hl.hook_outputs(model, names=names) as hooks:\n        model(tokens)\n"
         "        found = hooks.by_name",
         "    hooks = hl.hook_outputs(model, names=names)\n    model(tokens)\n    found = hooks.by_name",
         "a hook stays on the model"),
    ],
    "20c": [
        ("    def to_mean(o): return o.mean(0, keepdim=True).expand_as(o)",
         "    def to_mean(o):\n        o = o.mean(0, keepdim=True).expand_as(o)\n        o += 0\n        return o",
         "Copy it first with `.clone()`"),
        ("hl.patch(misled)):\n        return model(x)",
         "hl.patch(misled)): pass\n    return model(x)",
         "without any edit"),
        ("    with hl.edit_output(reader, hl.patch(misled)):",
         "    with hl.edit_output(source, hl.Change(to_mean)):",
         "is edited for every layer that reads it"),
        ("hl.edit_output(source, hl.Change(to_mean)), hl.hook_output(reader)",
         "hl.edit_output(reader, hl.Change(lambda o: 0 * o + to_mean(o))), hl.hook_output(reader)",
         "`reader`'s own output"),
        ("        return model(x)", "        model(x)\n    return misled", "That is the output of `reader`"),
        ("o.mean(0, keepdim=True).expand_as(o)", "0 * o", "You set the output of `source` to zero"),
        ("o.mean(0, keepdim=True).expand_as(o)", "o.mean().expand_as(o)", "the mean over all dimensions"),
        ("o.mean(0, keepdim=True).expand_as(o)", "o.mean(-1, keepdim=True).expand_as(o)", "over the last dimension"),
        ("o.mean(0, keepdim=True).expand_as(o)", "o[:1].expand_as(o)", "of the first sample"),
        ("    with hl.edit_output(reader, hl.patch(misled)):\n        return",
         "    edit = hl.edit_output(reader, hl.patch(misled))\n    if True:\n        return",
         "an edit is still on"),
        ("def cut_path(model, source, reader, x):\n    kept = []\n"
         "    first = source.register_forward_hook(lambda m, i, o: o.mean(0, keepdim=True).expand_as(o))\n"
         "    second = reader.register_forward_hook(lambda m, i, o: kept.append(o.clone()))\n    model(x)\n"
         "    first.remove()\n    second.remove()\n"
         "    with reader.register_forward_hook(lambda m, i, o: kept[0]): return model(x)\n",
         "use `with`, or remove it in a `finally`"),
        ("def cut_path(model, source, reader, x):\n    kept = []\n"
         "    first = source.register_forward_hook(lambda m, i, o: o.mean(0, keepdim=True).expand_as(o))\n"
         "    second = reader.register_forward_hook(lambda m, i, o: kept.append(o))\n    model(x)\n"
         "    first.remove()\n    second.remove()\n"
         "    with reader.register_forward_hook(lambda m, i, o: kept[0]): return model(x)\n",
         "Did you keep a copy"),
        ("def cut_path(model, source, reader, x):\n    kept = []\n"
         "    with reader.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(x)\n"
         "    with hl.edit_output(source, hl.Change(lambda o: o.mean(0, keepdim=True).expand_as(o))):\n"
         "        with hl.edit_output(reader, hl.patch(kept[0])): return model(x)",
         "The other way around"),
        ("def cut_path(model, source, reader, x):\n    kept = []\n"
         "    def mean(m, i, o): o[:] = o.mean(0, keepdim=True)\n    with source.register_forward_hook(mean):\n"
         "        with reader.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(x)\n"
         "    with source.register_forward_hook(mean): return model(x)",
         "is edited for every layer that reads it"),
        ("def cut_path(model, source, reader, x):\n    with hl.hook_output(source) as hook: model(x)\n"
         "    misled = reader(hook.stored.mean(0, keepdim=True).expand_as(hook.stored))\n"
         "    with hl.edit_output(reader, hl.patch(misled)): return model(x)",
         "Other layers may run between"),
        ("return model(x)", "return misled", "That is the output of `reader`: patch it in, and run the"),
        ("o.mean(0, keepdim=True)", "o.mean(1, keepdim=True)",
         "You take the mean over the last dimension, of each sample"),
        ("o.mean(0, keepdim=True).expand_as(o)", "torch.zeros_like(o)",
         "You set the output of `source` to zero: take its mean over"),
    ],
}


right = {
    "20a": [
        (".tril(-1)", ".triu(1).transpose(1, 2)"),
    ],
}

"""Typical wrong answers to the exercises of lesson 16, and what their authors should be told."""

mistakes = {
    "16a": [
        ("(found * mask).sum(1) / mask.sum(1)", "found.mean(1)", "Your mean includes padding"),
        ("(found * mask).sum(1) / mask.sum(1)", "(found * mask).mean(1)",
         "You add up the real tokens, but divide by the number of all"),
        ("(found * mask).sum(1) / mask.sum(1)", "(found * mask).sum(1)", "That is the sum over the tokens"),
        ("(found * mask).sum(1) / mask.sum(1)", "found.sum(1) / mask.sum(1)", "multiply by the mask first"),
        ("(found * mask).sum(1) / mask.sum(1)", "(found * mask).sum(0) / mask.sum(0)", "one row for each token"),
        ("(found * mask).sum(1) / mask.sum(1)", "found * mask", "one vector for each token"),
        ("(found * mask).sum(1) / mask.sum(1)", "(found * mask).sum((0, 1)) / mask.sum()", "a single vector"),
        ("(found * mask).sum(1) / mask.sum(1)", "found[:, 0]", "the first token of each sentence"),
        ('    mask = inputs["attention_mask"][..., None]\n    return (found * mask).sum(1) / mask.sum(1)',
         "    return torch.stack([tokens[real].mean(0) for tokens, real in zip(found, inputs.attention_mask)])",
         "index with `mask.bool()`"),
        ('    mask = inputs["attention_mask"][..., None]\n    return (found * mask).sum(1) / mask.sum(1)',
         "    return torch.stack([tokens[:real.sum()].mean(0) for tokens, real in zip(found, inputs.attention_mask)])",
         "Padding may come first or last"),
        ("[..., None]", "", "must match the size of tensor"),
        ("model(**inputs)", "model(inputs['input_ids'])", "`model(**inputs)` passes on everything"),
        ("    if isinstance(found, tuple): found = found[0]\n", "", "where the layer returns a tuple"),
        ("if isinstance(found, tuple): found = found[0]", "found = found[0]", "all come from the first sentence"),
        ("def sentence_vectors(model, layer, inputs):\n    found = model(**inputs).last_hidden_state\n"
         "    mask = inputs['attention_mask'][..., None]\n    return (found * mask).sum(1) / mask.sum(1)",
         "the output of the whole model"),
        ("def sentence_vectors(model, layer, inputs):\n    got = []\n"
         "    layer.register_forward_hook(lambda m, i, o: got.append(o))\n    model(**inputs)\n"
         "    found = got[-1][0] if isinstance(got[-1], tuple) else got[-1]\n"
         "    mask = inputs.attention_mask[..., None]\n    return (found * mask).sum(1) / mask.sum(1)",
         "a hook stays on the model when"),
        ("/ mask.sum(1)", "/ mask.shape[1]", "You add up the real tokens, but divide by the number of"),
    ],
    "16b": [
        ("diagonal(-1, 2, 3)", "diagonal(1, 2, 3)", "attends to the next"),
        ("diagonal(-1, 2, 3)", "diagonal(-1, 3, 2)", "attends to the next"),
        ("return (weights.diagonal(-1, 2, 3) * real).sum((0, 2)) / real.sum()",
         "return weights.diagonal(0, 2, 3).mean((0, 2))", "attends to itself"),
        ("return (weights.diagonal(-1, 2, 3) * real).sum((0, 2)) / real.sum()",
         "return weights.diagonal(-1, 2, 3).mean((0, 2))", "includes rows of padding"),
        ("[:, None, 1:]", "[:, None, :-1]", "Your mask is off by one"),
        ("/ real.sum()", "/ inputs['attention_mask'].sum()", "has none before it"),
        ("/ real.sum()", "/ real.numel()", "You add up the real tokens, but divide by the number of all"),
        ("def looks_back(model, attention, inputs):\n    with hl.hook_output(attention) as hook:\n"
         "        model(**inputs)\n        _, w = hook.stored\n"
         "    shares = [w[s, :, t, t - 1] for s in range(len(w)) for t in "
         "range(inputs.attention_mask[s].sum())]\n    return sum(shares) / len(shares)", "Start with token 1"),
        (".sum((0, 2)) / real.sum()", ".sum() / real.sum()", "a single number"),
        (".sum((0, 2)) / real.sum()", ".sum(2) / real.sum(2)", "one number for each head of each sentence"),
        (".sum((0, 2)) / real.sum()", ".sum(2).div(real.sum(2)).mean(0)", "short sentences get too much weight"),
        ("hook.stored[1]", "hook.stored[0]", "The weights are its second part"),
        ("def looks_back(model, attention, inputs):\n    with hl.hook_output(attention) as hook:\n"
         "        model(**inputs)\n        w = hook.stored[0]\n    return w.diagonal(-1).mean()",
         "Are these the weights, `[1]`"),
        ("(weights.diagonal(-1, 2, 3) * real)", "weights.diagonal(-1, 2, 3)", "even those of padding"),
        ("(weights.diagonal(-1, 2, 3) * real).sum((0, 2)) / real.sum()", "weights.diagonal(-1).mean((0, 1))",
         "`diagonal(-1)` alone"),
        ("diagonal(-1, 2, 3)", "diagonal(-1)", "use `diagonal(-1, 2, 3)`"),
        ("hl.hook_output(attention)", "hl.hook_output(model.attention)", "the weights of another layer"),
        ("def looks_back(model, attention, inputs):\n    h = hl.hook_output(attention)\n    model(**inputs)\n"
         "    w = h.stored[1]\n    h.remove()\n    real = inputs['attention_mask'][:, None, 1:]\n"
         "    return (w.diagonal(-1, 2, 3) * real).sum((0, 2)) / real.sum()",
         "When the model raises, your hook stays on"),
        ("hook.stored[1]", "hook.stored", "The weights are its second part"),
        ("model(**inputs)", "model(inputs['input_ids'])", "so it looks at the padding"),
        (".sum((0, 2)) / real.sum()", ".mean((0, 2))", "You add up the real tokens, but divide by the number of"),
    ],
    "16c": [
        ("vector = (found if part is None else found[part])[:, p]",
         "vector = (found if part is None else found[part])[:, q]", "You take position `q` of `a`"),
        ("at=(slice(None), q)", "at=(slice(None), p)", "You put it at position `p`"),
        ("hl.patch(vector, part=part, at=(slice(None), q))", "hl.patch(vector[:, None], part=part)",
         "You patched all tokens"),
        ("last_hidden_state[:, q]", "last_hidden_state", "the vectors of all tokens"),
        ("def carried(model, layer, a, b, p, q):\n    with hl.hook_output(layer) as hook: model(**a)\n"
         "    def first(o): return o[0] if isinstance(o, tuple) else o\n    src = first(hook.stored)\n"
         "    def put(m, i, o): first(o)[:, q] = src[:, p]\n"
         "    with layer.register_forward_hook(put): return model(**b).last_hidden_state[:, q]",
         "change a `clone()`"),
        ("def carried(model, layer, a, b, p, q):\n    with hl.hook_output(layer) as hook: model(**a)\n"
         "    found = hook.stored\n    part = 0 if isinstance(found, tuple) else None\n"
         "    v = (found if part is None else found[0])[:, p]\n"
         "    edit = hl.edit_output(layer, hl.patch(v, part=part, at=(slice(None), q)))\n"
         "    out = model(**b).last_hidden_state[:, q]\n    edit.remove()\n    return out",
         "When the model raises, your hook stays on"),
        ("last_hidden_state[:, q]", "last_hidden_state[:, p]", "another token's vector"),
        ("return model(**b).last_hidden_state[:, q]", "return model(**b)", "everything the model returns"),
        ("return model(**b)", "return model(**a)", "with one vector from `a`"),
        ("part=part, ", "", "where the layer returns a tuple"),
        ("    part = 0 if isinstance(found, tuple) else None\n"
         "    vector = (found if part is None else found[part])[:, p]\n", "    part, vector = 0, found[0][:, p]\n",
         "only a tuple has parts"),
        ("    with hl.edit_output(layer, hl.patch(vector, part=part, at=(slice(None), q))):\n        return",
         "    if True:\n        return", "Your patch changed nothing"),
        ("def carried(model, layer, a, b, p, q):\n    kept = []\n"
         "    def look(m, i, o): kept.append(o[0] if isinstance(o, tuple) else o)\n"
         "    with layer.register_forward_hook(look): model(**a)\n    def put(m, i, o):\n"
         "        new = (o[0] if isinstance(o, tuple) else o).clone()\n        new[:, q] = kept[0][:, p]\n"
         "        return new\n"
         "    with layer.register_forward_hook(put): return model(**b).last_hidden_state[:, q]",
         "your own hook must return a tuple again"),
        ("def carried(model, layer, a, b, p, q):\n    with hl.hook_output(layer) as hook:\n        model(**b)\n"
         "        found = hook.stored\n    part = 0 if isinstance(found, tuple) else None\n"
         "    vector = (found if part is None else found[part])[:, q]\n"
         "    with hl.edit_output(layer, hl.patch(vector, part=part, at=(slice(None), p))):\n"
         "        return model(**a).last_hidden_state[:, p]", "The other way around"),
        ("def carried(model, layer, a, b, p, q):\n    with hl.hook_output(layer) as hook:\n        model(**a)\n"
         "        found = hook.stored\n    part = 0 if isinstance(found, tuple) else None\n"
         "    vector = (found if part is None else found[part])[:, p]\n"
         "    hl.edit_output(layer, hl.patch(vector, part=part, at=(slice(None), q)))\n"
         "    return model(**b).last_hidden_state[:, q]", "is the edit off?"),
    ],
}


right = {
    "16a": [
        ("(found * mask).sum(1) / mask.sum(1)",
         "torch.stack([v[m.bool()].mean(0) for v, m in zip(found, inputs['attention_mask'])])"),
    ],
}

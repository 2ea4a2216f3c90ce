"""Typical wrong answers to the exercises of lesson 14, and what their authors should be told."""

mistakes = {
    "14a": [
        ("[:, :, 0, 1:]", "[:, :, 1:, 0]", "how much squares attend to the class token"),
        ("[:, :, 0, 1:]", "[:, :, 0, :-1]", "The class token itself is in your map"),
        ("weights.mean(0)", "weights[0]", "the first image of the batch"),
        ("[:, :, 0, 1:]", "[:, :, 1, 1:]", "but the weights are not"),
        (".unflatten(1, (side, side))", "", "Each map is still a row"),
        ("weights.mean(0).unflatten(1, (side, side))", "weights.mean((0, 1)).view(side, side)",
         "all heads into one map"),
        (".unflatten(1, (side, side))", ".unflatten(1, (side, side)).mT", "The map is transposed"),
        (".unflatten(1, (side, side))", ".view(-1, 4, 4)", "These numbers do not make a square"),
        ("[:, :, 0, 1:]", "[:, :, 0]", "`[:, :, 0, 1:]`, and `side` is the square root"),
        ("weights.mean(0)", "weights.mean(1)", "all heads into one map"),
        ("weights.mean(0)", "weights.sum(0)", "That is the sum over the batch"),
        ("    weights = weights / weights.sum(-1, keepdim=True)\n", "", "Those are the raw weights"),
        ("    weights = weights / weights.sum(-1, keepdim=True)\n",
         "    weights = weights.mean(0, keepdim=True)\n    weights = weights / weights.sum(-1, keepdim=True)\n",
         "You average over the batch before you divide"),
        ("weights.sum(-1, keepdim=True)", "weights.sum(-1)", "keeps the last dimension"),
        ("weights.sum(-1, keepdim=True)", "weights.sum(1, keepdim=True)", "You divide by a sum over heads"),
        ("weights.sum(-1, keepdim=True)", "weights.sum()", "a sum over the whole batch"),
        ("def class_attention(model, tap, x):\n    return tap(x).mean(0)[:, 0, 1:].unflatten(1, (3, 3))",
         "when the whole model runs"),
        ("def class_attention(model, tap, x):\n    with hl.hook_output(tap) as hook:\n        model(x)\n"
         "        return hook.stored.mean(0)", "choose the row of the class token"),
        ("weights.mean(0).unflatten(1, (side, side))", "weights.unflatten(2, (side, side))",
         "take the mean over the batch"),
        ("weights.mean(0).unflatten(1, (side, side))", "weights.mean(0).unflatten(1, (side, side)).tolist()",
         "should be a tensor"),
        ("def class_attention(model, tap, x):\n    got = []\n"
         "    tap.register_forward_hook(lambda m, i, o: got.append(o))\n    model(x)\n"
         "    w = got[0][:, :, 0, 1:]\n    return (w / w.sum(-1, keepdim=True)).mean(0).unflatten(1, (3, 3))",
         "a hook stays on the model when"),
        ("def class_attention(model, tap, x):\n    got = []\n"
         "    h = tap.register_forward_hook(lambda m, i, o: got.append(o))\n    model(x)\n    h.remove()\n"
         "    w = got[0][:, :, 0, 1:]\n    return (w / w.sum(-1, keepdim=True)).mean(0).unflatten(1, (3, 3))",
         "When the model raises, your hook stays on"),
        ("        model(x)", "        model.train()\n        model(x)", "leave its mode as it is"),
        ("weights / weights.sum(-1, keepdim=True)", "weights.softmax(-1)",
         "The shape is right, but the weights are not"),
    ],
    "14b": [
        ("hl.patch(of_a, at=(slice(None), p))", "hl.patch(of_a)", "is not the model's output when only position `p`"),
        ("hook.stored[:, p].mean(0)", "hook.stored.mean(0)", "The patch doesn't fit"),
        ("hl.patch(of_a, at=(slice(None), p))", "hl.patch(hook.stored.mean(0))", "You patched all positions"),
        (".mean(0)", "", "The patch doesn't fit"),
        (".mean(0)", "[:4]", "You patch sample by sample"),
        (".mean(0)", "[0]", "one sample of `a` alone"),
        (".mean(0)", ".mean()", "You patch one number"),
        (".mean(0)", ".sum(0)", "the sum over the samples"),
        ("hook.stored[:, p].mean(0)", "hook.stored.mean((0, 1))", "the mean over all positions"),
        ("hook.stored[:, p].mean(0)", "hook.stored.mean(0)[:, p]", "The patch doesn't fit"),
        ("at=(slice(None), p)", "at=p", "The patch doesn't fit"),
        ("hl.patch(of_a, at=(slice(None), p))): return", "hl.patch(of_a, at=(slice(None), p))): pass\n    return",
         "is it on while"),
        ("return model(b)", "return model(a)", "should have the shape (4, 2)"),
        ("return model(b)", "return model(b)[:, p]", "no longer has positions"),
        ("model(a)\n", "model(a.mean(0, keepdim=True))\n", "You take the mean of the inputs in `a`"),
        ("def patch_position(model, layer, a, b, p):\n    b = b.clone()\n    b[:, p] = a[:, p].mean(0)\n"
         "    return model(b)", "You take the mean of the inputs in `a`"),
        ("def patch_position(model, layer, a, b, p):\n    of_a = layer(a)[:, p].mean(0)\n"
         "    with hl.edit_output(layer, hl.patch(of_a, at=(slice(None), p))): return model(b)",
         "needs its input from the layer before it"),
        ("return model(b)", "return model(a)[:4]", "That is not the model's output when only position"),
        ("model(a)\n", "model(b)\n", "over the samples of `b`"),
        ("with hl.edit_output(layer, hl.patch(of_a, at=(slice(None), p))): return model(b)",
         "def put(m, i):\n        x = i[0].clone()\n        x[:, p] = of_a\n        return (x,)\n"
         "    with layer.register_forward_pre_hook(put): return model(b)",
         "That takes a forward hook, not a pre-hook"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n"
         "    with layer.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(a)\n"
         "    def put(m, i, o): o[:, p] = kept[0][:, p].mean(0)\n"
         "    with layer.register_forward_hook(put): return model(b)", "change a `clone()`"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n"
         "    with layer.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(a)\n"
         "    def put(m, i, o):\n        o = o.clone()\n        o[:, p] = kept[0][:, p].mean(0)\n"
         "    with layer.register_forward_hook(put): return model(b)", "must return the new output"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n"
         "    h = layer.register_forward_hook(lambda m, i, o: kept.append(o.clone()))\n    model(a)\n"
         "    h.remove()\n    def put(m, i, o):\n        o = o.clone()\n"
         "        o[:, p] = kept[0][:, p].mean(0)\n        return o\n    layer.register_forward_hook(put)\n"
         "    return model(b)", "is the edit off?"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n"
         "    h = layer.register_forward_hook(lambda m, i, o: kept.append(o.clone()))\n    model(a)\n"
         "    h.remove()\n"
         "    with hl.edit_output(layer, hl.patch(kept[0][:, p].mean(0), at=(slice(None), p))): return model(b)",
         "When the model raises, your hook stays on"),
        ("hook.stored[:, p].mean(0)", "hook.stored[0, p]",
         "You patch one sample of `a` alone: take the mean over all"),
    ],
    "14c": [
        ("float((score(model(b)) - low) / (high - low))", "max(0, float((score(model(b)) - low) / (high - low)))",
         "keep negative numbers as they are"),
        ("    model.eval()\n", "", "dropout gets into your numbers"),
        ("    finally: model.train(was_training)", "    finally: pass", "in eval mode now"),
        ("    finally: model.train(was_training)", "    finally: model.train()", "in train mode now"),
        ("model.train(was_training)", "model.training = was_training", "`model.train(mode)` restores them too"),
        ("def head_shares(model, heads, a, b, score):\n    was = model.training\n    model.eval()\n"
         "    with hl.hook_output(heads) as hook: high = score(model(a))\n"
         "    low, shares = score(model(b)), []\n    for h in range(2):\n"
         "        with hl.edit_output(heads, hl.patch(hook.stored[:, h], at=(slice(None), h))):\n"
         "            shares.append(float((score(model(b)) - low) / (high - low)))\n    model.train(was)\n"
         "    return shares", "it stays in the other mode"),
        ("float((score(model(b)) - low) / (high - low))", "[(score(model(b)) - low) / (high - low)] * 2",
         "The number of head 0 should be one number"),
        ("        return shares", "        return shares[:1]", "should be a list of 2 numbers"),
        (" / (high - low)", "", "divide by the full range"),
        ("float((score(model(b)) - low) / (high - low))", "float(score(model(b)))", "These are scores"),
        ("(score(model(b)) - low) / (high - low)", "(high - score(model(b))) / (high - low)", "The scale is reversed"),
        ("            with hl.edit_output(heads, hl.patch(of_a[:, h], at=(slice(None), h))):\n"
         "                shares", "            if True:\n"
         "                hl.edit_output(heads, hl.patch(of_a[:, h], at=(slice(None), h)))\n"
         "                shares", "The patches add up"),
        ("of_a.shape[1]", "of_a.shape[0]", "out of bounds"),
        ("hl.patch(of_a[:, h], at=(slice(None), h))", "hl.patch(of_a[h], at=h)", "sample `h` of the batch"),
        ("hl.patch(of_a[:, h], at", "hl.patch(0., at", "You set heads to zero"),
        ("float((score(model(b))", "float((score(model(a))", "Everything comes from `a`"),
        (" / (high - low)", " / high", "The full range is `high - low`"),
        ("high, of_a = score(model(a)), hook.stored\n        low, shares = score(model(b)), []",
         "high, low = score(model(a)), score(model(b))\n            of_a, shares = hook.stored, []",
         "Are the patches on while `model(b)` runs?"),
        ("high, of_a = score(model(a)), hook.stored\n        low, shares = score(model(b)), []",
         "low, of_a = score(model(b)), hook.stored\n        high, shares = score(model(a)), []\n"
         "        a, b = b, a", "You patch `b` into `a`"),
        ("/ (high - low)", "", "These are differences: divide by the full range, `high -"),
    ],
}


right = {
    "14a": [
        ("weights.mean(0).unflatten(1, (side, side))", "weights.mean(0).reshape(-1, side, side)"),
    ],
    "14b": [("        of_a = hook", "    of_a = hook")],  # what was stored is read behind the `with`
}

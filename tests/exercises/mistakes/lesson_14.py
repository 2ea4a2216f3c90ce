"""Typical wrong answers to the exercises of lesson 14, and what their authors should be told."""

mistakes = {
    "14a": [
        (".mean(0)[:, 0, 1:]", ".mean(0)[:, 1:, 0]", "how much each square takes from the class token"),
        (".mean(0)[:, 0, 1:]", ".mean(0)[:, 0, :-1]", "The class token itself is in your map"),
        (".mean(0)[:, 0, 1:]", "[0][:, 0, 1:]", "the first picture of the batch"),
        (".mean(0)[:, 0, 1:]", ".mean(0)[:, 1, 1:]", "but the weights are not"),
        ("return weights.unflatten(1, (side, side))", "return weights", "The numbers are in a row"),
        ("return weights.unflatten(1, (side, side))", "return weights.mean(0).view(side, side)", "all heads into one map"),
        ("return weights.unflatten(1, (side, side))", "return weights.unflatten(1, (side, side)).mT", "The map is transposed"),
        ("return weights.unflatten(1, (side, side))", "return weights.view(-1, 4, 4)", "These numbers do not make a square"),
        (".mean(0)[:, 0, 1:]", ".mean(0)[:, 0]", "`[:, 0, 1:]`, and `side` is the root"),
        (".mean(0)[:, 0, 1:]", ".mean(1)[:, 0, 1:]", "all heads into one map"),
        (".mean(0)[:, 0, 1:]", ".mean(0)[0, :, 1:]", "the weights of one head alone"),
        (".mean(0)[:, 0, 1:]", ".sum(0)[:, 0, 1:]", "That is the sum over the batch"),
        ("def class_attention(model, tap, x):\n    return tap(x).mean(0)[:, 0, 1:].unflatten(1, (3, 3))", "when the whole model runs"),
        ("def class_attention(model, tap, x):\n    with hl.hook_output(tap) as hook:\n        model(x)\n        return hook.stored.mean(0)",
         "choose the row of the class token"),
        ("def class_attention(model, tap, x):\n    got = []\n    with tap.register_forward_hook(lambda m, i, o: got.append(o)): model(x)\n"
         "    return got[0][:, :, 0, 1:].unflatten(2, (3, 3))", "take the mean over the batch"),
        ("def class_attention(model, tap, x):\n    got = []\n    tap.register_forward_hook(lambda m, i, o: got.append(o))\n    model(x)\n"
         "    return got[0].mean(0)[:, 0, 1:].unflatten(1, (3, 3))", "a hook stays on the model when"),
    ],
    "14b": [
        ("hl.patch(of_a[:, p], at=(slice(None), p))", "hl.patch(of_a)", "You patched all positions"),
        ("hl.patch(of_a[:, p], at=(slice(None), p))", "hl.patch(of_a[p], at=p)", "The patch does not fit its place"),
        ("hl.patch(of_a[:, p], at", "hl.patch(of_a, at", "The patch does not fit its place"),
        (", at=(slice(None), p))", ")", "The patch does not fit its place"),
        ("hl.patch(of_a[:, p], at=(slice(None), p))", "hl.patch(of_a[..., p], at=(..., p))", "You patched channel `p`"),
        ("hl.patch(of_a[:, p], at=(slice(None), p))):\n        return", "hl.patch(of_a[:, p], at=(slice(None), p))): pass\n    return", "is it on while"),
        ("return model(b)", "return model(a)", "run it on `b`"),
        ("model(a)\n", "model(b)\n", "Your patch changed nothing"),
        ("def patch_position(model, layer, a, b, p):\n    with hl.hook_output(layer) as hook:\n        model(b)\n        of_b = hook.stored\n"
         "    with hl.edit_output(layer, hl.patch(of_b[:, p], at=(slice(None), p))): return model(a)", "The other way round"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n    with layer.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(a)\n"
         "    def put(m, i, o): o[:, p] = kept[0][:, p]\n    with layer.register_forward_hook(put): return model(b)", "change a `clone()`"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n    with layer.register_forward_hook(lambda m, i, o: kept.append(o.clone())): model(a)\n"
         "    def put(m, i, o):\n        o = o.clone()\n        o[:, p] = kept[0][:, p]\n    with layer.register_forward_hook(put): return model(b)", "must return the new output"),
        ("def patch_position(model, layer, a, b, p):\n    kept = []\n    h = layer.register_forward_hook(lambda m, i, o: kept.append(o.clone()))\n    model(a)\n    h.remove()\n"
         "    def put(m, i, o):\n        o = o.clone()\n        o[:, p] = kept[0][:, p]\n        return o\n    layer.register_forward_hook(put)\n    return model(b)",
         "is the edit off?"),
    ],
    "14c": [
        ("    model.eval()\n", "", "dropout gets into your numbers"),
        ("    finally: model.train(was_training)", "    finally: pass", "in eval mode now"),
        ("    finally: model.train(was_training)", "    finally: model.train()", "in train mode now"),
        (" / (high - low)", "", "divide by the whole way"),
        ("float((score(model(b)) - low) / (high - low))", "float(score(model(b)))", "These are scores"),
        ("(score(model(b)) - low) / (high - low)", "(high - score(model(b))) / (high - low)", "Upside down"),
        ("            with hl.edit_output(heads, hl.patch(of_a[:, h], at=(slice(None), h))):\n                shares",
         "            if True:\n                hl.edit_output(heads, hl.patch(of_a[:, h], at=(slice(None), h)))\n                shares", "The patches add up"),
        ("of_a.shape[1]", "of_a.shape[0]", "out of bounds"),
        ("hl.patch(of_a[:, h], at=(slice(None), h))", "hl.patch(of_a[h], at=h)", "sample `h` of the batch"),
        ("hl.patch(of_a[:, h], at", "hl.patch(0., at", "You set heads to zero"),
        ("float((score(model(b))", "float((score(model(a))", "Everything comes from `a`"),
        (" / (high - low)", " / high", "The whole way is `high - low`"),
        ("high, of_a = score(model(a)), hook.stored\n        low, shares = score(model(b)), []",
         "high, low = score(model(a)), score(model(b))\n            of_a, shares = hook.stored, []", "Your patches change nothing"),
        ("high, of_a = score(model(a)), hook.stored\n        low, shares = score(model(b)), []",
         "low, of_a = score(model(b)), hook.stored\n        high, shares = score(model(a)), []\n        a, b = b, a", "You patch `b` into `a`"),
    ],
}

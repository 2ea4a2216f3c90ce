"""Typical wrong answers to the exercises of lesson 12, and what their authors should be told."""

mistakes = {
    "12a": [
        ("(weights * maps)", "maps", "without any weights"),
        ("(weights * maps).sum(1)", "maps.mean(1)", "without any weights"),
        ("weight[c].detach()", "weight[:, c].detach()", "You take column `c`"),
        ("weight[c].detach()", "weight.sum(0).detach()", "You sum over the classes"),
        (".sum(1)", ".mean(1)", "the shares add up to the score"),
        (".sum(1)", ".sum(1).relu()", "they speak against the class"),
        (".sum(1)", "", "Sum over the maps of the layer"),
        (".sum(1)", ".sum(0)", "Sum over the maps of the layer"),
        ("model.body)", "model.body[0])", "It is not the sum of the maps of `body`"),
        ("    return (weights", "    (weights", "Is the `return` missing?"),
        ("def class_map(model, x, c):\n    kept = []\n    model.body.register_forward_hook(lambda m, i, o: kept.append(o))\n    model(x)\n"
         "    return (model.head.weight[c].view(-1, 1, 1) * kept[0]).sum(1)", "a hook stays on the model when"),
    ],
    "12b": [
        (", detach=False", "", "Keep it with `detach=False`"),
        ("(inputs=[maps])", "()", "unless it is told to put them there"),
        ("score.backward(inputs=[maps])", "maps.retain_grad(); score.backward()", "leaves them alone"),
        ("score.backward(inputs=[maps])", "maps.retain_grad(); score.backward(); model.zero_grad()", "`zero_grad()` wipes out"),
        (".relu()", "", "`.relu()` at the end"),
        (".mean((2, 3), keepdim=True)", ".mean((2, 3), keepdim=True).relu()", "You set negative weights to zero"),
        (".mean((2, 3), keepdim=True)", "", "one for each map"),
        (".sum()\n", ".mean()\n", "too small by the number of pictures"),
        (".sum()\n", "\n", "A gradient is of one number"),
        (".mean((2, 3), keepdim=True)", ".mean((0, 2, 3), keepdim=True)", "each picture's own"),
        ("model(x)[:, c].sum()", "model(x).sum()", "only that of `c`"),
        ("model(x)[:, c].sum()", "model(x).max(1).values.sum()", "It is not the sum of the maps"),
    ],
    "12c": [
        ("score - model(x)[:, c].detach()", "model(x)[:, c].detach() - score", "Upside down"),
        ("score - model(x)[:, c].detach()", "model(x)[:, c].detach()", "Your weights are the scores without the map"),
        ("with hl.edit_output(layer, hl.ablate(k)): fall", "hl.edit_output(layer, hl.ablate(k)); fall", "Is the edit still on?"),
        ("fall[:, None, None]", "fall.mean()", "do not take the mean"),
        ("fall[:, None, None] * maps[:, k]", "maps[:, k]", "without any weights"),
        ("return total", "return total.relu()", "here they were not to be set to zero"),
        ("hl.ablate(k)", "hl.ablate(k, to='mean')", "It is not the sum of the maps"),
        ("return total", "total", "Is the `return` missing?"),
        ("def ablation_map(model, layer, x, c):\n    with hl.hook_output(layer, detach=False) as hook:\n        score = model(x)[:, c].sum()\n"
         "        maps = hook.stored\n        score.backward(inputs=[maps])\n    return (maps.grad.mean((2, 3), keepdim=True) * maps).sum(1)",
         "Those are the weights of Grad-CAM"),
    ],
}

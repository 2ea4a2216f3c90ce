"""Typical wrong answers to the exercises of lesson 08, and what their authors should be told."""

mistakes = {
    "08a": [
        ("hook.stored[0]", "hook.stored", "hooks get gradients in tuples"),
        ("return hook.stored[0]", "hook.stored[0]", "Is the `return` missing?"),
        (", grad=True", "", "That is the layer's output, not its gradient"),
        ("loss().backward()", "loss()", "There is no gradient yet"),
        ("loss().backward()", "loss.backward()", "`loss` is a function"),
        ("def output_gradient(layer, loss):\n    got = []\n"
         "    h = layer.register_forward_hook(lambda m, i, o: got.append(o))\n    loss().backward()\n"
         "    h.remove()\n    return got[0].grad", "unless you call `o.retain_grad()`"),
        ("def output_gradient(layer, loss):\n    got = []\n"
         "    h = layer.register_full_backward_hook(lambda m, gi, go: go[0])\n    loss().backward()\n"
         "    h.remove()\n    return got[0]", "replaces the gradient"),
        ("def output_gradient(layer, loss):\n    got = []\n"
         "    h = layer.register_full_backward_hook(lambda m, gi, go: got.append(gi[0]))\n"
         "    loss().backward()\n    h.remove()\n    return got[0]", "gradient of the layer's input"),
        ("def output_gradient(layer, loss):\n    got = []\n"
         "    layer.register_full_backward_hook(lambda m, gi, go: got.append(go[0]))\n    loss().backward()\n"
         "    return got[0]", "a hook stays on the model when"),
        ("def output_gradient(layer, loss):\n    got = []\n"
         "    h = layer.register_forward_hook(lambda m, i, o: o.register_hook(got.append))\n"
         "    loss().backward()\n    h.remove()\n    return got[0]", "replaces the layer's output"),
        ("return hook.stored[0]", "return list(hook.stored)", "one tensor"),
        ("return hook.stored[0]", "return layer.weight.grad", "a parameter of a layer that has none"),
        ("return hook.stored[0]", "return hook.stored[0].norm()", "shape"),
        ("grad=True", "grad=False", "That is the layer's output, not its gradient: `grad=True`"),
    ],
    "08b": [
        ("g[0].norm().item()", "round(g[0].norm().item(), 4)", "but rounded"),
        ("g[0].norm().item()", "float(f'{g[0].norm().item():.3f}')", "but rounded"),
        ("g[0].norm().item()", "g", "take `[0]`, then `norm()`"),
        (", grad=True", "", "That is the norm of the output"),
        ("def gradient_norms(model, loss):\n    loss().backward()\n"
         "    return {name: p.grad.norm() for name, p in model.named_parameters()}",
         "the norms of the parameters' gradients"),
        ("g[0].norm().item()", "g[0]", "Each value should be a number, the norm"),
        (" if not list(m.children())", " if name", "only leaf layers"),
        ("names=leaves", "names='*'", "only leaf layers"),
        (", names=leaves", "", "This model is not an `nn.Sequential`"),
        ("g[0].norm().item()", "g.norm()", "A hook gets gradients in a tuple"),
        ("names=leaves", "names=['block.linear', 'block.act', 'head']", "Take the names from"),
        ("hooks.by_name.items()}", "hooks.by_name.items() if name in ('block.linear', 'block.act', 'head')}",
         "Take them from"),
        ("def gradient_norms(model, loss):\n    norms, handles = {}, []\n"
         "    for name, m in model.named_modules():\n        if list(m.children()): continue\n"
         "        handles.append(m.register_full_backward_hook(lambda m, gi, go, name=name: "
         "norms.update({name: go[0].norm()})))\n    loss().backward()\n    for h in handles: h.remove()\n"
         "    return norms", "Register a forward hook instead"),
        ("def gradient_norms(model, loss):\n    norms, handles = {}, []\n"
         "    for name, m in model.named_modules():\n        if list(m.children()): continue\n"
         "        def f(m, i, o): o.register_hook(lambda g: norms.update({name: g.norm()}))\n"
         "        handles.append(m.register_forward_hook(f))\n    loss().backward()\n"
         "    for h in handles: h.remove()\n    return norms", "Bind it with `name=name`"),
        ("def gradient_norms(model, loss):\n    outs, handles = {}, []\n"
         "    for name, m in model.named_modules():\n        if list(m.children()): continue\n"
         "        def keep(m, i, o, name=name): o.retain_grad(); outs[name] = o\n"
         "        handles.append(m.register_forward_hook(keep))\n    loss().backward()\n"
         "    for h in handles: h.remove()\n    return {name: o.grad.norm() for name, o in outs.items()}",
         "before the next layer runs"),
        ("def gradient_norms(model, loss):\n    loss().backward()\n"
         "    return {n: (m.weight.grad.norm() if hasattr(m, 'weight') else 0.) for n, m in "
         "model.named_modules() if not list(m.children())}", "the gradient of a weight"),
        ("def gradient_norms(model, loss):\n    norms = {}\n    for name, m in model.named_modules():\n"
         "        if list(m.children()): continue\n"
         "        def f(m, i, o, name=name): o.register_hook(lambda g: norms.update({name: g.norm()}))\n"
         "        m.register_forward_hook(f)\n    loss().backward()\n    return norms",
         "a hook stays on the model when"),
        ("g[0].norm().item()", "g[0].std().item()", "standard deviations"),
        ("g[0].norm().item()", "g[0].abs().max().item()", "largest values"),
        ("g[0].norm().item()", "g[0].square().sum()", "take the root"),
        ("g[0].norm().item()", "'large'", "The value of `block.linear`"),
        ("if not list(m.children())", "", "Use only leaf layers: leave out those for"),
        (".norm().item()", ".pow(2).sum().item()", "These are squares of the norms: take the root"),
        (".norm().item()", ".abs().mean().item()", "These are means of the absolute values"),
    ],
    "08c": [
        ("if o.requires_grad:", "if i[0].requires_grad:", "not for the first layer of a model"),
        ("return g.clamp", "g.clamp", "Nothing is clipped"),
        ("g.clamp(", "g.clamp_(", "works in place"),
        ("if o.requires_grad: o.register_hook(clip)", "o.register_hook(clip)", "Check `o.requires_grad` first"),
        ("if o.requires_grad: o.register_hook(clip)", "return o.register_hook(clip)",
         "returns a handle): it must return nothing"),
        ("return layer.register_forward_hook(ask)", "layer.register_forward_hook(ask)\n    return layer",
         "not a handle"),
        ("g.clamp(-limit, limit)", "g.clamp(max=limit)", "has changed, but not correctly"),
        ("return layer.register_forward_hook(ask)", "return [layer.register_forward_hook(ask)]",
         "Return the handle of the forward hook"),
        ("return layer.register_forward_hook(ask)",
         "with layer.register_forward_hook(ask) as handle: return handle", "still on after your function returns"),
        ("def clip_at(layer, limit):\n"
         "    return layer.register_full_backward_pre_hook(lambda m, go: go[0].clamp(-limit, limit))",
         "return them in one"),
        ("return layer.register_forward_hook(ask)",
         "handle = layer.register_forward_hook(ask)\n    layer.register_forward_hook(ask)\n    return handle",
         "After `handle.remove()`"),
        ("def clip_at(layer, limit):\n    return layer.weight.register_hook(lambda g: g.clamp(-limit, limit))",
         "on the layer's output"),
        ("def clip_at(layer, limit):\n"
         "    return layer.register_full_backward_hook(lambda m, gi, go: (gi[0].clamp(-limit, limit),))",
         "You clip the gradient of the layer's input"),
        ("def clip_at(layer, limit):\n"
         "    return layer.register_full_backward_hook(lambda m, gi, go: (go[0].clamp(-limit, limit),))",
         "not that of its output"),
        ("def clip_at(layer, limit):\n"
         "    return hl.Hook(layer, lambda m, go: go[0].clamp(-limit, limit), kind='backward_pre')",
         "`hl.Hook` only listens"),
        ("g.clamp(-limit, limit)", "g.clamp(-0.01, 0.01)", "has changed, but not correctly"),
        ("if o.requires_grad: o", "if o.requires_grad and m.training: o", "or the model is in `eval` mode"),
        ("if o.requires_grad: o", "if o.requires_grad and m.weight.requires_grad: o", "may still be trained"),
        ("def clip_at(layer, limit):\n"
         "    return layer.register_forward_hook(lambda m, i, o: o.clamp(-limit, limit))",
         "returns a different output"),
        ("if o.requires_grad: o", "if torch.is_grad_enabled(): o", "unless the layer is frozen"),
        ("def clip_at(layer, limit):\n    return hl.gradient_clipper(layer, limit)",
         "clips the gradients of parameters"),
        ("def clip_at(layer, limit):\n    return hl.clipped_gradients(layer, limit)", "on the layer's output"),
        ("return layer.register_forward_hook(ask)", "layer.register_forward_hook(ask)\n    return None",
         "Is the `return` missing?"),
        ("g.clamp(-limit, limit)", "g * (limit / g.norm()).clamp(max=1)",
         "The gradient has changed, but not correctly: clamp"),
    ],
    "08r": [
        ("A", "the same is true of C"),
        ("B", "the first layers hardly change"),
        ("C", "the same is true of A"),
        ("D", "it explodes"),
    ],
}

"""Typical wrong answers to the exercises of lesson 15, and what their authors should be told."""

mistakes = {
    "15a": [
        ("given = {t.untyped_storage().data_ptr() for", "given = {t.data_ptr() for", "a part of a larger tensor"),
        ("for t in [x, *model.parameters()]", "for t in [*model.parameters()]", "You also count `x`, which"),
        ("for t in [x, *model.parameters()]", "for t in [x]", "You also count parameters"),
        ("with hl.saved_tensors(look): model(x)", "with hl.saved_tensors(look): model.eval()(x)",
         "leave its mode as it is"),
        ("def kept_bytes(model, x):\n    with hl.hook_outputs(model) as hooks: model(x)\n"
         "    return sum(o.nbytes for o in hooks.stored)", "You look at the outputs of layers"),
        ("def kept_bytes(model, x):\n    with hl.hook_outputs(model, names='*') as hooks: model(x)\n"
         "    return sum(o.nbytes for o in hooks.stored)", "outputs of layers"),
        ("def kept_bytes(model, x):\n    with hl.hook_output(model.lin) as hook: model(x)\n"
         "    return hook.stored.nbytes", "outputs of layers"),
        ("= memory.nbytes()", "= memory.nbytes() // t.element_size() * 4", "a fixed size"),
        ("for t in [x, *model.parameters()]", "for t in []", "You also count `x` and the parameters"),
        ("= memory.nbytes()", "= t.nbytes", "A slice holds the whole memory behind it"),
        ("sum(kept.values())", "kept", "should be one number, and yours is a dict"),
        ("with hl.saved_tensors(look): model(x)", "model(x)", "Nothing was seen"),
        ("def kept_bytes(model, x):\n    kept = []\n    with hl.saved_tensors(kept.append): out = model(x)\n"
         "    return sum(t.nbytes for t in kept)", "You count the same memory twice"),
        ("def kept_bytes(model, x):\n    kept = []\n    with hl.saved_tensors(kept.append): out = model(x)\n"
         "    return len(kept)", "return their bytes"),
        ("= memory.nbytes()", "= memory.nbytes() // 4", "each takes 4 bytes"),
        ("def kept_bytes(model, x):\n    total = 0\n    def look(t): total += t.nbytes\n"
         "    with hl.saved_tensors(look): out = model(x)\n    return total", "cannot do `total += …`"),
        ("if memory.data_ptr() not in given", "if t not in [x, *model.parameters()]",
         "recognize memory by its `data_ptr()`"),
        ("for t in [x, *model.parameters()]", "for t in model.parameters()",
         "You also count `x`, which is in memory anyway"),
        ("memory.nbytes()", "t.numel() * t.element_size()", "A slice holds the whole memory behind it: count"),
        ("if memory.data_ptr() not in given: ", "", "You also count `x` and the parameters, which are in memory"),
    ],
    "15b": [
        ("not t.is_floating_point() or ", "", "You also convert integers"),
        (" or t.untyped_storage().data_ptr() in given", "", "The parameters and `x` are rounded as well"),
        ("[x, *model.parameters()]", "model.parameters()", "`x` is rounded as well"),
        ("[x, *model.parameters()]", "[x]", "The parameters are rounded as well"),
        ("{t.untyped_storage().data_ptr() for t in [x", "{t.data_ptr() for t in [x",
         "remember the address of its storage"),
        (" or t.untyped_storage().data_ptr() in given", " or any(t is p for p in [x, *model.parameters()])",
         "recognize their storage"),
        ("def slim_gradients(model, loss, x, dtype):\n"
         "    given = {t.data_ptr() for t in [x, *model.parameters()]}\n    def pack(t):\n"
         "        return (t if t.data_ptr() in given or not t.is_floating_point() else t.to(dtype)), t.dtype\n"
         "    def unpack(packed): return packed[0].to(packed[1])\n"
         "    with hl.saved_tensors(pack, unpack): output = model(x)\n"
         "    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss(output), "
         "[*model.parameters()])))", "it starts at a different address"),
        ("packed[0].to(packed[1])", "packed[0]", "A tensor came back in another dtype"),
        ("packed[0].to(packed[1])", "packed[0].float() if packed[0].is_floating_point() else packed[0]",
         "A tensor came back in another dtype"),
        ("    model.zero_grad()\n", "", "include those that were there before"),
        ("with hl.saved_tensors(pack, unpack): output = model(x)", "output = model(x)", "an ordinary step"),
        ("else t.to(dtype)", "else t", "an ordinary step"),
        ("p.grad for", "p.detach() for", "These are the parameters"),
        ("{name: p.grad for name, p in model.named_parameters()}", "[p.grad for p in model.parameters()]",
         "and yours is a list"),
        ("    loss(output).backward()\n", "", "was `backward` called"),
        ("name: p.grad for", "name: p.grad.numpy() for", "should be a tensor, and yours is"),
        ("    model.zero_grad()\n", "    model.zero_grad()\n    model.eval()\n", "leave its mode as it is"),
        ("def unpack(packed): return packed[0].to(packed[1])", "def unpack(t, kind): return t.to(kind)",
         "a pair is one tuple"),
        ("output = model(x)\n    model.zero_grad()\n    loss(output).backward()",
         "output = loss(model(x))\n    model.zero_grad()\n    output.backward()",
         "The loss is also inside the `with`"),
        ("def slim_gradients(model, loss, x, dtype):\n    model.to(dtype).zero_grad()\n"
         "    loss(model(x.to(dtype))).backward()\n"
         "    return {name: p.grad for name, p in model.named_parameters()}", "The model's own dtype has changed"),
    ],
    "15c": [
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "sum(p[name] for p in passes[1:]) / repeat",
         "These are means: one slow pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "sum(p[name] for p in passes) / len(passes)",
         "include the first pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]",
         "torch.tensor([p[name] for p in passes]).double().median().item()", "Your median includes the first pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]",
         "__import__('statistics').median(p[name] for p in passes)", "Your median includes the first pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "sorted(p[name] for p in passes)[repeat // 2]",
         "Your median includes the first pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "passes[1 + repeat // 2][name]",
         "sort the times before"),
        ("def layer_times(model, x, clock, repeat):\n    from statistics import median\n"
         "    names = {m: n for n, m in model.named_modules() if not list(m.children())}\n"
         "    times, began, handles = {n: [] for n in names.values()}, {}, []\n"
         "    def before(m, i): began[m] = clock()\n"
         "    def after(m, i, o): times[names[m]].append(clock() - began[m])\n"
         "    for m in names: handles += [m.register_forward_pre_hook(before), m.register_forward_hook(after)]\n"
         "    try:\n        for _ in range(1 + repeat): model(x)\n    finally:\n"
         "        for h in handles: h.remove()\n"
         "    calls = {n: len(t) // (1 + repeat) for n, t in times.items()}\n"
         "    return {n: median(t[calls[n]:]) * calls[n] for n, t in times.items()}",
         "and takes longer the second time"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "sum(p[name] for p in passes[1:])",
         "sums of all passes"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "passes[0][name]", "the times of the first pass"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "[p[name] for p in passes[1:]]",
         "one number for each layer"),
        ("sorted(p[name] for p in passes[1:])[repeat // 2]", "min(p[name] for p in passes[1:])",
         "the fastest passes"),
        ("range(1 + repeat)", "range(repeat)", "ran the model 5 times"),
        ("return {name: sorted(p[name] for p in passes[1:])[repeat // 2] for name in names.values()}",
         "return {m: sorted(p[name] for p in passes[1:])[repeat // 2] for m, name in names.items()}",
         "yours are not strings"),
        ("    passes, began, handles", "    model.eval()\n    passes, began, handles", "leave its mode as it is"),
        ("def layer_times(model, x, clock, repeat):\n    times, handles = {}, []\n"
         "    for name, m in model.named_modules():\n        if list(m.children()): continue\n"
         "        def before(m, i): m.began = clock()\n"
         "        def after(m, i, o): times.setdefault(name, []).append(clock() - m.began)\n"
         "        handles += [m.register_forward_pre_hook(before), m.register_forward_hook(after)]\n"
         "    for _ in range(1 + repeat): model(x)\n    for h in handles: h.remove()\n"
         "    return {name: sorted(each[1:])[repeat // 2] for name, each in times.items()}",
         "each has to keep its own"),
        ("def layer_times(model, x, clock, repeat):\n    times = {}\n    for name, m in model.named_modules():\n"
         "        if list(m.children()): continue\n        began = clock()\n        m(x)\n"
         "        times[name] = clock() - began\n    return times", "never runs the model"),
        ("+= clock()", "= clock()", "`twice` runs two times"),
        (" if not list(m.children())", "", "Your names include containers"),
        ("named_modules() if not list(m.children())", "named_children()", "Layers inside layers are missing"),
        ("    finally:\n        for handle in handles: handle.remove()\n", "    finally: pass\n",
         "a hook stays on the model"),
        ("    try:\n        for _ in range(1 + repeat):\n"
         "            passes.append(dict.fromkeys(names.values(), 0))\n            model(x)\n    finally:\n"
         "        for handle in handles: handle.remove()\n",
         "    for _ in range(1 + repeat):\n            passes.append(dict.fromkeys(names.values(), 0))\n"
         "            model(x)\n    for handle in handles: handle.remove()\n",
         "your hook stays on it"),
    ],
}


right = {
    "15a": [
        ("memory.nbytes()", "memory.size()"),
    ],
}

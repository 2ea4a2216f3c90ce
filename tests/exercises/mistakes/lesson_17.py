"""Typical wrong answers to the exercises of lesson 17, and what their authors should be told."""

mistakes = {
    "17a": [
        ("        handle.remove()\n", "", "remove it in the first"),
        ("        return hook(", "        hook(", "The result of `hook` is lost"),
        ("    return handle", "    pass", "returns nothing"),
        ("    return handle", "    return first_time", "Return the handle"),
        (
            "        handle.remove()\n        return hook(m, args, output)",
            "        result = hook(m, args, output)\n        handle.remove()\n        return result",
            "remove it before you call `hook`",
        ),
        ("hook(m, args, output)\n", "hook(output)\n", "A forward hook is called with three arguments"),
        ("        handle.remove()\n", "        layer._forward_hooks.clear()\n", "Another hook on the layer is gone"),
        ("register_forward_hook", "register_forward_pre_hook", "missing 1 required positional argument"),
        ("def once(layer, hook):\n    return layer.register_forward_hook(hook)", "remove it in the first"),
        (
            "def once(layer, hook):\n    handle = layer.register_forward_hook(hook)\n    handle.remove()\n"
            "    return handle",
            "was not called when the layer ran",
        ),
        (
            "def once(layer, hook):\n    hook(layer, (), None)\n    return layer.register_forward_hook(hook)",
            "called before the layer ran",
        ),
        (
            "def once(layer, hook):\n    calls = []\n    def yours(m, args, output):\n        calls.append(1)\n"
            "        if len(calls) == 1: return hook(m, args, output)\n"
            "    return layer.register_forward_hook(yours)",
            "let it call `handle.remove()`",
        ),
        (
            "        handle.remove()\n        return hook(m, args, output)",
            "        try: return hook(m, args, output)\n        finally: handle.remove()",
            "not after",
        ),
        (
            "def once(layer, hook):\n    global handle\n    def yours(m, args, output):\n        handle.remove()\n"
            "        return hook(m, args, output)\n    handle = layer.register_forward_hook(yours)\n"
            "    return handle",
            "Does each of them remove its own handle?",
        ),
        ("        handle.remove()\n        return hook(m, args, output)",
         "        new = hook(m, args, output)\n        handle.remove()\n        return new",
         "`hook` called the layer itself, and was called a second"),
        ("return hook(m, args, output)", "return [hook(m, args, output)]", "which is now a list"),
        ("return handle", "return [handle]", "Return the handle itself; yours is a list"),
        ("return handle", "return layer, handle", "Return the handle itself; yours is a tuple"),
        ("return hook(m, args, output)", "return hook(m, args[0], output)",
         "A forward hook is called with three arguments: the layer,"),
    ],
    "17b": [
        ("    except Exception:\n        for hook, always in [*hooks]:\n            if always: hook(x, None)\n        "
         "raise",
         "    finally:\n        for hook, always in [*hooks]:\n            if always: hook(x, None)",
         "`finally` runs after a success, too"),
        ("        if new is not None: x = new", "        x = new", "returns `None` changes nothing"),
        ("        if new is not None: x = new", "        x = new or x", "Zero is a value"),
        ("        if new is not None: output = new", "        output = new or output", "Zero is a value"),
        (
            "        if new is not None: output = new",
            "        pass",
            "should get the output that the second returned",
        ),
        (
            "        new = pre(x)\n        if new is not None: x = new",
            "        pre(x)",
            "should get what the first returned",
        ),
        ("        raise\n", "        return None\n", "your function returns"),
        (
            "            if always: hook(x, None)",
            "            hook(x, None)",
            "hooks without `always` are not called",
        ),
        (
            "        for hook, always in [*hooks]:\n            if always: hook(x, None)\n        raise",
            "        raise",
            "yours are not",
        ),
        ("hook(x, None)", "hook(x, x)", "hooks get `None`"),
        ("    for pre in [*pre_hooks]", "    for pre in pre_hooks", "loop over a copy"),
        ("    for hook, _ in [*hooks]:\n        new", "    for hook, _ in hooks:\n        new", "loop over a copy"),
        (
            "        for hook, always in [*hooks]:\n            if always",
            "        for hook, always in hooks:\n            if always",
            "loop over a copy",
        ),
        (
            "    for hook, _ in [*hooks]:\n        new",
            "    for hook, _ in [*hooks][::-1]:\n        new",
            "The order should be that of the lists",
        ),
        (
            "def run(forward, pre_hooks, hooks, x):\n    first = x\n    for pre in [*pre_hooks]:\n"
            "        new = pre(first)\n        if new is not None: x = new\n    return forward(x)",
            "The calls should be three pre hooks",
        ),
        (
            "def run(forward, pre_hooks, hooks, x):\n    start = x\n    for pre in [*pre_hooks]:\n"
            "        new = pre(x)\n        x = x if new is None else new\n    output = forward(x)\n"
            "    for hook, always in [*hooks]:\n        new = hook(start, output)\n"
            "        output = output if new is None else new\n    return output",
            "after the pre hooks",
        ),
        (
            "def run(forward, pre_hooks, hooks, x):\n    output = None\n    for pre in [*pre_hooks]:\n"
            "        new = pre(x)\n        x = x if new is None else new\n    try:\n        output = forward(x)\n"
            "        for hook, always in [*hooks]:\n            if not always:\n"
            "                new = hook(x, output)\n                output = output if new is None else new\n"
            "    finally:\n        for hook, always in [*hooks]:\n            if always:\n"
            "                new = hook(x, output)\n                output = output if new is None else new\n"
            "    return output",
            "The order should be that of the lists",
        ),
        (
            "def run(forward, pre_hooks, hooks, x):\n    output = None\n    for pre in [*pre_hooks]:\n"
            "        new = pre(x)\n        x = x if new is None else new\n    try:\n        output = forward(x)\n"
            "        for hook, always in [*hooks]:\n            new = hook(x, output)\n"
            "            output = output if new is None else new\n    finally:\n"
            "        for hook, always in [*hooks]:\n            if always: hook(x, output)\n    return output",
            "`finally` runs after a success, too",
        ),
        (
            "def run(forward, pre_hooks, hooks, x):\n    try:\n        for pre in [*pre_hooks]:\n"
            "            new = pre(x)\n            x = x if new is None else new\n        output = forward(x)\n"
            "        for hook, _ in [*hooks]:\n            new = hook(x, output)\n"
            "            output = output if new is None else new\n    except Exception:\n"
            "        for hook, always in [*hooks]:\n            if always: hook(x, None)\n        raise\n"
            "    return output",
            "around `forward(x)` alone",
        ),
        ("if new is not None: output = new", "if new: output = new",
         "A hook returned 0, and the output is still the old one"),
        ("hook(x, None)", "hook(x, output)", "When `forward` raised there is no output: hooks get `None`"),
        ("        raise\n", "", "`forward` raised an error, and your function returns or"),
    ],
    "17c": [
        ("[handle.remove() for handle in handles]", "handles[1].remove()", "left these on the layer: forward_pre."),
        (
            "def on_gradients(layer, hook):\n"
            "    handle = layer.register_full_backward_hook(lambda m, gi, go: hook(gi[0], go[0]))\n"
            "    return handle.remove",
            "and return nothing",
        ),
        ('hook(g, kept["of output"])', 'hook(g.numpy(), kept["of output"].numpy())', "gradients as tensors"),
        ("x = {}, args[0].clone()", "x = {}, args[0]", "not the gradients of its input and output"),
        ("x = {}, args[0].clone()", "x = {}, args[0].view_as(args[0])", "not a view"),
        (
            '        def arrived(g, kept=now["call"]): hook(g, kept["of output"])',
            '        arrived = lambda g, kept=now["call"]: hook(g, kept["of output"])',
            "must not replace anything",
        ),
        ('hook(g, kept["of output"])', 'hook(kept["of output"], g)', "The two gradients are swapped"),
        ('hook(g, kept["of output"])', 'hook((g,), (kept["of output"],))', "not tuples of them"),
        (
            "        if x.requires_grad: x.register_hook(arrived)",
            "        x.register_hook(arrived)",
            "nothing requires a gradient",
        ),
        (
            "        if output.requires_grad: output.register_hook(keep)",
            "        output.register_hook(keep)",
            "nothing requires a gradient",
        ),
        ("    return lambda: [handle.remove() for handle in handles]", "    return handles", "Return a function"),
        (
            "    return lambda: [handle.remove() for handle in handles]",
            "    return lambda: handles[0].remove()",
            "left these on the layer: forward.",
        ),
        (
            "    return lambda: [handle.remove() for handle in handles]",
            "    return lambda: None",
            "left these on the layer: forward_pre, forward.",
        ),
        (
            'def arrived(g, kept=now["call"]): hook(g, kept["of output"])',
            'def arrived(g): hook(g, now["call"]["of output"])',
            "With a layer that runs twice",
        ),
        (
            'def keep(g, kept=now["call"]): kept["of output"] = g',
            'def keep(g, kept=now["call"]): kept["of output"] = 2*g',
            "not the gradients",
        ),
        (
            "def on_gradients(layer, hook):\n"
            "    handle = layer.register_full_backward_hook(lambda m, gi, go: hook(gi[0], go[0]) and None)\n"
            "    return handle.remove",
            "stopped",
        ),
        (
            "def on_gradients(layer, hook):\n    def look(m, gi, go): hook(gi[0], go[0])\n"
            "    handle = layer.register_full_backward_hook(look)\n    return handle.remove",
            "must not be given a view",
        ),
        (
            "def on_gradients(layer, hook):\n    now = {}\n    def leave(m, args, output):\n"
            "        def keep(g): now['o'] = g\n        def arrived(g): hook(g, now['o'])\n"
            "        if output.requires_grad:\n            output.register_hook(keep)\n"
            "            args[0].register_hook(arrived)\n    handle = layer.register_forward_hook(leave)\n"
            "    return handle.remove",
            "before the layer overwrites it",
        ),
        (
            "def on_gradients(layer, hook):\n    now = {}\n    def leave(m, args, output):\n"
            "        output = output.clone()\n        def keep(g): now['o'] = g\n"
            "        def arrived(g): hook(g, now['o'])\n        if output.requires_grad:\n"
            "            output.register_hook(keep)\n            args[0].register_hook(arrived)\n"
            "        return output\n    handle = layer.register_forward_hook(leave)\n    return handle.remove",
            "before the layer overwrites it",
        ),
        ("        return x\n", "", "Gradients only flow through a copy that is used"),
        ("        return output\n", "", "The output's gradient wasn't there yet when the input's arrived"),
        ("args[0].clone()", "args[0].detach().clone().requires_grad_()", "`detach()` and `.data` cut the graph"),
        ("output = output.clone()", "output = output.detach().clone().requires_grad_()", "`clone()` alone stays in it"),
        ("        output = output.clone()\n", "", "Input and output are the same tensor: clone both"),
        ("    return lambda: [handle.remove() for handle in handles]",
         "    for handle in handles: handle.remove()\n    return lambda: None", "none of your hooks is on the layer"),
        ('hook(g, kept["of output"])', 'hook(g, None)', "one of yours is None"),
        ('hook(g, kept["of output"])', 'hook(g)', "it got 1 argument."),
        ('hook(g, kept["of output"])', 'hook(x, kept["of output"])', "that of the input is wrong"),
        ('kept["of output"] = g', 'return kept.setdefault("of output", 2*g)', "both are wrong. Pass on what"),
        ("def on_gradients(layer, hook):\n    def both(m, gi, go): hook(gi[0], go[0])\n"
         "    handles = [layer.register_forward_pre_hook(lambda m, args: args[0].clone()),\n"
         "               layer.register_full_backward_hook(both)]\n"
         "    return lambda: [handle.remove() for handle in handles]", "without a backward hook on the layer"),
    ],
}

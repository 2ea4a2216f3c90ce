"""Typical wrong answers to the exercises of lesson 04, and what their authors should be told."""

mistakes = {
    "04a": [
        ("named_modules", "named_children", "sees the top level only"),
        ("isinstance(m, kind)", "type(m) is kind", "A subclass of `kind` is missing"),
        ("if name and ", "if ", "Leave it out"),
        ("[name for", "[m for", "return their names"),
        ("return [name", "[name", "Is the `return` missing?"),
        ("def names_of(model, kind):\n"
         "    return {name: m for name, m in model.named_modules() if name and isinstance(m, kind)}",
         "yours is a dict of 4"),
        ("isinstance(m, kind) and ", "", "It should be"),
        ("[name for", "[type(m).__name__ for", "These are not names of layers"),
        ("isinstance(m, kind)", "type(m).__name__ == kind", "Your list is empty"),
        (" and any(p.requires_grad for p in m.parameters())", "", "but all its parameters are frozen"),
        ("any(", "all(", "one parameter is enough"),
        ("any(p.requires_grad for p in m.parameters())", "m.weight.requires_grad", "one parameter is enough"),
        ("m.parameters()", "m.parameters(recurse=False)", "The layer `1`, an `nn.Sequential`, is missing"),
        ("def names_of(model, kind):\n    return list(hl.layers(model, kind))", "but all its parameters are frozen"),
        ("def names_of(model, kind):\n    return ['0', '1.1', '1.2.0']",
         "you list layers of another type"),
        ("    return [name for", "    model.eval().requires_grad_(True)\n    return [name for",
         "but all its parameters are frozen"),
        ("isinstance(m, kind)", "isinstance(m, nn.Linear)", "you list layers of another type"),
        ("def names_of(model, kind):\n"
         "    names = [n for n, m in model.named_modules() if n and isinstance(m, kind)\n"
         "             and any(p.requires_grad for p in m.parameters())]\n"
         "    model.requires_grad_(True)\n    return names",
         "only check it"),
    ],
    "04b": [
        ("hook.calls[k]", "hook.stored", "You always return the last call"),
        (", root=model", "", "not only the last"),
        ("hook.calls[k]", "hook.calls[k - 1]", "calls are counted from 0"),
        ("hook.calls[k]", "hook.calls[0]", "not always the first"),
        ("hook.calls[k]", "hook.calls", "should be a tensor, and yours is a list of 3"),
        ("i[0]", "i", "the tensor is `i[0]`"),
        ('lambda m, i: i[0], kind="forward_pre"', "lambda m, i, o: i[0]", "a forward hook is called after it has run"),
        ('hl.Hook(layer, lambda m, i: i[0], kind="forward_pre", root=model)', "hl.hook_output(layer, root=model)",
         "That is the input after `layer` changed it"),
        ("def kth_call(model, layer, x, k):\n    inputs = []\n"
         "    handle = layer.register_forward_pre_hook(lambda m, i: inputs.append(i[0].detach()))\n    model(x)\n"
         "    handle.remove()\n    return inputs[k]", "the tensor at the end of the pass"),
        ("def kth_call(model, layer, x, k):\n    inputs = []\n"
         "    handle = layer.register_forward_pre_hook(lambda m, i: inputs.append(i[0].clone()))\n    model(x)\n"
         "    handle.remove()\n    return inputs[max(k - 1, 0)]", "calls are counted from 0"),
        ("def kth_call(model, layer, x, k):\n    inputs = []\n"
         "    layer.register_forward_pre_hook(lambda m, i: inputs.append(i[0].clone()))\n    model(x)\n"
         "    return inputs[k]", "a hook stays on the model when"),
        ("hl.Hook(layer", "hl.Hook(model.head", "You stored no call 1"),
        ("hl.Hook(layer", "hl.Hook(model", "You stored no call 1"),
        ("def kth_call(model, layer, x, k):\n    for _ in range(k): x = layer(x)\n    return x", "never ran the model"),
        ("def kth_call(model, layer, x, k):\n    model(x)\n    return x", "That is the model's input"),
        ("hook.calls[k]", "hook.calls[k].sum(0)", "has the shape (3, 4), but yours has (4,)"),
        ("def kth_call(model, layer, x, k):\n    inputs = []\n    def look(m, i):\n"
         "        inputs.append(i[0].clone())\n        return inputs[-1]\n"
         "    with layer.register_forward_pre_hook(look): model(x)\n    return inputs[k]",
         "a hook that only looks must return nothing"),
        ("def kth_call(model, layer, x, k):\n    outputs = []\n"
         "    with layer.register_forward_hook(lambda m, i, o: outputs.append(o.clone())): model(x)\n"
         "    return outputs[k - 1]", "the output of `layer` in another call"),
        ('kind="forward_pre"', 'kind="forward"', "If this is a forward hook:"),
        ("hook.calls[k]", "hook.calls[-1]", "You always return the last call: keep all of them, and pick"),
    ],
    "04c": [
        ("        raise Found\n", "", "LookupError: the layer did not run"),
        ("    finally: handle.remove()\n", "", "the hook stays on"),
        ("    except Found: return outputs[0]\n    finally: handle.remove()\n",
         "    except Found: handle.remove(); return outputs[0]\n", "When the model fails earlier, the hook stays on"),
        ("except Found: return outputs[0]", "except Exception: return outputs[0]", "catch only your exception"),
        ("except Found: return outputs[0]", "except Exception: return outputs[0] if outputs else x",
         "catch only your exception"),
        ('    raise LookupError("the layer did not run")', "    return x", "so that the caller notices"),
        ('    raise LookupError("the layer did not run")', "", "raise a LookupError that says so"),
        ('    raise LookupError("the layer did not run")', "    return outputs[0]", "stops with IndexError"),
        ("    except Found: return outputs[0]\n    finally: handle.remove()\n"
         '    raise LookupError("the layer did not run")',
         "    except Found: pass\n    finally: handle.remove()\n    return outputs[0]", "stops with IndexError"),
        ("class Found(Exception): pass", "Found = LookupError", "raised its own LookupError"),
        ("class Found(Exception): pass", "Found = StopIteration", "raised its own StopIteration"),
        ("class Found(Exception): pass", "Found = KeyError", "raised its own KeyError"),
        ("class Found(Exception): pass", "Found = RuntimeError", "catch only your exception"),
        ("def first_output(model, layer, x):\n    with hl.hook_output(layer) as hook:\n        model(x)\n"
         "        return hook.stored", "return its first output"),
        ("def first_output(model, layer, x):\n    with hl.hook_output(layer, root=model) as hook:\n"
         "        model(x)\n        return hook.calls[0]", "the layers after it ran as well"),
        ("return outputs[0]", "return outputs", "yours is a list of 1"),
        ("    except Found: return outputs[0]\n", "", "Now catch it around `model(x)`"),
        ("def stop(m, i, o):\n        outputs.append(o)", "def stop(m, i, o):\n        outputs.append(i[0])",
         "is the input of `layer`"),
        ("handle.remove()", "layer._forward_hooks.clear()", "A hook that isn't yours is gone"),
        ("    try: model(x)", "    model.eval()\n    try: model(x)", "mode has changed"),
        ("class Found(Exception): pass", "Found = KeyboardInterrupt", "raised its own KeyboardInterrupt"),
        ('LookupError("the layer did not run")', "LookupError", "has no message"),
        ("    try: model(x)\n    except Found: return outputs[0]",
         "    try: out = model(x)\n    except Found: return out", "so there is no result"),
    ],
}


right = {
    "04c": [
        ("outputs.append(o)", "outputs.append(o.clone())"),
    ],
}

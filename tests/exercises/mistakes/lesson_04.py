"""Typical wrong answers to the exercises of lesson 04, and what their authors should be told."""

mistakes = {
    "04a": [
        ("named_modules", "named_children", "sees the top level only"),
        ("isinstance(m, kind)", "type(m) is kind", "A subclass of `kind` is missing"),
        ("if name and ", "if ", "Leave it out"),
        ("[name for", "[m for", "return their names"),
        ("return [name", "[name", "Is the `return` missing?"),
        ("def names_of(model, kind):\n    return {name: m for name, m in model.named_modules() if name and isinstance(m, kind)}", "not dict"),
        (" and isinstance(m, kind)", "", "It should be"),
        ("[name for", "[type(m).__name__ for", "These are not names of layers"),
        ("isinstance(m, kind)", "type(m).__name__ == kind", "Your list is empty"),
    ],
    "04b": [
        ("hook.calls[k]", "hook.stored", "You always return the last call"),
        (", root=model", "", "not only the last"),
        ("hook.calls[k]", "hook.calls[k - 1]", "calls are counted from 0"),
        ("hook.calls[k]", "hook.calls", "not list"),
        ("def kth_call(model, layer, x, k):\n    outs = []\n    handle = layer.register_forward_hook(lambda m, i, o: outs.append(o.detach()))\n"
         "    model(x)\n    handle.remove()\n    return outs[k]", "after the model wrote into it"),
        ("def kth_call(model, layer, x, k):\n    outs = []\n    handle = layer.register_forward_hook(lambda m, i, o: outs.append(o.clone()))\n"
         "    model(x)\n    handle.remove()\n    return outs[max(k - 1, 0)]", "calls are counted from 0"),
        ("def kth_call(model, layer, x, k):\n    outs = []\n    layer.register_forward_hook(lambda m, i, o: outs.append(o.clone()))\n"
         "    model(x)\n    return outs[k]", "a hook stays on the model when"),
        ("hl.hook_output(layer", "hl.hook_output(model.head", "is the hook on `layer`"),
        ("def kth_call(model, layer, x, k):\n    outs = []\n    with layer.register_forward_hook(lambda m, i, o: outs.append(i[0].clone())): model(x)\n    return outs[k]",
         "the layer's input in this call"),
        ("def kth_call(model, layer, x, k):\n    for _ in range(k + 1): x = layer(x)\n    return x", "never ran the model"),
        ("def kth_call(model, layer, x, k):\n    outs = []\n    def keep(m, i, o):\n        outs.append(o.clone())\n        return outs[-1]\n"
         "    with layer.register_forward_hook(keep): model(x)\n    return outs[k]", "a hook that only looks returns nothing"),
    ],
    "04c": [
        ("        raise Found\n", "", "LookupError: the layer did not run"),
        ("    finally: handle.remove()\n", "", "the hook stays on"),
        ("    except Found: return outputs[0]\n    finally: handle.remove()\n", "    except Found: handle.remove(); return outputs[0]\n", "When the model fails earlier, the hook stays on"),
        ("except Found: return outputs[0]", "except Exception: return outputs[0]", "catch only your exception"),
        ("except Found: return outputs[0]", "except Exception: return outputs[0] if outputs else x", "catch only your exception"),
        ('    raise LookupError("the layer did not run")', "    return x", "so that it is noticed"),
        ('    raise LookupError("the layer did not run")', "", "raise a LookupError that says so"),
        ("def first_output(model, layer, x):\n    with hl.hook_output(layer) as hook:\n        model(x)\n        return hook.stored", "return its first output"),
        ("def first_output(model, layer, x):\n    with hl.hook_output(layer, root=model) as hook:\n        model(x)\n        return hook.calls[0]",
         "the layers after it ran as well"),
        ("return outputs[0]", "return outputs", "not list"),
        ("    except Found: return outputs[0]\n", "", "Now catch it around `model(x)`"),
        ("def stop(m, i, o):\n        outputs.append(o)", "def stop(m, i, o):\n        outputs.append(i[0])", "is the input of `layer`"),
    ],
}

"""Typical wrong answers to the exercises of lesson 03, and what their authors should be told."""

mistakes = {
    "03a": [
        ("    try: return run()\n    finally: handle.remove()", "    result = run()\n    handle.remove()\n    return result", "when `run` fails, your hook stays"),
        ("    try: return run()\n    finally: handle.remove()", "    return run()\n    handle.remove()", "A line after `return` is never reached"),
        ("return run()", "run()", "Is the `return` missing?"),
        ("return run()", "return run", "was never called"),
        ("handle.remove()", "layer._forward_hooks.clear()", "Somebody else's hook is gone"),
        ("    try: return run()\n", "    try: return run()\n    except Exception: return 0\n", "your function hides it"),
        ("try: return run()", "try: return run(), run()", "register it once"),
        ("(f)", "(f(layer, None, None))", "not callable"),
    ],
    "03b": [
        ("            self.__exit__()\n", "", "the hooks of the first two stay"),
        ("            raise\n", "            pass\n", "nobody was told"),
        ("_pre_hook(enter)", "_pre_hook(before)", "changes the model's output"),
        ("_forward_hook(leave)", "_forward_hook(after)", "changes the model's output"),
        ("        for handle in self.handles: handle.remove()", "        pass", "hooks are still on"),
        ("        for handle in self.handles: handle.remove()", "        for handle in self.handles: handle.remove()\n        return True", "if it returns something true"),
        ("        for handle in self.handles: handle.remove()", "        if not any(error): [handle.remove() for handle in self.handles]", "the body of the `with` fails, hooks stay on"),
        ("    def __exit__(self, *error):", "    def close(self, *error):", "`with` needs two methods"),
        ("    def __exit__(self, *error):", "    def __exit__(self):", "takes 1 positional argument"),
        ("                self.handles.append(m.register_forward_hook(leave))\n", "", "`after` was never called"),
        ("before(m, i)", "after(m, i, i)", "`before` was never called"),
        ("register_forward_pre_hook(enter)", "register_forward_hook(lambda m, i, o: enter(m, i))", "belongs before the layer"),
        ("for m in layers", "for m in layers[:1]", "not for all layers"),
        ("for m in layers", "for m in layers * 2", "once for each time"),
    ],
    "03c": [
        ("    except Exception: pass", "    finally: pass", "your function with it"),
        (" if after.count(name) > before.count(name)", "", "was there before `run`"),
        ("{name for name in after if after.count(name) > before.count(name)}", "[name for name in after if after.count(name) > before.count(name)]", "Each layer once"),
        ("    try: run()\n    except Exception: pass\n", "", "`run` was never called"),
        ("[row.layer for row in hl.hooks_on(model)]", "[name for name, m in model.named_modules() for _ in m._forward_hooks]", "sees all kinds"),
        ("return sorted({name for name in after if after.count(name) > before.count(name)})", "return len(after) - len(before)", "A list of names"),
        ("    return sorted", "    sorted", "Is the `return` missing?"),
    ],
}

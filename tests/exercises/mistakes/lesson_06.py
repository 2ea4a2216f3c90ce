"""Typical wrong answers to the exercises of lesson 06, and what their authors should be told."""

mistakes = {
    "06a": [
        ("learn.fit(2,", "learn.fit(1,", "fit for two"),
        ("learn.fit(2, cbs=(count := Count()))", "count = Count()", "was not fitted"),
        ("learn.fit(2, cbs=(count := Count()))", "learn.add_cb(count := Count())\n    learn.fit(2)", "a callback stays on the learner"),
        ("return count.trained, count.validated", "return count.validated, count.trained", "but the wrong way round"),
        ("return count.trained, count.validated", "return count.trained", "a pair of numbers"),
        ("    return count.trained, count.validated", "    count.trained, count.validated", "Is the `return` missing?"),
        ("if self.training: self.trained", "if True: self.trained", "All batches were counted"),
        ("if self.training: self.trained", "if self: self.trained", "check `self.training`"),
        ("def after_batch", "def before_epoch(self): self.trained = self.validated = 0\n        def after_batch", "reset the counters"),
        ("cbs=(count := Count())", "cbs=(count := Count)", "Nothing was counted"),
        ("def after_batch(self)", "def after_batch(self, learn)", "methods for events take only `self`"),
        ("class Count(hl.Callback)", "class Count", "derives from `hl.Callback`"),
        ("if self.training: self.trained += 1\n            else: ", "self.trained += 1\n            if not self.training: ", "check `self.training`"),
        ("def batches_seen(learn):\n    n = 0\n    class Count(hl.Callback):\n        def after_batch(self): n += 1\n    learn.fit(2, cbs=Count())\n    return n, n", "in `self`"),
        ("def batches_seen(learn):\n    class Count(hl.Callback):\n        trained = validated = 0\n        def after_train(self): self.trained += 1\n"
         "        def after_validate(self): self.validated += 1\n    learn.fit(2, cbs=(count := Count()))\n    return count.trained, count.validated", "These are the epochs"),
    ],
    "06b": [
        ("if not self.training", "if self.training", "These are the training batches"),
        ("if not self.training: ", "", "These are all batches"),
        ("self.stds.append(self.hooks.stored[0])", "self.stds[:] = self.hooks.stored", "one number for each validation batch"),
        ("        stds = []\n", "        def before_fit(self): self.stds = []\n", "call `super().before_fit()`"),
        ("        stds = []\n", "        def __init__(self, name): self.stds = []\n", "call `super().__init__(name)`"),
        ("        stds = []\n", "", "Create it beforehand"),
        ("stored[0]", "stored", "lists in the list"),
        ("return o.std().item()", "o.std().item()", "None in the list"),
        ("learn.fit(1,", "learn.fit(2,", "Fit for one epoch"),
        ("o.std()", "o.mean()", "The deviations should be about"),
        ("learn.fit(1, cbs=(listener := Listener(name)))", "learn.add_cb(listener := Listener(name))\n    learn.fit(1)", "a callback stays on the learner"),
        ("return listener.stds", "return listener.hooks", "should be a list"),
        ("def validation_stds(learn, name):\n    stds, layer = [], learn.model.get_submodule(name)\n"
         "    handle = layer.register_forward_hook(lambda m, i, o: None if m.training else stds.append(o.std().item()))\n"
         "    learn.fit(1)\n    handle.remove()\n    return stds", "as long as the fit is not interrupted"),
        ("def validation_stds(learn, name):\n    stds, layer = [], learn.model.get_submodule(name)\n"
         "    layer.register_forward_hook(lambda m, i, o: None if m.training else stds.append(o.std().item()))\n"
         "    learn.fit(1)\n    return stds", "a hook stays on the model"),
        ("    learn.fit(1, cbs=(listener := Listener(name)))", "    try: learn.fit(1, cbs=(listener := Listener(name)))\n    except BaseException: pass", "goes on as if nothing"),
    ],
    "06c": [
        ("            if not self.training: return\n", "", "The fit stops in the first validation"),
        ("hl.CancelFitException", "hl.CancelEpochException", "the fit went on after that"),
        ("hl.CancelFitException", "StopIteration('dead')", "stopped with StopIteration"),
        ("hl.CancelFitException", "KeyboardInterrupt", "Ctrl-C had been pressed"),
        ("raise hl.CancelFitException", "return", "does it raise"),
        ("(o == 0).float().mean()", "(o == 0).mean()", "have no mean"),
        ("(o == 0).float().mean()", "(o == 0).sum()", "the share of zeros, from 0 to 1"),
        ("            if not self.training: return\n            self.count += 1\n", "            self.count += 1\n            if not self.training: return\n", "55 training batches"),
        ("def fit_until_dead(learn, name, limit):\n    class Guard(hl.HookCallback):\n        count = 0\n        def hook(self, m, i, o):\n            self.count += m.training\n"
         "            if m.training and (o == 0).float().mean() > limit: raise hl.CancelFitException\n"
         "    learn.fit(5, cbs=(guard := Guard(name)))\n    return guard.count", "The fit ended in the middle of batch 9"),
        ("(o == 0)", "(i[0] == 0)", "never stopped"),
        ("            self.count += 1\n            if self.hooks.stored[0] > limit: raise hl.CancelFitException",
         "            if self.hooks.stored[0] > limit: raise hl.CancelFitException\n            self.count += 1", "count first, then look"),
        ("> limit", "< limit", "The fit should end with batch 9"),
        ("> limit", "> -limit", "The fit should end with batch 9"),
        ("return guard.count", "return guard.hooks", "There were 9 training batches"),
        ("learn.fit(5, cbs=(guard := Guard(name)))", "learn.add_cb(guard := Guard(name))\n    learn.fit(5)", "a callback stays on the learner"),
    ],
}

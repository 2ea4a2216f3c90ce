"""Typical wrong answers to the exercises of lesson 06, and what their authors should be told."""

mistakes = {
    "06a": [
        ("learn.fit(2,", "learn.fit(1,", "fit for two"),
        ("    learn.fit(2, cbs=counter)\n", "", "was not fitted"),
        ("learn.fit(2, cbs=counter)", "learn.add_cb(counter)\n    learn.fit(2)", "a callback stays on the learner"),
        ("return counter.trained, counter.validated", "return counter.validated, counter.trained",
         "but in the wrong order"),
        ("return counter.trained, counter.validated", "return counter.trained", "two numbers, `trained, validated`"),
        ("    return counter.trained, counter.validated", "    counter.trained, counter.validated",
         "Is the `return` missing?"),
        ("if self.training: self.trained", "if True: self.trained", "All batches were counted"),
        ("if self.training: self.trained", "if self: self.trained", "check `self.training`"),
        ("def after_batch", "def before_epoch(self): self.trained = self.validated = 0\n        def after_batch",
         "reset the counters"),
        ("Count()", "Count", "Nothing was counted"),
        ("def after_batch(self)", "def after_batch(self, learn)", "Event methods take only `self`"),
        ("class Count(hl.Callback)", "class Count", "must derive from `hl.Callback`"),
        ("if self.training: self.trained += 1\n            else: ",
         "self.trained += 1\n            if not self.training: ", "check `self.training`"),
        ("def batches_seen(learn):\n    n = 0\n    class Count(hl.Callback):\n"
         "        def after_batch(self): n += 1\n    learn.fit(2, cbs=Count())\n    return n, n", "in `self`"),
        ("def batches_seen(learn):\n    class Count(hl.Callback):\n        trained = validated = 0\n"
         "        def after_train(self): self.trained += 1\n"
         "        def after_validate(self): self.validated += 1\n    counter = Count()\n    learn.fit(2, cbs=counter)\n"
         "    return counter.trained, counter.validated", "These are the epochs"),
        ("def batches_seen(learn):\n    learn.fit(2)\n    return 2*len(learn.dls.train), 2*len(learn.dls.valid)",
         "from the lengths of the loaders"),
        ("def batches_seen(learn):\n    learn.fit(2)\n    return 21, 6", "With another learner"),
        ("learn.fit(2, cbs=counter)", "learn.add_cb(counter)\n    learn.validate()", "only validated"),
        ("return counter.trained, counter.validated", "return Count.seen, Count.seen", "You read from the class"),
        ("return counter.trained, counter.validated", "return [counter.trained], [counter.validated]",
         "Each of the two counts"),
        ("learn.fit(2, cbs=counter)", "learn.cbs.append(counter)\n    learn.fit(2)", "Only `fit` connects a callback"),
    ],
    "06b": [
        ("o.std().item()", "round(o.std().item(), 3)", "For another layer, `last`"),
        ("sum(self.stds) / len(self.stds)", "round(sum(self.stds) / len(self.stds), 4)", "but rounded"),
        ("def validation_stds(learn, name):\n    class PerEpoch(hl.HookCallback):\n        means = []\n"
         "        def hook(self, m, i, o): return o.detach().clone()\n"
         "        def before_validate(self): self.kept = []\n"
         "        def after_batch(self):\n            if not self.training: self.kept += self.hooks.stored\n"
         "        def after_validate(self): self.means.append(torch.cat(self.kept).std().item())\n"
         "    per_epoch = PerEpoch(name)\n    learn.fit(3, cbs=per_epoch)\n    return per_epoch.means",
         "all batches of a validation together"),
        ("def validation_stds(learn, name):\n    class PerEpoch(hl.HookCallback):\n        means = []\n"
         "        def hook(self, m, i, o): return o.std().item()\n"
         "        def before_epoch(self): self.stds = []\n        def after_batch(self):\n"
         "            if self.training: self.stds.append(self.hooks.stored[0])\n"
         "        def after_epoch(self): self.means.append(sum(self.stds) / len(self.stds))\n"
         "    per_epoch = PerEpoch(name)\n    learn.fit(3, cbs=per_epoch)\n    return per_epoch.means",
         "These are the training batches"),
        ("def validation_stds(learn, name):\n    class PerEpoch(hl.HookCallback):\n        means = []\n"
         "        def hook(self, m, i, o): return o.std().item()\n"
         "        def before_epoch(self): self.stds = []\n        def after_batch(self):\n"
         "            self.stds.append(self.hooks.stored[0])\n"
         "        def after_epoch(self): self.means.append(sum(self.stds) / len(self.stds))\n"
         "    per_epoch = PerEpoch(name)\n    learn.fit(3, cbs=per_epoch)\n    return per_epoch.means",
         "training too"),
        ("self.stds.append(self.hooks.stored[0])", "self.stds[:] = self.hooks.stored", "one batch of each validation"),
        ("self.means.append(sum(self.stds) / len(self.stds))", "self.means.extend(self.stds)",
         "one number for each validation batch"),
        ("self.means.append(sum(self.stds) / len(self.stds))",
         "self.means[:] = [sum(self.stds) / len(self.stds)]", "the last epoch only"),
        ("return per_epoch.means", "return [sum(per_epoch.means) / 3]", "one number for each of the 3 epochs"),
        ("return per_epoch.means", "return per_epoch.means[0]", "should be a list"),
        ("def before_validate(self): self.stds = []", "stds = []", "in `before_validate`"),
        ("def before_validate(self)", "def before_fit(self)", "call `super().before_fit()`"),
        ("        def before_validate(self): self.stds = []\n",
         "        def __init__(self, name): self.stds = []\n", "call `super().__init__(name)`"),
        ("        def before_validate(self): self.stds = []\n", "", "Create it first"),
        ("stored[0]", "stored", "stopped with TypeError"),
        ("self.means.append(sum(self.stds) / len(self.stds))", "self.means.append(self.stds)",
         "lists where numbers should be"),
        ("return o.std().item()", "o.std().item()", "stopped with TypeError"),
        ("def after_validate(self)", "def after_validation(self)", "The list is empty"),
        ("self.means.append(sum(self.stds) / len(self.stds))", "self.means.append(None)", "None in the list"),
        ("learn.fit(3,", "learn.fit(1,", "Fit for three epochs"),
        ("    learn.fit(3, cbs=per_epoch)\n", "", "was not fitted"),
        ("learn.fit(3, cbs=per_epoch)", "learn.add_cb(per_epoch)\n    learn.validate()", "only validated"),
        ("def validation_stds(learn, name):\n    return []", "was not fitted"),
        ("o.std()", "o.mean()", "These are means of the output"),
        ("o.std()", "o.var()", "These are variances"),
        ("o.std()", "i[0].std()", "of the layer's input"),
        ("o.std()", "o.std(0).mean()", "for each unit"),
        ("o.std()", "o.std(1).mean()", "for each sample"),
        ("o.std()", "o.std(unbiased=False)", "You divide by the number of values"),
        ("o.std()", "o.abs().max()", "Compute one epoch by hand"),
        ("sum(self.stds) / len(self.stds)", "sum(self.stds)", "These are sums over the batches"),
        ("sum(self.stds) / len(self.stds)", "sum(self.stds) / len(self.dls.train)",
         "by the number of training batches"),
        ("def after_batch", "def before_batch", "the previous batch's number"),
        ("def after_batch", "def after_step", "nothing was appended during it"),
        ("if not self.training: ", "", "`before_validate` has not been called. Leave these batches out"),
        ("if not self.training:", "if self.training:", "`before_validate` has not been called"),
        ("return o.std().item()", "self.stds.append(o.std().item())", "`before_validate` has not been called"),
        ("PerEpoch(name)", "PerEpoch()", "hook the layer `name`, and only that"),
        ("PerEpoch(name)", "PerEpoch('*')", "hook the layer `name`, and only that"),
        ("PerEpoch(name)", "PerEpoch('first')", "For another layer, `last`"),
        ("self.hooks.stored[0]", "self.hook.stored", "`self.hook` is your function"),
        ("hook(self, m, i, o)", "hook(m, i, o)", "its first argument is `self`"),
        ("learn.fit(3, cbs=per_epoch)", "learn.add_cb(per_epoch)\n    learn.fit(3)", "a callback stays on the learner"),
        ("return per_epoch.means", "return per_epoch.hooks", "should be a list"),
        ("def validation_stds(learn, name):\n    stds, layer = [], learn.model.get_submodule(name)\n"
         "    handle = layer.register_forward_hook(lambda m, i, o: None if m.training else "
         "stds.append(o.std().item()))\n    learn.fit(3)\n    handle.remove()\n"
         "    return [sum(stds[k:k+3]) / 3 for k in (0, 3, 6)]", "as long as the fit is not interrupted"),
        ("def validation_stds(learn, name):\n    stds, layer = [], learn.model.get_submodule(name)\n"
         "    layer.register_forward_hook(lambda m, i, o: None if m.training else stds.append(o.std().item()))\n"
         "    learn.fit(3)\n    return [sum(stds[k:k+3]) / 3 for k in (0, 3, 6)]", "a hook stays on the model"),
        ("    learn.fit(3, cbs=per_epoch)",
         "    try: learn.fit(3, cbs=per_epoch)\n    except BaseException: pass", "continues as if nothing"),
        ("sum(self.stds) / len(self.stds)", "self.stds[-1]", "That is one batch of each validation"),
    ],
    "06c": [
        ("(o == 0)", "(o.abs() < 1e-3)", "all values are small, but none is zero"),
        ("(o == 0)", "(o <= 0)", "all values are small, but none is zero"),
        ("            if not self.training: return\n", "", "The fit stops in the first validation"),
        ("raise hl.CancelFitException", "\n                from hooklab.training.callback import CancelEpochException\n"
         "                raise CancelEpochException", "but the fit continued"),
        ("hl.CancelFitException", "StopIteration('dead')", "stopped with StopIteration"),
        ("hl.CancelFitException", "KeyboardInterrupt", "Ctrl-C had been pressed"),
        ("raise hl.CancelFitException", "return", "does it raise"),
        ("(o == 0).float().mean()", "(o == 0).mean()", "have a mean"),
        ("(o == 0).float().mean()", "(o == 0).sum()", "a fraction of zeros, from 0 to 1"),
        ("            if not self.training: return\n            self.count += 1\n",
         "            self.count += 1\n            if not self.training: return\n", "five epochs, 55 batches"),
        ("def fit_until_dead(learn, name, limit):\n    class Guard(hl.HookCallback):\n        count = 0\n"
         "        def hook(self, m, i, o):\n            self.count += m.training\n"
         "            if m.training and (o == 0).float().mean() > limit: raise hl.CancelFitException\n"
         "    guard = Guard(name)\n    learn.fit(5, cbs=guard)\n    return guard.count",
         "The fit ended in the middle of batch 9"),
        ("(o == 0)", "(i[0] == 0)", "never stopped"),
        ("            self.count += 1\n            if self.hooks.stored[0] > limit: raise hl.CancelFitException",
         "            if self.hooks.stored[0] > limit: raise hl.CancelFitException\n            self.count += 1",
         "count first, then check"),
        ("> limit", "< limit", "The fit should end with batch 9"),
        ("> limit", "> -limit", "The fit should end with batch 9"),
        ("return guard.count", "return guard.hooks", "should be one number"),
        ("learn.fit(5, cbs=guard)", "learn.add_cb(guard)\n    learn.fit(5)", "a callback stays on the learner"),
        ("(o == 0)", "(o <= 0.05)", "small, but none is zero"),
        ("> limit", ">= limit", "is exactly `limit`"),
        ("> limit", "> .9", "use the limit that it is given"),
        ("    learn.fit(5, cbs=guard)\n", "", "was not fitted"),
        ("learn.fit(5, cbs=guard)", "learn.add_cb(guard)\n    learn.validate()", "only validated"),
    ],
}

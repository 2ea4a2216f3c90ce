"""Typical wrong answers to the exercises of lesson 09, and what their authors should be told."""

mistakes = {
    "09a": [
        ("p.detach().clone()", "p.detach()", "the copy that you kept is `p` itself"),
        ("    opt.step()\n", "", "has not moved"),
        ("    opt.step()\n", "    opt.step()\n    opt.step()\n", "take one step"),
        (" / old.norm()", "", "divide it by the norm"),
        (" / old.norm()", " / p.norm()", "You divide by the norm of `p` after the step"),
        ("(p.detach() - old).norm() / old.norm()", "old.norm() / (p.detach() - old).norm()", "Upside down"),
        ("(p.detach() - old).norm() / old.norm()", "(p.detach().norm() - old.norm()).abs() / old.norm()",
         "subtract the tensors first"),
        ("(p.detach() - old).norm()", "(opt.param_groups[0]['lr'] * p.grad).norm()", "for plain SGD only"),
        ("(p.detach() - old).norm() / old.norm()).item()", "(p.detach() - old).abs() / old.abs())",
         "should be one number"),
        ("    opt.step()\n", "    opt.zero_grad()\n    opt.step()\n", "or removes the gradient first"),
        ("(p.detach() - old).norm() / old.norm()", "(p.detach() - old).abs().mean() / old.abs().mean()",
         "The size of a whole tensor"),
        ("(p.detach() - old).norm() / old.norm()", "((p.detach() - old) / old).norm()", "The size of a whole tensor"),
        ("return (", "(", "Is the `return` missing?"),
        ("(p.detach() - old).norm() / old.norm()", "(p.detach() - old).std() / old.std()",
         "You divide standard deviations"),
        ("((p.detach() - old).norm() / old.norm()).item()", "opt.param_groups[0]['lr'] * p.grad.std() / old.std()",
         "You divide standard deviations"),
        ("((p.detach() - old).norm() / old.norm()).item()", "p", "should be one number"),
        ("/ old.norm()", "/ p.detach().norm()", "You divide by the norm of `p` after the step: use the norm before"),
        ("(p.detach() - old).norm() / old.norm()", "p.grad.norm() / old.norm()",
         "That is the gradient, relative to `p`"),
    ],
    "09b": [
        ("old[name].any()", "old[name].norm() > 1e-3", "where it was not all zeros just before"),
        ("old[name].any()", "not torch.allclose(old[name], torch.zeros(()), atol=1e-4)",
         "where it was not all zeros just before"),
        ("if id(p) in has}", "if p in [q for group in opt.param_groups for q in group['params']]}",
         "`in` and `==` compare tensors element by element"),
        (".clone()", "", "All changes are zero"),
        ("old[name] = p.detach().clone()", "old.setdefault(name, p.detach().clone())",
         "Keep a new copy before each step"),
        ("hl.step_hook(opt, compare): train()", "hl.step_hook(opt, compare): train(); train()", "call `train()` once"),
        (": train()", ": pass", "call `train()` once"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "opt.register_step_pre_hook(remember); opt.register_step_post_hook(compare); train()",
         "a hook stays on the optimizer"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "handles = opt.register_step_pre_hook(remember), opt.register_step_post_hook(compare); train(); "
         "[h.remove() for h in handles]", "when `train()` raises an error, your hooks stay"),
        ("(opt, args, kwargs)", "(opt)", "is called with three arguments"),
        ("ratios[name].append(ratio if old[name].any() else None)", "ratios[name] = ratio",
         "Each value should be a list"),
        ("(p.detach() - old[name]).norm()", "p.grad.norm()", "The numbers are not right"),
        ("return ratios", "return list(ratios.values())", "a dict from name to list"),
        ("    return ratios", "    return {n.split('.')[0]: r for n, r in ratios.items()}", "The names should be"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "remember(opt, (), {}); train(); compare(opt, (), {})", "There were 5 steps"),
        ("/ old[name].norm()", "/ p.norm()", "You divide by the norm after the step"),
        (" / old[name].norm()", "", "divide each by the norm before the step"),
        (" if id(p) in has}", "}", "which the optimizer does not have"),
        ('for group in opt.param_groups for p in group["params"]', 'for p in opt.param_groups[0]["params"]',
         "go through all of `opt.param_groups`"),
        (" if old[name].any() else None", "", "so this entry should be None"),
        ("if old[name].any() else", "if old[name].all() else", "any of its values is not zero"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "with __import__('contextlib').suppress(Exception), hl.step_hook(opt, remember, before=True), "
         "hl.step_hook(opt, compare): train()",
         "your function swallows it"),
        ("ratio if old[name].any() else None", "None", "All changes are zero"),
        ("params = {name: p for name, p in model.named_parameters() if id(p) in has}",
         "params = dict(zip([n for n, p in model.named_parameters() if id(p) in has], [p for g in "
         "opt.param_groups for p in g['params']]))", "under the wrong names"),
        ("    return ratios", "    return dict(zip(ratios, map(list, zip(*ratios.values()))))", "There were 5 steps"),
        ("def all_ratios(model, opt, train):\n    ratios = {name: [] for name, _ in model.named_parameters()}\n"
         "    def look(m, i, o):\n"
         "        for name, p in model.named_parameters(): ratios[name].append((p.grad.norm() / "
         "p.norm()).item())\n    with hl.Hooks(model, look): train()\n    return ratios", "There is no gradient yet"),
        ("def all_ratios(model, opt, train):\n    stats = hl.ActivationStats()\n"
         "    with stats.on(model, optimizer=opt): train()\n"
         "    return dict(zip(stats.updates.names, stats.updates.values().tolist()))",
         "should append to it in every step"),
        ("if id(p) in has", "", "You list `2.bias`, which the optimizer does not have:"),
        ("if old[name].any() else None", "", "`0.bias` is all zeros before the first step, so this entry"),
        ("/ old[name].norm()", "/ p.detach().norm()", "You divide by the norm after the step: divide by the norm"),
    ],
    "09c": [
        ("model.zero_grad()", "model.zero_grad(set_to_none=False)", "a gradient of zeros is a gradient"),
        ("    model.zero_grad()\n", "", "`model.zero_grad()` first"),
        ("    loss().backward()\n", "", "`loss().backward()`"),
        (" if p.requires_grad}", "}", "leave out parameters with"),
        ('for group in opt.param_groups for p in group["params"]', 'for p in opt.param_groups[0]["params"]',
         "parameters can be in several groups"),
        ('for group in opt.param_groups for p in group["params"]', 'for p in opt.param_groups[-1]["params"]',
         "in several groups"),
        ("id(p) not in known or p.grad is None", "p.grad is None", "the optimizer has the old head"),
        ('"gradient" if id(p) in known else "optimizer"', '"gradient"', "but it isn't in the optimizer"),
        ("id(p) not in known or p.grad is None", "id(p) not in known", "It still had old gradients"),
        ("def stuck(model, opt, loss):\n    loss().backward()\n"
         "    known = [p for group in opt.param_groups for p in group['params']]\n"
         "    return {n: 'optimizer' for n, p in model.named_parameters() if p not in known}", "`in` compares tensors"),
        ("p.grad is None", "p.grad.norm() == 0", "is None, not zero"),
        ("loss().backward()", "loss.backward()", "`loss` is a function"),
        ("p.grad is None", "p.grad is None or not p.grad.any()", "all zeros, but not None"),
        ('"gradient" if id(p) in known else "optimizer"', '"gradient" if p.grad is None else "optimizer"',
         "Check that first"),
        ("def stuck(model, opt, loss):\n    model.zero_grad()\n    loss().backward()\n"
         "    known = {id(p) for g in opt.param_groups for p in g['params']}\n"
         "    old = {n: p.detach().clone() for n, p in model.named_parameters()}\n    opt.step()\n"
         "    return {n: 'gradient' if id(p) in known else 'optimizer' for n, p in model.named_parameters()\n"
         "            if p.requires_grad and torch.equal(old[n], p)}", "Your function changes the model"),
        ("if p.requires_grad}", "}", "`frozen` is not meant to be trained: leave out parameters"),
    ],
    "09r": [
        ("A", "what Adam does in a healthy run"),
        ("B", "this rate is too small"),
        ("C", "Its steps grow, up to a tenth"),
        ("E", "A ratio needs no learning rate"),
    ],
}


right = {
    "09b": [
        ("old[name].any()", "old[name].count_nonzero()"),
    ],
}

"""Typical wrong answers to the exercises of lesson 09, and what their authors should be told."""

mistakes = {
    "09a": [
        ("p.detach().clone()", "p.detach()", "`before` is `p` itself"),
        ("    opt.step()\n", "", "has not moved"),
        ("    opt.step()\n", "    opt.step()\n    opt.step()\n", "take one step"),
        (" / before.norm()", "", "divide it by the length"),
        (" / before.norm()", " / p.norm()", "You divide by the length of `p` after the step"),
        ("(p.detach() - before).norm() / before.norm()", "before.norm() / (p.detach() - before).norm()", "Upside down"),
        ("(p.detach() - before).norm() / before.norm()", "(p.detach().norm() - before.norm()).abs() / before.norm()", "subtract the tensors first"),
        ("(p.detach() - before).norm()", "(opt.param_groups[0]['lr'] * p.grad).norm()", "for plain steps only"),
        ("(p.detach() - before).norm() / before.norm()).item()", "(p.detach() - before).abs() / before.abs())", "should be one number"),
        ("    opt.step()\n", "    opt.zero_grad()\n    opt.step()\n", "or removes the gradient first"),
        ("(p.detach() - before).norm() / before.norm()", "(p.detach() - before).abs().mean() / before.abs().mean()", "The size of a whole tensor"),
        ("(p.detach() - before).norm() / before.norm()", "((p.detach() - before) / before).norm()", "The size of a whole tensor"),
        ("return (", "(", "Is the `return` missing?"),
    ],
    "09b": [
        (".clone()", "", "All steps have length zero"),
        ("old[name] = p.detach().clone()", "old.setdefault(name, p.detach().clone())", "from the very beginning"),
        ("hl.step_hook(opt, compare): train()", "hl.step_hook(opt, compare): train(); train()", "call `train()` once"),
        (": train()", ": pass", "call `train()` once"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "opt.register_step_pre_hook(remember); opt.register_step_post_hook(compare); train()", "a hook stays on the optimizer"),
        ("(opt, args, kwargs)", "(opt)", "is called with three arguments"),
        ("ratios[name].append(((p.detach() - old[name]).norm() / old[name].norm()).item())",
         "ratios[name] = ((p.detach() - old[name]).norm() / old[name].norm()).item()", "Each value should be a list"),
        ("p.detach() - old[name]", "p.grad", "The numbers are not right"),
        ("return ratios", "return list(ratios.values())", "a dict from name to list"),
        ("    return ratios", "    return {n.split('.')[0]: r for n, r in ratios.items()}", "The names should be"),
        ("with hl.step_hook(opt, remember, before=True), hl.step_hook(opt, compare): train()",
         "remember(opt, (), {}); train(); compare(opt, (), {})", "There were 4 steps"),
        ("/ old[name].norm()", "/ p.norm()", "You divide by the length after the step"),
        ("    return ratios", "    return dict(zip(ratios, map(list, zip(*ratios.values()))))", "Swap them"),
        ("def all_ratios(model, opt, train):\n    ratios = {name: [] for name, _ in model.named_parameters()}\n    def look(m, i, o):\n"
         "        for name, p in model.named_parameters(): ratios[name].append((p.grad.norm() / p.norm()).item())\n"
         "    with hl.Hooks(model, look): train()\n    return ratios", "There is no gradient yet"),
        ("def all_ratios(model, opt, train):\n    stats = hl.ActivationStats()\n    with stats.on(model, optimizer=opt): train()\n"
         "    return dict(zip(stats.updates.names, stats.updates.values().tolist()))", "should append to it in every step"),
    ],
    "09c": [
        ("    model.zero_grad()\n", "", "`model.zero_grad()` first"),
        ("    loss().backward()\n", "", "`loss().backward()`"),
        (" if p.requires_grad}", "}", "leave out parameters with"),
        ("for group in opt.param_groups for p in group[\"params\"]", "for p in opt.param_groups[0][\"params\"]", "It should be"),
        ("for group in opt.param_groups for p in group[\"params\"]", "for p in opt.param_groups[-1][\"params\"]", "in several groups"),
        ("id(p) not in known or p.grad is None", "p.grad is None", "the optimizer has the old head"),
        ("\"gradient\" if id(p) in known else \"optimizer\"", "\"gradient\"", "what it lacks is the optimizer"),
        ("id(p) not in known or p.grad is None", "id(p) not in known", "It still had old gradients"),
        ("def stuck(model, opt, loss):\n    loss().backward()\n    known = [p for group in opt.param_groups for p in group['params']]\n"
         "    return {n: 'optimizer' for n, p in model.named_parameters() if p not in known}", "`in` compares tensors"),
        ("p.grad is None", "p.grad.norm() == 0", "is None, not zero"),
        ("loss().backward()", "loss.backward()", "`loss` is a function"),
    ],
}

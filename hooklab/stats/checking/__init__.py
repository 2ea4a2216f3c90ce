"""Checks model, loss, data and optimizer on two batches before a run (`preflight`).

    checklist  two batches before a run, and what they say about model, loss, data and optimizer
    result     findings with advice, what is fine, and what was not looked at
    checks     how a check is entered, with all that is known about it
    batch      which part of a batch is what, and where its samples are
    trial      one batch through the model, with a change here or there; then everything as it was
    data       inputs and targets, and batch norm
    loss       the first loss, and what the loss is given
    probes     is the input used, and every label? Do samples stay apart, is a mask obeyed?
    training   which parameters get a gradient, and which the optimizer has
    by_heart   does a model learn 16 samples with its optimizer?
"""

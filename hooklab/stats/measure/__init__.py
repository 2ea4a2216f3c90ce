"""Measures a run while it trains: layers, optimizer and loop, at almost no cost.

    session          all that is on one model while it is recorded, and what is measured in which step
    meter_groups     the hooks that measure, and where the numbers of a step come together
    turns            what is measured, and in which steps; hooks that are off for a while
    stacks           small outputs measured together at the end of a step, and large ones where they are
    quick_batch      small outputs of several steps, measured together on a CPU
    samples          a few numbers of each output, by sample and by unit
    updates          how far each step moves each parameter
    gradient_norms   how long gradients are, after the backward pass and at the optimizer step
    own_hook         statistics of your own
    resuming         the part of a run that is recorded already, to go on with
    until_removed    recording that ends with its block, with `remove()`, or with Ctrl-C
    step_end         the steps of an optimizer, and where a step of the loop ends by itself
    loop_watch       what happens in a training loop, noted while it runs
    step_watch       what the gradients are when the optimizer makes its step
    run_facts        layers and their settings, the optimizer's parameters, what goes into the model
    loss_kind        which loss is used, recognized from an output and its gradient
    attention_meter  works out the numbers of heads beside each call
"""

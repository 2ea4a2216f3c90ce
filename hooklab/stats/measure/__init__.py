"""Measure a run while it trains: layers, optimizer and loop, at almost no cost.

    session               everything attached to a model while it is recorded, and what is measured in which step
    meter_groups          the hooks that measure, and the tables that collect the numbers of a step
    measuring             how one tensor is measured, all of it or a sample
    measured_steps        what is measured, and in which steps; hooks that are off for a while
    stacked_outputs       small outputs measured together at the end of a step, and large ones where they are
    cpu_batches           small outputs of several steps, measured together on a CPU
    sampled_numbers       a few numbers of each output, by sample and by unit
    updates               how far each step moves each parameter
    gradient_norms        how long gradients are, before they are clipped and at the optimizer step
    own_hook              records what your own hook returns
    resuming              continues the record of a run that is resumed
    running               which records of a model go on at this moment, and how they end
    step_end              optimizer steps, and where a step of the loop ends automatically
    loop_watch            the events of a training loop, recorded while it runs
    step_watch            the gradients at the time of an optimizer step
    backward_passes       the backward passes that are in the gradients of a step
    other_optimizers      optimizers that nobody gave, and those of a record that is begun again
    schedules_and_copies  the schedules and the copies of the model that a loop holds
    run_facts             layers and their settings, the optimizer's parameters, the inputs of the model
    loss_kind             which loss is used, recognized from an output and its gradient
    attention_meter       computes the numbers of heads alongside each call
"""

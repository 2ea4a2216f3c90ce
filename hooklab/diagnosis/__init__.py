"""Find what is wrong with a recorded run: evidence, faults, findings, causes first.

    diagnosing            `diagnose`: what the statistics say, how certain that is, and what follows from what
    result                what a diagnosis returns: findings, causes before consequences
    verdict               what several tools found, in one order
    evidence              the numbers that a diagnosis looks at, and its limits
    loss_curve            how the loss went, beside that of a guess
    data_faults           inputs and targets that are not scaled or all the same, samples that come out alike
    loop_faults           mistakes of the loop, the parameters of the optimizer, layers that take no part
    loss_faults           the wrong sign, an extra activation, a loss that stays or rises, NaN and Inf
    layer_faults          layers that let nothing through, numbers that shrink or grow with depth
    schedule_faults       schedules that never move or end too soon, optimizers made anew
    copy_faults           modes, and copies of the model
    special_layer_faults  dropout, batch norm, attention
    step_faults           steps that are too long or too short, and what else moves the parameters
    sarif                 a diagnosis in the format of code scanning and other programs
"""

"""What was recorded of a run: tables of numbers, and ways to read, draw, merge and save them.

    recorded           what was recorded: to look at, merge and save
    reading            the file of a record, and the checks that it has to pass
    history            one kind of numbers, as series, tensors and rows
    plots              the pictures of a run
    over_time          pictures with one line or one row for each layer
    statistics         the table of all that is recorded of a layer
    moments            the numbers of one tensor, in few passes over it
    run_log            what the loop did in each step: loss, rate, mode, and the optimizer's steps
    norm_table         the gradient norm of each parameter in one step
    spikes             steps in which the loss or the gradient norm jumps
    attention_history  the numbers of heads for each step: to read, to draw, to save
    together           whose numbers a record has, and how those of all processes become one
"""

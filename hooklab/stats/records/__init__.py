"""What was recorded of a run: tables of numbers, and ways to read, draw, merge and save them.

    recorded           what was recorded: to look at, merge and save
    facts              what is known of a run apart from these numbers, by name and type
    reading            the file of a record, and the checks that it has to pass
    other_tools        what preflight said of the model of a record, and find_nan in its run
    history            one kind of numbers, as series, tensors and rows
    series             numbers over the steps of a run: from when on they are so, and which layers they are of
    plots              the plots of a run
    over_time          plots with one line or one row for each layer
    statistics         the table of all statistics of a layer
    moments            the numbers of one tensor, in few passes over it
    run_log            what the loop did in each step: loss, learning rate, mode, and optimizer steps
    doubts             which numbers are estimates, and how far they may be off
    norm_table         the gradient norm of each parameter in one step
    spikes             steps in which the loss or the gradient norm jumps
    loss_history       how hard each loss pulled at each layer
    attention_history  the numbers of attention heads for each step
    together           which process recorded the numbers, and how the records of all processes are merged
"""

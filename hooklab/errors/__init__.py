"""Errors of a model, explained: `hl.explain_errors`.

The map; a room imports only from those above it:

    explanation    the layer, the kind, the repairs, as text and for programs
    scene          which layers an error has ended, what they were given, and what the model returned before
    walk           the forward pass once more, up to the error: which layer or function made each tensor
    sizes          which sizes a layer has; a layer as the call of its constructor, and made anew with other arguments
    repairs        one change of a layer, an input or a line of code, tried in a run that leaves nothing behind
    candidates     changes of the layer that failed, and of those before it
    inputs         changes of what the model, or a function, is given
    sequences      masks, and batches that come first or second
    operations     changes where two tensors meet: additions, products, positions
    input_sizes    inputs in other sizes: those that ran and have to run with a repair, and the next multiple
    devices        tensors on two devices, and moves
    loss_calls     a call of a loss that failed, what it wants, and other calls of it
    reasons        errors whose reason can be told: indices, batches of one, and those of the backward pass
    loss_errors    errors of a loss: what it got and from which layer, and the call that runs
    investigating  runs the model up to its error, and tries the changes
    explaining     puts an explanation into a note on the error
"""

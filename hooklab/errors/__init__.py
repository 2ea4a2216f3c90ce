"""Errors of a model, explained: `hl.explain_errors`.

The map; a room imports only from those above it:

    explanation    the layer, the kind, the repairs, as text and for programs
    scene          which layers an error has ended, and what they were given, from its traceback
    walk           the forward pass once more, up to the error: which layer or function made each tensor
    sizes          which sizes a layer has, and the same layer with another one
    repairs        one change of a layer, an input or a line of code, tried in a run that leaves nothing behind
    candidates     changes of the layer that failed, and of those before it
    inputs         changes of what the model, or a function, is given
    operations     changes where two tensors meet: additions, products, attention, positions
    reasons        errors without a repair: devices, indices, batches of one, and those of the backward pass
    investigating  runs the model up to its error, and tries the changes
    explaining     puts an explanation into a note on the error
"""

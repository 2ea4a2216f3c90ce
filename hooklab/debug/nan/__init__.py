"""Find the layer that made the first NaN or Inf of a run: `hl.find_nan`.

The map; a room imports only from those above it:

    numbers      the minimum and maximum of a tensor, and what a closer look shows
    blame        which call made a NaN, and which only passed it on: `hl.NonFiniteError`
    backward     what is collected in a backward pass, and in one through an earlier one
    processes    which of several processes made it, and how they inform each other
    second_look  which function inside the guilty layer made it, and from what
    watch        follows the calls of a model, and reports what was found
"""

"""Checkpoints: were my weights loaded, and what changed between two (`match_weights`, `compare`)?

The map; a room imports only from those above it:

    tensor_names   what is the same in the names of two code bases
    reading        the tensors of a file, a folder or a nested checkpoint, read when they are needed
    matching       which tensor is which, and how sure that is
    found_weights  `match_weights`: the steps, the state dict and what is left over
"""

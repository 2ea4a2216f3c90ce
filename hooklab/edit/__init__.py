"""Change the inputs or output of a layer, and clip gradients, for the duration of a `with` block."""

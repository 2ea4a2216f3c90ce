"""The first NaN or Inf of a run, and who made it."""

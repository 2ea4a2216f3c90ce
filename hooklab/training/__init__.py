"""A small training loop with callbacks, and the data that lessons and tests use."""

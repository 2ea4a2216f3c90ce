"""The engine: attaches hooks to a model and removes them. Only this package calls torch's register functions."""

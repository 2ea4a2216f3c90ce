"""The engine: puts something of ours on a model, and takes it off again. It alone calls torch's register functions."""

"""Learn PyTorch hooks by experiment, and use them in real work: `import hooklab as hl`."""
__version__ = "0.1.0"


# Names are looked up when they are used: `hooklab --help` does not wait for torch, nor a script that wants one module.
def __getattr__(name):
    from importlib import import_module
    everything = import_module("hooklab.all")
    if not hasattr(everything, name): raise AttributeError(f"hooklab has no {name!r}")
    return getattr(everything, name)


def __dir__():
    from importlib import import_module
    return [name for name in dir(import_module("hooklab.all")) if not name.startswith("_")]

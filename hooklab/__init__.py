"""Learn PyTorch hooks by experiment, and use them in real work: `import hooklab as hl`."""
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING: from .all import *  # what type checkers and editors know
else:
    # Names are looked up when they are used: `hooklab --help` does not wait for torch, nor a script that wants one module.
    # A type checker must not see this, or it would take any name for right.
    def __getattr__(name):
        from importlib import import_module
        everything = import_module("hooklab.all")
        if name not in everything.__all__ and name != "__all__": raise AttributeError(f"hooklab has no {name!r}")
        return getattr(everything, name)

    def __dir__():
        from importlib import import_module
        return import_module("hooklab.all").__all__

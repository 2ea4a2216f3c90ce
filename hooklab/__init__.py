"""Learn PyTorch hooks by experiment, and use them in real work: `import hooklab as hl`.

The map, from the ground floor up; a wing imports only from lower floors:

    hooks        the engine: puts hooks on a model, and takes them off again
    drawing      axes, labels and images that several wings use
    errors       `explain_errors`: the errors a model raises, with the layer, the sizes, and a fix that was tried
    findings     what preflight and diagnose share: rules, findings, and how sure a finding may sound
    edit         changes inputs, outputs and gradients
    features     layer outputs as features: of one batch, or of a data set and stored in files
    data_sets    what a batch consists of, and what is odd about a data set
    debug        follows a pass call by call; `find_nan`, and `compare` of two models
    profiling    what a model consists of and what it costs
    training     a small training loop with callbacks, and data
    checkpoints  whether a checkpoint's weights were loaded, and whether a resumed run is the same run
    stats        records training runs, draws them, and compares two records
    diagnosis    `diagnose`: says what is wrong with a recorded run
    checking     `preflight`: checks a setup on two batches before a run
    exercises    checks of the lessons' exercises
    cli          the command `hooklab`
    fastai       exactly the names of fastai.callback.hook
    all          the list of public names
"""
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING: from .all import *  # what type checkers and editors know
else:
    # Names are looked up when they are used, so `hooklab --help` does not wait for torch, nor does a script that wants
    # one module. Type checkers must not see this function: to them, any name would be right.
    def __getattr__(name):
        from importlib import import_module
        everything = import_module("hooklab.all")
        if name not in everything.__all__ and name != "__all__": raise AttributeError(f"hooklab has no {name!r}")
        found = getattr(everything, name)
        globals()[name] = found  # from now on it is there, and nothing is looked up
        return found

    def __dir__():
        from importlib import import_module
        return import_module("hooklab.all").__all__

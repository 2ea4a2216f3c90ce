"""The exercises of the lessons: `from hooklab.exercises import check, lesson_style`."""
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checking import check, solution
    from .figures import lesson_style
    from .patients import patient
    from .progress import guess, how_far

__all__ = ["check", "guess", "how_far", "lesson_style", "patient", "solution"]


def __getattr__(name: str):  # so that `hooklab lessons`, which needs neither, does not wait for torch
    where = {"check": ".checking", "guess": ".progress", "how_far": ".progress", "lesson_style": ".figures",
             "patient": ".patients", "solution": ".checking"}
    if name not in where: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(where[name], __name__), name)

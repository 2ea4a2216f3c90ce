"""The exercises of the lessons: `from hooklab.exercises import check, lesson_style`."""
from ..drawing import lesson_style
from .checking import check

__all__ = ["check", "lesson_style"]

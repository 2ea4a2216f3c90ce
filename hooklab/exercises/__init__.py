"""The exercises of the lessons: `from hooklab.exercises import check, lesson_style`."""
from .checking import check, lesson_style

__all__ = ["check", "lesson_style"]

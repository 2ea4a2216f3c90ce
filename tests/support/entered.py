"What a call enters of a library: its files, its functions, and how often it moves from one file to another."
import sys
from collections.abc import Callable
from pathlib import Path


def entered(use: Callable, library: Path) -> dict:
    """The files of the folder `library` that a call of `use` enters, the number of functions, and the moves.

    Functions are code objects, so that a lambda or a comprehension is one too. Moves are how often the library's file
    changes on the way from `use` to the innermost function, in the stack of calls where it changes most often."""
    top, codes, moves = f"{library}/", set(), 0

    def look(frame, event, arg):
        nonlocal moves
        if event != "call" or not frame.f_code.co_filename.startswith(top): return
        codes.add(frame.f_code)
        files = []
        while frame:
            file = frame.f_code.co_filename
            if file.startswith(top) and files[-1:] != [file]: files.append(file)
            frame = frame.f_back
        moves = max(moves, len(files) - 1)

    sys.setprofile(look)
    try: use()
    finally: sys.setprofile(None)
    files = sorted({code.co_filename.removeprefix(top) for code in codes})
    return {"files": files, "functions": len(codes), "moves": moves}

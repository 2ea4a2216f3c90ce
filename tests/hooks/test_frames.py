"Which functions are outside of the one that asks, and which of them are the user's."
import gc
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from hooklab.hooks import frames
from hooklab.hooks.frames import calls_outside, frames_outside, own_frame, quoted_line, user_frame


def in_file(name: str, code: str, **given):
    "Run code as if it were in this file."
    exec(compile(code, name, "exec"), given)  # noqa: S102
    return given


def names(found): return [frame.f_code.co_name for frame in found]


def test_the_function_that_asks_is_not_outside_of_itself():
    def asks(level): return names(frames_outside(level))[:2]
    def outer(level): return asks(level)
    assert asks(0)[0] == outer(1)[0] == "test_the_function_that_asks_is_not_outside_of_itself"
    assert outer(0) == ["outer", "test_the_function_that_asks_is_not_outside_of_itself"]


def test_the_outermost_frame_has_nothing_outside():
    found = {}
    def asks(): found["names"] = names(frames_outside())
    thread = threading.Thread(target=asks)
    thread.start()
    thread.join()
    assert found["names"][-1] == "_bootstrap"


def test_calls_of_some_functions():
    def asks(): return [frame.f_locals["n"] for frame in calls_outside(down.__code__)]
    def down(n): return down(n - 1) if n else asks()
    assert down(3) == [0, 1, 2, 3] and asks() == []


@pytest.mark.parametrize("file, whose", [
    (f"{Path(torch.__file__).parent}/nn/some.py", ""),
    (f"{Path(sys.modules['hooklab'].__file__).parent}/some.py", ""),
    ("/usr/lib/python3/dist-packages/other/some.py", "installed"),
    (f"{Path(torch.__file__).parents[1]}/torchlike/some.py", "installed"),
    ("/projects/hooklab_project/train.py", "user"),
    ("<string>", "user")])
def test_whose_code_it_is(file, whose):
    def asks(): return user_frame(), own_frame()
    found, own = in_file(file, "def there(f): return f()")["there"](asks)
    own_name = Path(__file__).name
    if whose: assert found.f_code.co_filename == file and (own is found) == (whose == "user")
    else: assert Path(found.f_code.co_filename).name == own_name and own is found


def test_nothing_but_torch_and_hooklab_is_nobodys(monkeypatch):
    def asks(): return user_frame(), own_frame()
    monkeypatch.setattr(frames, "NOT_THE_USERS", "")  # each file begins with it
    assert asks() == (None, None)


def test_a_line_is_quoted_from_inside_torch():
    class Lines(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.nn.functional.softplus: lines.append(asked())
            return func(*args, **(kwargs or {}))
    def asked():
        frame = user_frame()
        return quoted_line(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
    lines = []
    with Lines(): torch.nn.Softplus()(torch.ones(2))
    assert lines == ["`if func is torch.nn.functional.softplus: lines.append(asked())`"]


def test_a_long_line_is_cut_and_a_line_of_no_file_is_empty(tmp_path):
    file = tmp_path/"long.py"
    file.write_text("x = 1\ny = " + "1 + "*40 + "1\n")
    assert quoted_line(str(file), 1) == "`x = 1`" and quoted_line(str(file), 3) == quoted_line("<input>", 1) == ""
    long = quoted_line(str(file), 2)
    assert len(long) == 82 and long.endswith("…`")


def test_who_asks_holds_nothing_afterwards():
    class Held: pass
    def asks(): return next(frames_outside()).f_code.co_name, any(calls_outside(holds.__code__))
    def holds():
        held = Held()
        refs.append(weakref.ref(held))
        return asks()
    refs = []
    gc.disable()
    try:
        assert holds() == ("holds", True) and refs[0]() is None
    finally: gc.enable()

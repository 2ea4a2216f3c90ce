"""Runs notebooks, each in a process of its own that starts with torch, matplotlib, nbdev's test and hooklab imported.

Importing them takes seconds, and a notebook often less than one. So a server imports them once, on one thread, and
forks for each notebook. It imports the hooklab of the first tree that it is given; the notebook of another tree imports
its own."""
import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import local


class Runner:
    "A server that runs one notebook at a time, started by the first notebook."
    def __init__(self):
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True, env=os.environ | one_thread, start_new_session=True)
        atexit.register(self.close)

    def run(self, tree: Path, notebook: Path, timeout: float) -> tuple[bool | None, str]:
        "Run a notebook and save its outputs: whether it succeeded (None: not within the time), and what it said."
        self.server.stdin.write(json.dumps([str(Path(tree).resolve()), str(notebook), timeout]) + "\n")
        self.server.stdin.flush()
        answer = self.server.stdout.readline()
        if not answer: raise RuntimeError("the process that runs notebooks has ended (tests/support/runner.py)")
        return tuple(json.loads(answer))

    def close(self):
        "End the server, which ends when there is nothing more to read."
        self.server.stdin.close()
        self.server.wait()


_of_this_thread = local()


def run_notebook(tree: Path, notebook: Path, timeout: float = 900) -> tuple[bool | None, str]:
    "Run a notebook with the server of this thread. See `Runner.run`."
    if not hasattr(_of_this_thread, "runner"): _of_this_thread.runner = Runner()
    return _of_this_thread.runner.run(tree, notebook, timeout)


# ---- the server

def import_what_notebooks_need():
    "What most notebooks import, without hooklab. The first step of an optimizer imports torch._dynamo."
    import matplotlib.pyplot  # noqa: F401
    import nbdev.test  # noqa: F401
    import torch
    for optional in ("torchvision", "sklearn.datasets", "torch._dynamo"):
        with contextlib.suppress(ImportError): __import__(optional)
    torch.set_num_threads(1)
    if found := ours(): sys.exit(f"the server has imported {found[0]}, and not that of the tree under test")


def ours(): return [name for name in sys.modules if name.partition(".")[0] == "hooklab"]


def forget_hooklab():
    for name in ours(): del sys.modules[name]


def import_hooklab(tree: str):
    "Import all of the hooklab of a tree, unless it is too broken for that: then its notebooks will say so."
    path = [*sys.path]
    sys.path.insert(0, tree)
    try: importlib.import_module("hooklab.all")
    except Exception: forget_hooklab()
    sys.path[:] = path


def serve(answers):
    "Reads what to run, a line of JSON for each notebook, and answers with a line for each."
    import_what_notebooks_need()
    imported = None
    for line in sys.stdin:
        tree, notebook, timeout = json.loads(line)
        if imported is None:
            import_hooklab(imported := tree)
            gc.freeze()  # what is imported is no garbage, so no fork has to look through it
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if not child: work(tree, notebook, said, is_imported=tree == imported)
            succeeded = wait(child, timeout)
            said.seek(0)
            print(json.dumps([succeeded, said.read().decode(errors="replace")]), file=answers, flush=True)
    gc.unfreeze()  # else some libraries speak of leaks at the end


def work(tree, notebook, said, is_imported):
    "What the fork does: all that `nbdev-test NOTEBOOK --save` does at the top of the tree. It does not return."
    code = 1
    try:
        os.setsid()
        for stream in (1, 2): os.dup2(said.fileno(), stream)
        with open(os.devnull) as nothing: os.dup2(nothing.fileno(), 0)
        os.chdir(tree)
        if not is_imported: forget_hooklab()
        os.environ["PYTHONPATH"] = tree
        commands = str(Path(sys.executable).parent)  # those of this environment come first, as where it is active
        os.environ["PATH"] = f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        sys.path[:] = [tree, *(path for path in sys.path if path != str(Path(__file__).parent))]
        sys.argv[:] = ["nbdev-test", notebook, "--save"]
        from nbdev.test import nbdev_test
        nbdev_test(notebook, save=True, n_workers=0)
        code = 0
    except SystemExit as end: code = 1 if end.code else 0
    except BaseException:
        import traceback
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, timeout: float) -> bool | None:
    "Whether a child ends well; None when its time ran out. What it started ends with it."
    end, status = time.monotonic() + timeout, None
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid: break
        time.sleep(0.02)
    else: status = None
    with contextlib.suppress(ProcessLookupError): os.killpg(child, signal.SIGKILL)
    if status is None: os.waitpid(child, 0)
    return None if status is None else status == 0


if __name__ == "__main__":
    # Answers go where nothing else is written: what an import prints must not be taken for one.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(answers)

"A program in a process of its own that is forked from this one, since importing torch again takes seconds."
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable


def forked(main: Callable, *argv: str, cwd=None, env=None, timeout: int = 120) -> subprocess.CompletedProcess:
    "What a process says that calls `main` with `sys.argv` as given, and how it ends."
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child: _work(main, argv, cwd, env, out, err, timeout)
        _, status = os.waitpid(child, 0)
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
    return subprocess.CompletedProcess(argv, os.waitstatus_to_exitcode(status), *said)


def forked_without(package: str, main: Callable, **kwargs) -> subprocess.CompletedProcess:
    "The same in a process that has not imported a package and cannot import it."
    def work():
        for name in [name for name in sys.modules if name.partition(".")[0] == package]: del sys.modules[name]
        sys.modules[package] = None
        main()
    return forked(work, package, **kwargs)


def _work(main, argv, cwd, env, out, err, timeout):
    "What the fork does. It does not return."
    import signal
    import traceback
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(timeout)
        for stream, number in ((out, 1), (err, 2)): os.dup2(stream.fileno(), number)
        if env is not None: os.environ.clear() or os.environ.update({**env})
        if cwd: os.chdir(cwd)
        encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding=encoding, closefd=False) for number in (1, 2))
        sys.argv[:] = argv
        main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str): print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException: traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr): stream.flush()
        os._exit(code)

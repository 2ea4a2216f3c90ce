"""Runs a command on a machine that is busy, to see whether a test depends on timing.

    python tests/support/busy.py COMMAND …        while eight processes compute
    python tests/support/busy.py -n 3 COMMAND …   while three do

The processes end with the command, also on Ctrl-C, and the exit status is the command's (as in a shell, 128 and the
number of the signal where one has ended it, and 127 where there is no such command)."""
import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends by itself when the script is gone, however that has ended: nobody holds the other end of its stdin then.
COMPUTE = """import sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
while True: pass"""
COMMAND = [sys.executable, "-c", COMPUTE]


@contextmanager
def load(n: int) -> Iterator[list[subprocess.Popen]]:
    "`n` processes that compute until the block ends."
    processes = []
    try:
        for _ in range(n): processes.append(subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True))
        yield processes
    finally:
        for process in processes: process.kill()
        for process in processes: process.wait()


def run(command: list[str]) -> int:
    """The exit status of a command, as a shell gives it. Ctrl-C reaches the command as well, and we wait for its end.

    It must raise nothing here: between the end of the command and the return of `wait`, that would lose the status."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    try: status = subprocess.Popen(command).wait()
    except OSError as error:
        print(f"busy.py: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    finally: signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a command while other processes keep the machine busy.")
    parser.add_argument("-n", type=int, default=8, help="how many processes; else eight")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run, with its arguments")
    args = parser.parse_args(argv)
    if not args.command: parser.error("give a command to run")
    with load(args.n): return run(args.command)


if __name__ == "__main__": sys.exit(main())

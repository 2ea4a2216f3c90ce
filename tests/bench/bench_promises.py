"""The tests of promises that are kept case by case: how many cases there are, and how many of them fail.

All cases run, also those of sweeps, of which `make test-all` runs a sample."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

TESTS = {"the model is left as it was": ["tests/hooks/test_undisturbed.py"],
         "names are text": ["tests/project/test_names.py"],
         "a resumed run has the record of one that was not interrupted": ["tests/stats/test_autosave.py"]}


def outcome(paths: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder)/"found.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"--junitxml={found}"]
        ran = subprocess.run([*command, *paths], env=os.environ | {"SEED": "all"}, capture_output=True, text=True)
        suite = ElementTree.parse(found).getroot().find("testsuite")
    n = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = n["failures"] + n["errors"]
    if failed: print(ran.stdout)
    return {"tests": paths[0], "cases": n["tests"] - n["skipped"], "failed": failed, "not tried here": n["skipped"]}


def measure():
    return {"promises, all cases of their tests": [{"promise": name} | outcome(paths) for name, paths in TESTS.items()]}

"""tools/venv.sh: which Python it takes, when it installs, and what it says when it cannot."""
import os
import re
import shutil
import subprocess
import sys

import pytest

TOOLS = "sh cat cksum dirname env make mkdir ln rm sed tr uname".split()

# Stands in for uv: makes a .venv that is a link to this Python, and notes what it was to install.
UV = f"""#!/bin/sh
if [ "$1" = venv ]; then mkdir -p .venv/bin && ln -s "{sys.executable}" .venv/bin/python
else echo "$*" >> asked; [ -z "$NO_NETWORK" ]; fi
"""


@pytest.fixture
def tree(repo, tmp_path):
    "What tools/venv.sh needs of the project, and a PATH on which there is no Python."
    tree = tmp_path/"a tree"
    (tree/"tools").mkdir(parents=True)
    for name in ("tools/venv.sh", "Makefile", "settings.ini", "setup.py", "pyproject.toml"): shutil.copy(repo/name, tree/name)
    (tmp_path/"bin").mkdir()
    for name in TOOLS: (tmp_path/"bin"/name).symlink_to(shutil.which(name))
    return tree


def put(tree, name, script):
    path = tree.parent/"bin"/name
    path.write_text(script)
    path.chmod(0o755)


def call(tree, *args, **env):
    env = {"PATH": str(tree.parent/"bin"), "HOME": os.environ["HOME"], **env}
    return subprocess.run(args or ["tools/venv.sh", "site"], cwd=tree, env=env, capture_output=True, text=True)


def asked(tree):
    "What was asked to be installed since the last look."
    notes = tree/"asked"
    lines = notes.read_text().splitlines() if notes.exists() else []
    notes.unlink(missing_ok=True)
    return lines


@pytest.fixture
def ready(tree):
    "The same tree with a Python and a stand-in for uv, and .venv made."
    put(tree, "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    put(tree, "uv", UV)
    done = call(tree)
    assert done.returncode == 0, done.stderr
    assert len(asked(tree)) == 1
    return tree


def refusal(done):
    assert done.returncode, "it went on"
    message, *more = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert not more, f"more than one line: {done.stderr}"
    return message


def test_no_python(tree):
    message = refusal(call(tree, "make", "site"))
    assert "none was found" in message and "Install one: " in message


def test_old_python(tree):
    put(tree, "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    settings = tree/"settings.ini"
    settings.write_text(settings.read_text().replace("min_python = ", "min_python = 9"))
    message = refusal(call(tree, "make", "site"))
    assert "needs Python 9" in message and f"python3 is Python {sys.version_info[0]}.{sys.version_info[1]}" in message


def test_python_that_only_exists(tree):
    put(tree, "python3.13", "#!/bin/sh\nexit 127\n")
    assert "python3.13 does not run" in refusal(call(tree))
    put(tree, "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    put(tree, "uv", UV)
    assert call(tree).returncode == 0, "it should have gone on to the next one"


def test_python_by_name(ready):
    assert "PYTHON=/no/python does not run" in refusal(call(ready, PYTHON="/no/python"))
    assert call(ready, PYTHON=sys.executable).returncode == 0


def test_installs_once_and_again_when_the_facts_change(ready):
    assert call(ready).returncode == 0 and not asked(ready)
    with open(ready/"settings.ini", "a") as settings: settings.write("# changed\n")
    call(ready)
    assert len(asked(ready)) == 1
    call(ready)
    assert not asked(ready)


def test_a_larger_level_includes_the_smaller(ready):
    call(ready, "tools/venv.sh", "dev")
    assert "[dev]" in asked(ready)[0]
    for level in ("site", "dev"): call(ready, "tools/venv.sh", level)
    assert not asked(ready)
    call(ready, "tools/venv.sh", "lessons")
    assert "[lessons]" in asked(ready)[0]


def test_a_failed_install_is_not_taken_for_done(ready):
    assert "run the same command again" in refusal(call(ready, "tools/venv.sh", "dev", NO_NETWORK="1"))
    assert len(asked(ready)) == 1
    assert call(ready, "tools/venv.sh", "dev").returncode == 0 and len(asked(ready)) == 1


@pytest.mark.parametrize("harm", ["moved", "broken", "foreign"])
def test_a_venv_that_is_of_no_use_is_made_anew(ready, harm):
    if harm == "moved": ready = ready.rename(ready.with_name("elsewhere"))
    if harm == "broken": (ready/".venv/bin/python").unlink()
    if harm == "foreign": (ready/".venv/made-for").unlink()
    assert "Making .venv" in call(ready).stdout
    assert len(asked(ready)) == 1


def test_oldest_torch_is_that_of_the_settings(ready, repo):
    oldest = next(line.split("torch>=")[1] for line in (repo/"settings.ini").read_text().splitlines() if "torch>=" in line)
    done = call(ready, TORCH="oldest")
    assert "Making .venv" in done.stdout and asked(ready)[0].endswith(f"torch=={oldest}")


@pytest.mark.parametrize("said, wanted", [("2.12", "torch==2.12.*"), ("2.12.1", "torch==2.12.1"), ("newest", None), ("", None)])
def test_torch_by_release(ready, said, wanted):
    "A release is its newest patch, a patch is itself, and the newest is what `make` takes anyway."
    done = call(ready, TORCH=said)
    assert done.returncode == 0, done.stderr
    assert ("Making .venv" in done.stdout) == (wanted is not None)
    if wanted: assert asked(ready)[0].split()[-1] == wanted
    else: assert not asked(ready)
    assert call(ready, TORCH=said).returncode == 0 and not asked(ready), "it was there already"


def test_another_release_makes_another_venv(ready):
    for said in ("2.12", "2.13", "2.13.0", "newest"):
        assert "Making .venv" in call(ready, TORCH=said).stdout and len(asked(ready)) == 1, said


@pytest.mark.parametrize("said", ["foo", "2", "v2.12", "2.12.", "2.12.*", ">=2.12", "oldest newest", "2.12.1.1", "../2.12"])
def test_torch_that_is_no_release(ready, said):
    message = refusal(call(ready, "make", "test", TORCH=said))
    assert message == (f"TORCH={said} is not a release of torch. Write one (TORCH=2.12), a patch of one (TORCH=2.12.1), "
                       "TORCH=oldest or TORCH=newest")
    assert (ready/".venv").exists() and not asked(ready), "it should touch nothing"


def test_the_workflow_tries_oldest_middle_and_newest(ready, repo):
    text = (repo/".github/workflows/tests.yml").read_text(encoding="utf-8")
    everywhere, = re.findall(r"^ +torch: \[(.+)\]", text, re.M)
    more = re.findall(r"torch: \"?([\w.]+)\"?}", text)
    assert everywhere == "newest" and more[0] == "oldest" and len(more) == 2
    minor = []
    for said in more:
        assert call(ready, TORCH=said).returncode == 0
        minor.append(int(re.search(r"torch==2\.(\d+)", asked(ready)[-1])[1]))
    assert minor[0] < minor[1]

#!/bin/sh
# tools/venv.sh LEVEL: sees to it that .venv holds what LEVEL needs (an extra of settings.ini: site, dev, bench, lessons).
# It does nothing when that is so already. Two variables are heeded:
#   PYTHON  the Python to make .venv with; else the newest one found
#   TORCH   a release of torch to hold to: TORCH=2.12 is its newest patch, TORCH=2.12.1 this one, TORCH=oldest the oldest
#           that settings.ini promises, TORCH=newest what pip takes by itself
set -eu
cd "$(dirname "$0")/.."
level=$1

fail() { echo "$1" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

min=$(sed -n 's/^min_python *= *//p' settings.ini)
torch=${TORCH:-newest}
case $(echo "$torch" | sed 's/[0-9][0-9]*/N/g') in
    newest) torch="" ;;
    oldest) torch=$(sed -n 's/.*torch>=\([0-9.]*\).*/\1/p' settings.ini) ;;
    N.N)    torch="$torch.*" ;;
    N.N.N)  ;;
    *) fail "TORCH=$torch is not a release of torch. Write one (TORCH=2.12), a patch of one (TORCH=2.12.1), TORCH=oldest or TORCH=newest" ;;
esac

# Says in a few words why a Python will not do, and nothing when it will. It must be run: a shim of pyenv may only exist.
# Debian's Python comes without the part that makes a venv; uv does not need it.
objection() {
    has uv && makes_venv=sys || makes_venv=ensurepip
    "$1" -c "
import sys
if sys.version_info < ($(echo "$min" | tr . ,)): print('is Python %d.%d' % sys.version_info[:2])
else:
    try: import $makes_venv
    except ImportError: print('cannot make a venv')" 2>/dev/null || echo "does not run"
}

version() { "$1" -c "import sys; print(sys.version)" 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        why=$(objection "$PYTHON")
        [ -z "$why" ] || fail "hooklab needs Python $min or newer, and PYTHON=$PYTHON $why. Name another one: PYTHON=/path/to/python3 make"
        python=$PYTHON
        return
    fi
    found=""
    for python in python3.13 python3.12 python3.11 python3; do
        has "$python" || continue
        why=$(objection "$python")
        [ -n "$why" ] || return 0
        found=" ($python $why)"
    done
    if has uv; then cure="uv python install 3.13"
    elif [ "$(uname)" = Darwin ]; then cure="brew install python@3.13"
    else cure="sudo apt-get install python3 python3-venv"; fi
    fail "hooklab needs Python $min or newer, and none was found$found. Install one: $cure; or name one: PYTHON=/path/to/python3 make"
}

# A .venv does not survive being moved, nor another Python or torch than it was made with.
made_for="$PWD, torch ${torch:-the newest}"
usable() {
    [ "$(cat .venv/made-for 2>/dev/null)" = "$made_for" ] && [ -z "$(objection .venv/bin/python)" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version .venv/bin/python)" ]
}

# A stamp says what was installed from which facts. It is written last, so an interrupted install leaves none.
facts=$(cat settings.ini setup.py pyproject.toml | cksum)
case $level in
    site) enough="site dev bench" ;;
    dev)  enough="dev bench" ;;
    *)    enough=$level ;;
esac
installed() {
    for one in $enough; do [ "$(cat ".venv/installed-$one" 2>/dev/null)" != "$facts" ] || return 0; done
    return 1
}

if ! usable; then
    find_python
    echo "Making .venv with $("$python" --version 2>&1)."
    rm -rf .venv
    if has uv; then uv venv --quiet --python "$python" .venv; else "$python" -m venv .venv; fi ||
        fail "Could not make .venv (see above). Fix that, then run the same command again."
    echo "$made_for" > .venv/made-for
fi
if ! installed; then
    quiet=""
    [ -t 1 ] || quiet=--quiet
    if has uv; then tool="uv pip install --python .venv/bin/python"
    else
        tool=".venv/bin/python -m pip install --disable-pip-version-check"
        .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null
    fi
    echo "Installing hooklab[$level] in .venv: once, and some minutes with a slow line, for torch is large."
    $tool $quiet --editable ".[$level]" ${torch:+"torch==$torch"} ||
        fail "Could not install hooklab[$level] (see above). Fix that, then run the same command again."
    echo "$facts" > ".venv/installed-$level"
fi

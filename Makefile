# Every target sets up what it needs in .venv (tools/venv.sh), does its work, and ends with a line that says what comes next.
# PYTHON=/path/to/python3 chooses another Python; TORCH=2.12 (or 2.12.1, oldest, newest) another torch.
export OMP_NUM_THREADS ?= 1
unexport VIRTUAL_ENV  # of another environment that is active in the shell, which would make IPython warn
unexport PYTHONDONTWRITEBYTECODE  # many a Python is started here, and reads what the first one has compiled
run = .venv/bin
pytest = $(run)/python -m pytest -n 2 --dist loadfile  # two at a time, the longest first: tests/support/sharing.py

.PHONY: help site serve book check test test-all sweeps lab refresh refresh-more figures cases bench export clean

help:
	@echo "make site      the site, in _docs"
	@echo "make serve     show the site in a browser, at an address of this machine"
	@echo "make book      the course as one PDF, in dist"
	@echo "make check     in a minute: lint, export, the rule, and the notebooks and tests that a change touches"
	@echo "make test      everything that a change can break: notebooks, library, site, browser"
	@echo "make test-all  what is left out there because it is slow or compares with other libraries; of sweeps a sample"
	@echo "make sweeps    sweeps over many alike cases, whole; SEED=3 make test-all takes another sample of them"
	@echo "make lab       JupyterLab on the lessons"
	@echo "make export    hooklab/ and README.md, from the notebooks"
	@echo "make refresh   run every notebook and save its outputs, then export"
	@echo "make refresh-more  the same for notebooks that need other libraries"
	@echo "make figures   measure again what the figures that move show"
	@echo "make cases     record again what \"Find the bug\" shows"
	@echo "make bench     measure speed and memory"
	@echo "make clean     remove what was built; .venv stays"
	@echo "With another torch: TORCH=2.12 make test (its newest patch; also 2.12.1, oldest, newest). With another Python: PYTHON=python3.13"

site:
	@tools/venv.sh site
	@$(run)/python tools/site.py

serve: site
	@$(run)/python tools/site.py --serve

check:
	@tools/venv.sh dev
	@$(run)/python tests/support/check.py

test:
	@tools/venv.sh dev
	@$(pytest)
	@echo "All is well. The slow part: make test-all"

# pytest ends with 5 when nothing was selected.
test-all:
	@tools/venv.sh bench
	@$(pytest) -m "slow or peers" || [ $$? -eq 5 ]
	@echo "All is well. If you have not yet: make test"

sweeps:
	@tools/venv.sh bench
	@SEED=all $(pytest) -m sweep
	@echo "All is well, in all cases of the sweeps. The other tests: make test, make test-all"

lab:
	@tools/venv.sh lessons
	@echo "JupyterLab opens on the lessons. Ctrl-C here ends it; then, if you changed a notebook: make refresh"
	@$(run)/python -c "from hooklab.exercises.folder import open_in_jupyterlab; open_in_jupyterlab('nbs/lessons')"

export:
	@tools/venv.sh dev
	@$(run)/nbdev-export
	@$(run)/python tools/readme.py
	@echo "hooklab/ and README.md are what the notebooks say. Next: make test"

refresh:
	@tools/venv.sh dev
	@$(run)/python tests/support/refresh.py
	@$(run)/nbdev-export
	@$(run)/python tools/readme.py
	@echo "All notebooks have run and their outputs are saved. Look at: git diff --stat; then: make test"

# What needs the extra `bench`: notebooks that say `skip_exec: true`.
refresh-more:
	@tools/venv.sh bench
	@$(run)/python tests/support/refresh.py --more
	@echo "Their outputs are saved. Look at: git diff --stat; then: make test-all"

figures:
	@tools/venv.sh dev
	@PYTHONPATH=tools:. $(run)/python -m moving
	@echo "What the moving figures show is measured again. Look at: git diff --stat; then: make test"

# Several minutes: each program of "Find the bug" trains ten times, with its fault and repaired.
cases:
	@tools/venv.sh dev
	@$(run)/python -m tests.bench.record_cases
	@echo "What the cases show is recorded again. Look at: git diff --stat; then: make test"

bench:
	@tools/venv.sh bench
	@$(run)/python -m tests.bench
	@echo "The figures are in tests/bench/results. Commit them when nothing else ran on this machine"

# Needs Chromium and chromedriver, as the browser tests do.
book:
	@tools/venv.sh dev
	@$(run)/python tools/site.py
	@$(run)/python tools/book.py

clean:
	@rm -rf _docs _proc build dist *.egg-info .pytest_cache .hypothesis
	@find hooklab nbs tests tools -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
	@echo "What was built is gone; .venv stays (rm -rf .venv). Next: make site"

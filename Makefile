# make demo   set up and learn an order that finds a digit in clutter
# make test   set up and run the tests
# make test-fast   set up and run the tests that neither train nor start processes
# make test-browser   set up and test the report's page in chromium
# make lint   set up and run the style and type checks
# make docs   set up and write the reference of the public interface to build/reference
# make mutants   set up and count the wrong programs that the tests notice; takes long
# make torture  set up, and kill, stop and starve runs that must go on as if nothing had been
# make bench  set up and run the timings
# make fuzz   set up and try 10,000 bad inputs; one of them again: make fuzz SEED=0 KIND=images INPUT=17
PYTHON ?= python3
RUN := .venv/bin/
# Tests run side by side, one thread each: processes that share cores must not each take all of them.
JOBS ?= 2

demo: .venv/ready
	$(RUN)reorder train demo --out runs/demo

test: .venv/triton
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(RUN)python -m pytest -n $(JOBS)

test-fast: .venv/triton
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(RUN)python -m pytest -n $(JOBS) -m 'not slow'

# Without chromium, and without the right to install it, these tests are skipped, and say so.
test-browser: .venv/browser
	command -v chromium || { [ "$$(id -u)" = 0 ] && timeout 120 apt-get update && timeout 240 apt-get install --yes --no-install-recommends chromium; } || true
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(RUN)python -m pytest -rs tests/browser

# Seeded; some five minutes on one core.
torture: .venv/ready
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(RUN)python tests/torture.py

lint: .venv/ready
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

docs: .venv/docs
	$(RUN)python docs/reference.py build/reference

SEED ?= 0
INPUTS ?= 10000
fuzz: .venv/ready
	PYTHONPATH=tests OMP_NUM_THREADS=1 MPLBACKEND=agg $(RUN)python -m fuzz --seed $(SEED) --inputs $(INPUTS) \
		--kind '$(KIND)' --input '$(INPUT)' --jobs $(JOBS)

mutants: .venv/ready
	$(RUN)python tests/mutants.py --jobs $(JOBS)

bench: .venv/ready
	$(RUN)reorder bench

# Rebuilt only when what is installed changes, so a second run installs nothing.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "reorder needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(RUN)python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(RUN)python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/browser: .venv/ready
	$(RUN)python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	touch $@

.venv/docs: .venv/ready
	$(RUN)python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

# For the tests alone: 280 MB, and nothing of CUDA. Builds of torch for GPUs bring the version that they need, so it is not in constraints.txt.
# Where there is no such package its tests are skipped, and say so.
.venv/triton: .venv/ready
	$(RUN)python -c 'import triton' 2>/dev/null || $(RUN)python -m pip install --quiet --disable-pip-version-check triton==3.9.0 || true
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

.PHONY: demo test test-fast test-browser lint docs mutants torture fuzz bench clean

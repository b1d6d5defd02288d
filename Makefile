# Shipmate. `make run` starts it, `make test` runs its tests; each sets up what it needs in .venv, once.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --quiet
COVERED := $(VENV)/coverage.json
STAMPS := $(VENV)/.created $(VENV)/.runtime $(VENV)/.project $(VENV)/.dev
UV ?= uv

# A .venv whose Python has gone, or that was made in another folder, is made anew.
ifneq ($(shell $(BIN)/python -c 'print("fine")' 2>/dev/null && cat $(VENV)/.created 2>/dev/null),fine $(CURDIR))
$(shell rm -f $(STAMPS))
endif

.PHONY: help run setup test check torture bench lock schema clean
.DELETE_ON_ERROR:

help:
	@echo "make run      start Shipmate (sets everything up first)"
	@echo "make setup    the set-up alone"
	@echo "make test     all tests but torture and bench"
	@echo "make check    lint, format, types, imports, house rules"
	@echo "make torture  crash points, fuzz, soak; SEED=123 makes a run again, SHARD=1/4 runs a quarter"
	@echo "make bench    measurements; BENCH=--json adds a line for machines, BENCH=--full takes half an hour"
	@echo "make schema   write .ship/schema anew"
	@echo "make lock     resolve requirements/*.txt anew (needs uv)"
	@echo "make clean    remove everything that was built"

run: setup
	@$(BIN)/shipmate run

setup: $(VENV)/.project

$(VENV)/.created:
	@set -eu; chosen=; bare=; \
	for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then chosen=$$python; break; fi; \
	  bare=$${bare:-$$python}; \
	done; \
	if [ -z "$$chosen" ] && [ -n "$$bare" ]; then \
	  name=$$("$$bare" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  echo "$$bare lacks venv. Install it and try again, on Debian and Ubuntu with:" >&2; \
	  echo "    sudo apt install $$name" >&2; exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	  echo "Shipmate needs Python 3.11 or newer. Install it, or say where it is:" >&2; \
	  echo "    make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	echo "Setting up in $(VENV), once; this takes a minute."; \
	clear=--clear; if $(BIN)/python -m pip --version >/dev/null 2>&1; then clear=; fi; \
	"$$chosen" -m venv $$clear $(VENV)
	@echo "$(CURDIR)" > $@

$(VENV)/.runtime: requirements/runtime.txt $(VENV)/.created
	@$(PIP) --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.runtime
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.project
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# The second line shows what no test runs, and fails below a share that is only ever raised.
test: $(VENV)/.dev
	@$(BIN)/python -m slipcover --json --out $(COVERED) -m pytest -n 2 --dist worksteal -m "not torture and not bench"
	@$(BIN)/python -m slipcover --merge $(COVERED) --out $(COVERED) --fail-under 97

check: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.gates

# SEED=… makes a run again, SHARD=i/n runs the ith of n parts. pytest ends with 5 where there is nothing to run.
torture: $(VENV)/.dev
	@$(BIN)/python -m pytest -m torture -rs --durations=15 || [ $$? -eq 5 ]

bench: $(VENV)/.dev
	@$(BIN)/python -m tests.bench $(BENCH)

schema: $(VENV)/.project
	@$(BIN)/python -m bot.cli.schema

lock:
	@command -v $(UV) >/dev/null || { echo "make lock needs uv; say where it is: make UV=/path/to/uv lock" >&2; exit 1; }
	cd requirements && for name in runtime dev; do \
	  $(UV) pip compile --universal --python-version 3.11 --generate-hashes -q --no-header --no-annotate \
	    $$name.in -o $$name.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info dist
	find bot channels tests -name __pycache__ -type d -prune -exec rm -rf {} +

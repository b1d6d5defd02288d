# Shipmate. `make run` starts it, `make test` runs its tests; each sets up what it needs in .venv, once.

VENV := .venv
BIN := $(VENV)/bin
# -P: what lies in the folder is nothing that pip imports.
PIP := $(BIN)/python -P -m pip --disable-pip-version-check --no-input --quiet
COVERED := $(VENV)/coverage.json
TESTS := -m pytest --workers 4 -m "not torture and not bench and not browser"
SITE := .venv-docs
STAMPS := $(VENV)/.created $(VENV)/.pip $(VENV)/.runtime $(VENV)/.project $(VENV)/.dev
UV ?= uv

# A .venv whose Python has gone, or that was made in another folder, is made anew.
ifneq ($(shell $(BIN)/python -c 'print("fine")' 2>/dev/null && cat $(VENV)/.created 2>/dev/null),fine $(CURDIR))
$(shell rm -f $(STAMPS))
endif

.PHONY: help run setup test coverage browser check docs wheel image torture bench lock schema clean
.DELETE_ON_ERROR:

help:
	@echo "make run      start Shipmate (sets everything up first); DIR=… is the project's folder, else one beside this one"
	@echo "make setup    the set-up alone"
	@echo "make test     all tests but browser, torture and bench"
	@echo "make coverage  the same tests with their coverage, and its floor"
	@echo "make browser  the web page in Chromium, where that and chromedriver are installed; PICTURES=folder keeps pictures"
	@echo "make check    lint, format, types, imports, house rules"
	@echo "make docs     the pages of docs/ as a site in site/; a dead link or anchor fails it"
	@echo "make wheel    the wheel alone, installed and used on each Python of this machine"
	@echo "make image    the steps of deploy/Dockerfile and its container, behind bubblewrap: Docker is not needed"
	@echo "make torture  crash points, fuzz, soak, all examples; SEED=123 makes a run again, SHARD=1/4 runs a quarter"
	@echo "make bench    measurements; BENCH=--json adds a line for machines, BENCH=--full takes half an hour, BENCH='--only restart' a part"
	@echo "make schema   write bot/config/schema, docs/settings.md, docs/commands.md and the tables of docs/logs.md anew"
	@echo "make lock     resolve requirements/*.txt anew (needs uv)"
	@echo "make clean    remove everything that was built"

# The code's own folder is none to let tools write in: the project's folder stands beside it, or is DIR. Settings and secrets
# stay where they are edited, beside this file, unless that folder has its own. A clone that has been talked to before goes on
# as it is: what it remembers is never moved by itself.
run: setup
	@set -eu; code=$$(pwd -P); dir="$(DIR)"; \
	if [ -z "$$dir" ] && { [ -e .ship/shipmate.db ] || [ -e .ship/journal.db ] || [ -e .ship/chats ]; }; then \
	  dir=.; echo "Going on in this folder, where .ship holds what was said; docs/run/configuration.md says how to move it."; \
	fi; \
	if [ -z "$$dir" ]; then \
	  dir=$$code-project; [ -e "$$dir/.ship" ] || dir=$${code%/*}/shipmate-project; \
	  if [ -d "$$dir" ] && [ ! -e "$$dir/.ship" ] && [ -n "$$(ls -A "$$dir")" ]; then \
	    echo "$$dir is there and was not made by Shipmate. Say which folder to use: make run DIR=/path/to/folder" >&2; exit 2; \
	  fi; \
	  if ! mkdir -p "$$dir/.ship" 2>/dev/null; then \
	    echo "$$dir cannot be made, so this folder is used. Another one is taken with: make run DIR=/path/to/folder"; dir=.; \
	  fi; \
	fi; \
	mkdir -p "$$dir"; \
	if [ "$$(cd "$$dir" && pwd -P)" != "$$code" ]; then \
	  for file in ship.json .env; do [ -e "$$dir/$$file" ] || ln -sf "$$code/$$file" "$$dir/$$file"; done; \
	  if [ -e "$$code/.env" ] && ! [ "$$dir/.env" -ef "$$code/.env" ]; then \
	    echo "Tokens and keys come from $$dir/.env; the .env in this folder is not read."; \
	  fi; \
	  [ -e "$$dir/Agent.md" ] || cp Agent.md "$$dir/Agent.md"; \
	  echo "The project's folder is $$dir; other commands take it as --dir $$dir"; \
	fi; \
	exec $(BIN)/shipmate run --dir "$$dir"

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

# What Python seeds a .venv with is old, and setuptools is needed by nothing here.
$(VENV)/.pip: requirements/pip.txt $(VENV)/.created
	@$(PIP) install --require-hashes -r requirements/pip.txt
	@$(PIP) uninstall --yes setuptools 2>/dev/null
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt $(VENV)/.pip
	@$(PIP) install --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.project: pyproject.toml hatch_build.py $(wildcard bot/launch/*.py) $(VENV)/.runtime
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.project
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# What Python has compiled is kept even where the environment says otherwise: a hundred processes are started, and each would
# compile everything again.
test: $(VENV)/.dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python $(TESTS)

# The same tests with their coverage, which fails below a share that is only ever raised. It takes longer. The threshold
# is never reached: on Python 3.11 slipcover takes its probes out in whatever thread reaches it, and raises there when another
# thread imports meanwhile.
coverage: $(VENV)/.dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m slipcover --threshold 1000000000 --json --out $(COVERED) $(TESTS)
	@$(BIN)/python -m slipcover --merge $(COVERED) --out $(COVERED) --fail-under 97

browser: $(VENV)/.dev
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null; then \
	  $(BIN)/python -m pytest --workers 2 -m browser tests/browser; \
	else echo "browser: skipped, as Chromium or chromedriver is not installed"; fi

check: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.gates

# The environment of the site is its own: its pins are none of the product's.
$(SITE)/.docs: requirements/docs.txt $(VENV)/.created
	@$(BIN)/python -m venv --clear $(SITE)
	@$(SITE)/bin/python -P -m pip --disable-pip-version-check --no-input --quiet install --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(SITE)/.docs
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build

wheel: $(VENV)/.dev
	@$(BIN)/python -m tests.wheel

image: $(VENV)/.dev
	@$(BIN)/python -m tests.image

# SEED=… makes a run again, SHARD=i/n runs the ith of n parts. pytest ends with 5 where there is nothing to run.
torture: $(VENV)/.dev
	@$(BIN)/python -m pytest -m torture -rs --durations=15 || [ $$? -eq 5 ]

bench: $(VENV)/.dev
	@$(BIN)/python -m tests.bench $(BENCH)

schema: $(VENV)/.dev
	@$(BIN)/python -m tests.reference

lock:
	@command -v $(UV) >/dev/null || { echo "make lock needs uv; say where it is: make UV=/path/to/uv lock" >&2; exit 1; }
	cd requirements && for name in pip runtime dev docs; do \
	  $(UV) pip compile --universal --python-version 3.11 --generate-hashes -q --no-header --no-annotate \
	    $$name.in -o $$name.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) $(SITE) site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info dist
	find bot channels tests -name __pycache__ -type d -prune -exec rm -rf {} +

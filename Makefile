# make accept   check this node (creates .venv, installs nodecheck; PROFILE=h200x4 says what was rented)
# make test     the tests (installs what they need, PyTorch among it)
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

.PHONY: accept test lint samples docs statistics bench clean

accept: $(STAMPS)/app
	@for python in $(BIN)/python python3 python; do \
		$$python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null \
		&& exit 0; done; echo "no Python here has torch: installing it into $(VENV), which takes minutes"; \
		$(MAKE) --no-print-directory $(STAMPS)/torch
	@profile="$$PROFILE"; \
	if [ -z "$$profile" ] && [ "$$($(BIN)/nodecheck profiles suggest)" = cpu ]; then profile=cpu; fi; \
	set -x; $(BIN)/nodecheck accept $${profile:+--profile "$$profile"} $(ARGS)

test: $(STAMPS)/dev $(STAMPS)/torch
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMPS)/app
	$(BIN)/python -m nodecheck.judge.docs > docs/findings.md
	$(BIN)/python -m nodecheck.rental.drift.docs > docs/drift.md

statistics: $(STAMPS)/app
	PYTHONPATH=. $(BIN)/python docs/simulation.py > docs/statistics.md

samples: $(STAMPS)/dev
	$(BIN)/python -m reports.build

bench: $(STAMPS)/dev
	$(BIN)/python -m tests.bench

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/app: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: $(STAMPS)/app
	$(BIN)/python -m pip install -q --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install -q --disable-pip-version-check --group dev
	@touch $@

$(STAMPS)/torch: $(STAMPS)/app constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[torch]"
	@touch $@

clean:
	rm -rf $(VENV)

# Each target makes what it needs in .venv; all it takes is make and Python 3.11 or newer:
#     make demo PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More for the command behind a target, as in: make test ARGS="-k politeness"
ARGS ?=
JOBS ?= 3
ROUNDS ?= 200

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format bench bench-full bench-check soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.has-rich ## crawl a local site with two workers, kill one, and see that nothing is lost
	$(BIN)/scrapy-fleet demo $(ARGS)

test: $(VENV)/.has-test ## run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(VENV)/.has-lint ## check style, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict scrapy_fleet benchmarks
	$(BIN)/lint-imports

format: $(VENV)/.has-lint ## let ruff mend and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.has-bench ## measure beside Scrapy, scrapy-redis and Crawlee: ten minutes
	$(BIN)/python -m benchmarks.run --short $(ARGS)

bench-full: $(VENV)/.has-bench ## the same at length, and renew docs/benchmarks.md
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-check: $(VENV)/.has-bench ## compare the newest figures with what they should be
	$(BIN)/python -m benchmarks.check $(ARGS)

soak: $(VENV)/.has-test ## kill workers at random moments, ROUNDS times
	$(BIN)/python -m tests.crash.soak --rounds $(ROUNDS) $(ARGS)

clean: ## remove the environment, caches and what was built
	rm -rf $(VENV) .venv-bench* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each extra that is installed; all are old when pyproject.toml is newer.
$(VENV)/.has-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
		"Python 3.11 or newer is needed; name one: make PYTHON=python3.13")'
	$(PYTHON) -m venv $(VENV)

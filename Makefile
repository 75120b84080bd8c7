# Everything Tenure needs is set up by these targets on a machine with python3 (3.11 to 3.13), make and git.

SHELL := /bin/sh
PYTHON ?= python3
MINUTES ?= 15
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := $(VENV)

.DEFAULT_GOAL := help
.PHONY: help demo up test check fmt crash fuzz contracts clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## play the onboarding story on the whole stack, on a fresh data folder
	@$(BIN)/tenure demo

up: $(INSTALLED) ## start the whole stack and leave it running until Ctrl-C
	@$(BIN)/tenure up

test: $(INSTALLED) ## the tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

crash: $(INSTALLED) ## the long form of the tests that kill, stop and take away (MINUTES=15)
	@TENURE_CRASH_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m long --timeout 3600 -v -s

fuzz: $(INSTALLED) ## schemathesis over the running API (FUZZ_CASES=5000 FUZZ_SEED=...)
	@$(BIN)/python -m tests.fuzz

check: $(INSTALLED) ## format, lint, types, layers, contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m engine.lifecycle.contract --check
	@$(BIN)/python -m api.contract --check

contracts: $(INSTALLED) ## write the generated contracts anew
	@$(BIN)/python -m engine.lifecycle.contract
	@$(BIN)/python -m api.contract

fmt: $(INSTALLED) ## format and fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove what the targets made (data folders stay)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(INSTALLED): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else "python3 is %d.%d: 3.11 to 3.13 is needed (make PYTHON=...)" % v[:2])'
	@test -x $(BIN)/pip || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'
	@$(BIN)/uv sync --quiet --frozen --inexact --compile-bytecode
	@touch $@

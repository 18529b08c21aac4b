# Two commands do everything on a fresh machine: `make quickstart` and `make test`.
# Every target makes .venv from requirements.lock when it is missing or stale.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false $(VENV)/bin/python

.PHONY: help venv quickstart test test-slow check bench clean

help:
	@echo "make quickstart   fetch real text, pretrain, evaluate, write runs/quickstart/report.html"
	@echo "make test         every test that fits in minutes, the small whole pipeline included"
	@echo "make test-slow    the proofs that take longer"
	@echo "make check        ruff, mypy --strict on xlm/, import-linter"
	@echo "make bench        every benchmark against its named peer"

venv:
	@PYTHON="$(PYTHON)" bash pipelines/environment.sh $(VENV)

quickstart: venv
	@$(RUN) pipelines/quickstart.py --recipe pipelines/recipes/quickstart.yaml

test: venv
	$(RUN) -m pytest -m "not slow"

test-slow: venv
	$(RUN) -m pytest -m slow

check: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: venv
	$(RUN) benchmarks/run.py

bench-%: venv
	$(RUN) benchmarks/run.py $*

clean:
	rm -rf $(VENV) runs benchmarks/results

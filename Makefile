# Two commands do everything on a fresh machine: `make quickstart` and `make test`.
# Every target makes .venv from requirements.lock when it is missing or stale.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
# pip leaves byte code to the first import (pipelines/environment.sh). Images often forbid to write it: every process would then compile
# torch and the rest anew, which doubles the time of the tests.
unexport PYTHONDONTWRITEBYTECODE
RUN := OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false $(VENV)/bin/python

RECIPE ?= pipelines/recipes/quickstart.yaml
# Further options of the quickstart, for example ARGS="--set seed=2 --run-dir runs/seed2".
ARGS ?=

.PHONY: help venv quickstart results tune-quickstart test test-quick test-slow test-chaos check bench clean test-cluster

help:
	@echo "make quickstart   fetch real text, pretrain, evaluate, write runs/quickstart/report.html"
	@echo "                  (RECIPE=... for another experiment, ARGS=\"--set a.b=c\" for other values)"
	@echo "make results      train every rung of pipelines/ladders/quickstart.yaml with three seeds and write docs/results.md (hours)"
	@echo "make tune-quickstart  pretrain every candidate of pipelines/searches/quickstart.yaml, rank them on dev text, write docs/tuning.md"
	@echo "make test         every test that fits in minutes, the small whole pipeline included"
	@echo "make test-quick   the same without the whole pipeline"
	@echo "make test-slow    what takes minutes each: every model of the library's peers, every way to spread a run, memory"
	@echo "make test-chaos   kill training a hundred times, at random, and compare with one never killed (KILLS=n)"
	@echo "make test-cluster train on several hosts, made on this machine, and trouble them (needs root)"
	@echo "make check        ruff, mypy --strict on xlm/, import-linter"
	@echo "make bench        every benchmark against its named peer; make bench-data runs one"
	@echo "make clean        remove .venv and benchmark results (runs/ stays)"

venv:
	@PYTHON="$(PYTHON)" bash pipelines/environment.sh $(VENV)

quickstart: venv
	@$(RUN) pipelines/quickstart.py --recipe $(RECIPE) $(ARGS)

results: venv
	@$(RUN) pipelines/results.py --ladder pipelines/ladders/quickstart.yaml --output docs/results.md

tune-quickstart: venv
	@$(RUN) pipelines/tune.py --search pipelines/searches/quickstart.yaml --output docs/tuning.md

# Files of tests in one process go side by side, each file whole, for what its tests share; those that start ranks or a browser,
# one after the other.
ALONE := tests/integration tests/cluster tests/browser
SIDE_BY_SIDE := OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile $(ALONE:%=--ignore %)

test: venv
	$(SIDE_BY_SIDE) -m "not slow"
	$(RUN) -m pytest -m "not slow" $(ALONE)

test-quick: venv
	$(SIDE_BY_SIDE) -m "not slow and not pipeline"
	$(RUN) -m pytest -m "not slow and not pipeline" tests/integration

test-slow: venv
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m slow --ignore tests/cluster

# Two hosts on this machine: launched, killed, cut off, slow, and with other files than each other. About ten minutes.
test-cluster: venv
	@$(RUN) tests/cluster/hosts.py
	$(RUN) -m pytest tests/cluster

# A hundred kills take about an hour on two idle cores; KILLS=20 for fewer, SEED=2 for others.
KILLS ?= 100
SEED ?= 1
test-chaos: venv
	$(RUN) tests/chaos/chaos.py --kills $(KILLS) --seed $(SEED) --folder runs/chaos --table runs/chaos/table.txt

check: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: venv
	$(RUN) benchmarks/run.py

bench-%: venv
	$(RUN) benchmarks/run.py $*

# A run folder may hold days of training: it is never removed here.
clean:
	rm -rf $(VENV) benchmarks/results

# Every task of this repository. `make` alone lists them.

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
# The commands of an environment have its path in them, and so has the stamp: one of a clone that was moved is made anew.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell cat $(STAMP)),$(CURDIR))
MOVED   := moved
endif
endif
EXAMPLE := localdiff/trace/example.jsonl

# What `make run` asks, unless told otherwise: a story of three canvases that is right with every seed tried (0 to 15). With
# this one, positions are taken back, and no two steps in a row leave the draft as it was. So small a model is done at once:
# where a terminal shows the canvas, it is slowed.
ifndef PROMPT
PROMPT     := Write a long story about a queen and a mill.
SEED       ?= 4
SHOW        = $$(if [ -t 2 ] && [ "$$TERM" != dumb ]; then echo --slow 0.4; fi)
NEXT        = && printf '%s\n' '' 'next: make run PROMPT="Spell the word canvas."' '      $(BIN)/localdiff chat -m demo' '      $(BIN)/localdiff doctor' >&2
endif
# The run of the example trace and its pictures.
# After a new demo model `python -m tests.bench.live_prompts` helps to choose both, `make example-trace` does the rest.
SHOWN      := Write a long story about a queen and a mill.
SHOWN_SEED := 7
# What docs/sudoku.md shows; a held-out puzzle.
PUZZLE     := Sudoku: ..6.7.3..759.3.8624......1.8.165.9.....2.35.66...89.715.83.1...1.....6....7526..8
PUZZLE_SEED := 0
quoted      = '$(subst ','\'',$(1))'

# PYTHON may name the interpreter for the environment; without it the first one that is new enough is taken.
PYTHON     ?=
CANDIDATES := $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14 python)

# One process more than there are cores, since tests also wait for terminals and servers. Each has one thread, and when it runs out
# of tests it takes some of another's. The slow ones need memory, and no more processes than cores. The GPU is hidden, so that a
# run means the same everywhere: the tests that need one are run by bench-gpu. What is compiled of the sources is kept, whatever
# the environment says of it: hundreds of commands are started, and each would compile them again.
PROCESSES   = $$($(BIN)/python -c 'import os; print(1 + (os.cpu_count() or 1))')
PYTEST      = CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TERM=dumb COLUMNS=80 $(BIN)/python -m pytest -q --numprocesses $(PROCESSES) --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help moved setup run test test-slow check lint types format docs demo-model sudoku-adapter sudoku-pair example-trace demo-values full-width kernels-aot kernels-ptx bench-gpu wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

moved:

setup: $(STAMP)  ## create .venv and install everything, pinned by constraints.txt

$(STAMP): pyproject.toml constraints.txt $(MOVED)
	@set -e; \
	if [ -z '$(MOVED)' ] && { $(BIN)/python -c 'import pip' || $(BIN)/python -m ensurepip; } >/dev/null 2>&1; then exit 0; fi; \
	found=; \
	for python in $(CANDIDATES); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo 'error: no Python 3.11 or newer with `venv` among: $(CANDIDATES)' >&2; \
	  echo 'hint: install one (on Debian and Ubuntu `python3` and `python3-venv`), or say `make PYTHON=/path/to/python`' >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$found"; \
	"$$found" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@printf '%s' $(call quoted,$(CURDIR)) > $@

run: setup  ## run the demo model: make run PROMPT="…" SEED=N
	@$(BIN)/localdiff run --model demo $(if $(SEED),--seed $(call quoted,$(SEED))) $(SHOW) -- $(call quoted,$(value PROMPT)) $(NEXT)

test: setup  ## run the tests, without the slow ones and those that need a GPU or a network
	$(PYTEST)

test-slow: PROCESSES = logical
test-slow: setup  ## run the slow tests
	$(PYTEST) -m 'slow and not gpu and not network'

check: lint types test  ## lint, types and tests: what CI runs, and then kernels-aot, test-slow and kernels-ptx

lint: setup  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy --strict, for each system; of the tests only the measurements, fakes and models
	$(BIN)/mypy --platform linux
	$(BIN)/mypy --platform win32
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy tests/bench tests/fakes tests/models

format: setup  ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## write the generated pages and pictures of docs/
	$(BIN)/python -m tests.pages.cli_reference > docs/cli.md.partial && mv docs/cli.md.partial docs/cli.md
	$(BIN)/python -m tests.pages.terminal_page > docs/terminal.md.partial && mv docs/terminal.md.partial docs/terminal.md
	$(BIN)/python -m tests.pages.canvas_picture > docs/canvas.svg.partial && mv docs/canvas.svg.partial docs/canvas.svg

demo-model: setup  ## train the small model that ships further, a quarter of an hour on two cores
	$(BIN)/python -m localdiff.demo.training.train build/demo-work --base localdiff/demo/checkpoint --updates 600 --decay 1500
	$(BIN)/python -m localdiff.demo.training.train build/demo-work --updates 600 --decay 1500 --export build/demo-model
	$(BIN)/python -m localdiff.demo.evaluate --model build/demo-model --prompts 50

sudoku-adapter: setup  ## train an adapter like the one that ships, on two cores
	$(BIN)/torchrun --standalone --nproc-per-node 2 -m localdiff.demo.training.adapt build/sudoku-work
	$(BIN)/python -m localdiff.demo.training.adapt build/sudoku-work --export build/sudoku
	$(BIN)/python -m localdiff.demo.evaluate --adapter build/sudoku --skills sudoku9

sudoku-pair: setup  ## record a puzzle without and with the adapter that ships, for docs/sudoku.md
	rm -f docs/sudoku/*
	OMP_NUM_THREADS=1 $(BIN)/localdiff trace pair -m demo --device cpu --adapter sudoku --seed $(PUZZLE_SEED) --max-tokens 96 \
	  --keep docs/sudoku -o docs/sudoku/pair.html $(call quoted,$(PUZZLE))
	chmod 644 docs/sudoku/*

full-width: setup  ## write a two-layer checkpoint with random weights at full width into build/ (5 GB)
	$(BIN)/python -m tests.checkpoints.full_width build/full-width

example-trace: setup  ## record the trace that ships with the package, after a new demo model, and draw it
	rm -f $(EXAMPLE)
	OMP_NUM_THREADS=1 $(BIN)/localdiff run --model demo --device cpu --seed $(SHOWN_SEED) --live off \
	  --record $(EXAMPLE) --record-top-k 3 $(call quoted,$(SHOWN))
	$(BIN)/localdiff trace check $(EXAMPLE) --rerun
	chmod 644 $(EXAMPLE)
	$(MAKE) docs

demo-values: setup  ## store what `localdiff doctor` compares with, after a new demo model
	$(BIN)/python -m localdiff.doctor.denoise

kernels-aot: setup  ## compile every GPU kernel for sm_80 to sm_120, without a GPU, and report registers and spills
	$(BIN)/python -m tests.gpu.kernels_aot

kernels-ptx: setup  ## run the kernels' tests on emulated GPUs, from what Triton compiles for them: make kernels-ptx CARDS="86 90"
	$(BIN)/python -m tests.gpu.ptx $(CARDS)

bench-gpu: setup  ## tests and measurements on a GPU: make bench-gpu GPU="steps --vram-limit 18GB"
	$(BIN)/python -m tests.bench.gpu $(GPU)

wheel: setup  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:  ## remove what the other targets made, .venv included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

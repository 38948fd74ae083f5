# Everything a newcomer needs: `make run` and `make test` make their own environment and ask for nothing but Python
# 3.11 or later and make. What else a part needs (gcc, Go, root) it says itself, and is skipped without.
.DEFAULT_GOAL := help
.PHONY: help run test check bench bench-centre bench-placement bench-queues bench-isolation soak cluster isolation stubs format clean

VENV := .venv
BIN := $(VENV)/bin
# Two environments in one folder: what runs, and all that checks and tests besides. The first is there in half the time.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
COMPILED := tests/__pycache__/.compiled
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Tests of a real cluster mostly wait, and so do processes on a node: five take less time on 2 cores than two do; who
# takes what is in tests/support/sharing.py.
WORKERS ?= 5
SOURCES := core kube proto agent deviceplugin scheduler standalone cli tests benchmarks

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(if $(wildcard $(READY)),$(READY),$(RUNS)) ## Show Aliquot on this machine, with simulated GPUs
	@$(BIN)/aliquot up --demo

# Where a shell forbids to keep what was compiled, each process that tests start would compile all it imports anew: a
# second of CPU for each of hundreds.
test: export PYTHONDONTWRITEBYTECODE :=
# The real Kubernetes takes a ninth less CPU where it collects its garbage less often, and some 100 MB more.
test: export GOGC := 300
test: $(COMPILED) ## Run every test that can run on this machine
	$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder $(TESTS)

# In a checkout that ran none before, each process would compile all of them: 14 s of processor, instead of 5. What can't
# be collected is told by the run itself.
COLLECT := $(BIN)/pytest -qq --collect-only -p no:cacheprovider
HALF := tests/unit/queues tests/unit/reclaim
$(COMPILED): $(READY)
	@$(COLLECT) $(HALF) >/dev/null 2>&1 & $(COLLECT) $(addprefix --ignore=,$(HALF)) >/dev/null 2>&1; wait
	@mkdir -p $(@D) && touch $@

check: $(READY) ## Lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports

bench: $(READY) ## Measure speed and memory (fails at its end if the centre's calls fall short); figures go to benchmarks/RESULTS.md by hand
	@failed=0; for part in run.py "queues/events.py --events 100 --each"; do $(BIN)/python benchmarks/$$part || failed=1; done; exit $$failed

bench-centre: $(READY) ## Measure the centre: its calls, and under a real kube-scheduler; fails at its end if either falls short (needs `make cluster`; 15 minutes)
	@failed=0; for part in "centre/calls.py --asked" cluster/centre.py; do $(BIN)/python benchmarks/$$part || failed=1; done; exit $$failed

bench-placement: $(READY) ## Replay the openb trace by every policy (an hour; goes on where it was broken off), and time decisions
	$(BIN)/python benchmarks/placement/quality.py --plots docs
	$(BIN)/python benchmarks/placement/robustness.py
	$(BIN)/python benchmarks/placement/two_axes.py
	$(BIN)/python benchmarks/placement/decision.py

bench-queues: $(READY) ## Measure queues beside what is asked of them; fails if they fall short (15 minutes)
	$(BIN)/python benchmarks/queues/fairness.py
	$(BIN)/python benchmarks/queues/kueue.py
	$(BIN)/python benchmarks/queues/kueue.py --scale large
	$(BIN)/python benchmarks/queues/events.py --events 300 --each
	$(BIN)/python benchmarks/queues/groups.py
	$(BIN)/python benchmarks/queues/edits.py

bench-isolation: $(READY) ## Measure isolation on the fake driver, all of it (gcc; 5 minutes, with nothing else at work)
	@cat /proc/loadavg
	$(BIN)/python benchmarks/isolation/cost.py
	$(BIN)/python benchmarks/isolation/loading.py
	$(BIN)/python benchmarks/isolation/shares.py
	$(BIN)/python benchmarks/isolation/giving_back.py
	$(BIN)/python benchmarks/isolation/latency.py
	$(BIN)/python benchmarks/isolation/beat.py
	$(BIN)/pytest --durations=1 tests/isolation/test_processes.py -k three_hundred
	@cat /proc/loadavg

soak: $(READY) ## Long hunts: bounded, but not for every day
	ALIQUOT_SOAK=1 $(BIN)/pytest tests/simulation tests/node tests/isolation
	ALIQUOT_SOAK=1 $(BIN)/pytest tests/cluster/test_installed.py
	$(BIN)/python benchmarks/cluster/recorded.py

cluster: $(READY) ## Build the real Kubernetes that tests/cluster uses (Go, gcc, root; some 7 minutes, once a machine)
	tests/cluster/requirements
	tests/cluster/binaries/build

isolation: ## Build what is loaded into containers (gcc)
	$(MAKE) -C isolation OUT=../build/isolation

stubs: $(READY) ## Write the gRPC stubs anew
	proto/generate

format: $(READY) ## Bring the sources into form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and all caches of the checkout
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The locks are complete, so nothing is worked out; what is imported is compiled then, which is little of it all.
PIP := $(BIN)/pip --quiet --disable-pip-version-check install --no-deps --no-compile
define ENVIRONMENT
	@test -n "$(PYTHON)" || { echo "Aliquot needs Python 3.11 or later: none found on PATH (or set PYTHON=...)" >&2; exit 1; }
	@test ! -L $(VENV) || { echo "$(VENV) is a link: what it leads to would be emptied; remove it first" >&2; exit 1; }
	@echo "making the environment in $(VENV) with $(PYTHON) (once, about a minute)"
	@$(if $(wildcard $(RUNS)),:,$(PYTHON) -m venv --clear $(VENV))
	@$(PIP) --only-binary :all: --require-hashes -r $<
	@$(PIP) --no-build-isolation -e .
	@touch $@
endef

$(RUNS): requirements/up.lock pyproject.toml
	$(ENVIRONMENT)

# On top of the first, for an `aliquot up` may run from it.
$(READY): requirements/dev.lock pyproject.toml
	$(ENVIRONMENT)

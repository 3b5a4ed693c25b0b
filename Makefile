# One command each; none needs another first. Works where only python3 (with venv), make and pip exist.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-dev

.PHONY: verify test lint mutants bench notebook clean

# Set up, then judge every claim of the papers; results in results/.
verify: $(STAMP)
	$(BIN)/verify-claims paper_claims.yaml

# Set up, then run every check: lint, types, import layers, tests.
test: $(TEST_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

lint: $(TEST_STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every planted mistake must come out refuted.
mutants: $(STAMP)
	$(BIN)/verify-claims checks/mutants/implicit_relu.yaml --out results/mutants

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[mnist]"
	touch $@

$(TEST_STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP) $@

clean:
	rm -rf $(VENV) results build dist

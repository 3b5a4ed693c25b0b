# One command each; none needs another first. Works where only python3 (with venv), make and pip exist.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-dev

.PHONY: verify setup test test-long lint mutants docs figures bench clean

# Set up, then judge every claim of the papers; results in results/.
verify: $(STAMP)
	$(BIN)/verify-claims paper_claims.yaml

# Set up, then run every check: lint, types, import layers, tests.
test: $(TEST_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal

# Longer tests: the suite with all its instances, further seeds, what outsiders wrote, the training theorems.
test-long: $(TEST_STAMP)
	$(BIN)/pytest -n 2 --dist worksteal -m long

setup: $(TEST_STAMP)

# Format, mend what can be mended, and check.
lint: $(TEST_STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every planted mistake must come out refuted.
mutants: $(STAMP)
	for file in checks/mutants/*.yaml; do \
	  $(BIN)/verify-claims $$file --out results/mutants/$$(basename $$file .yaml) || exit 1; \
	done

# Bring the generated tables and the JSON Schema in docs/ up to date.
docs: $(TEST_STAMP)
	$(BIN)/python docs/generate.py

# The figures of docs/gallery, over the results stored below checks/results.
figures: $(TEST_STAMP)
	$(BIN)/python -m figures.gallery

# Timings and ratios; a few minutes.
bench: $(TEST_STAMP)
	for name in start_up kernel_accuracy kernel_speed kernel_memory certified_width; do \
	  $(BIN)/python -m benchmarks.$$name || exit 1; \
	done

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

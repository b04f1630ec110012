# Every target sets up .venv by itself. Versions are those of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
SEED ?= 0

.PHONY: demo paper test lint bench docs clean

demo: .venv/.flights
	$(BIN)/python examples/flights.py

paper: .venv/.core
	$(BIN)/quorate reproduce fig3 --out results/paper/fig3
	$(BIN)/quorate reproduce fig4 --out results/paper/fig4

# Tests start hundreds of workers: none of them should have to compile our modules anew.
test: .venv/.installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadgroup --seed $(SEED)

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

bench: .venv/.installed
	$(BIN)/python benchmarks/reproduce_fig4.py
	$(BIN)/python benchmarks/many_workers.py
	$(BIN)/python benchmarks/beyond_times.py
	$(BIN)/python benchmarks/coded_exact.py
	$(BIN)/python benchmarks/shards_out_of_core.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/stopped_worker.py
	$(BIN)/python benchmarks/merging.py
	$(BIN)/python benchmarks/weights_on_cases.py
	$(BIN)/python benchmarks/flights_to_ess.py

docs: .venv/.installed-docs
	$(BIN)/sphinx-build --fail-on-warning --quiet docs site
	@echo "site/index.html"

clean:
	rm -rf .venv results site

# What is installed, from least to most; a stamp for each.
install = $(PYTHON) -m venv .venv && \
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.$(1)' && touch $@

.venv/.core: pyproject.toml constraints.txt
	$(call install,)

.venv/.flights: pyproject.toml constraints.txt
	$(call install,[flights])

.venv/.installed: pyproject.toml constraints.txt
	$(call install,[dev])

.venv/.installed-docs: pyproject.toml constraints.txt
	$(call install,[docs])

# Every target sets up .venv by itself. Versions are those of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
SEED ?= 0

.PHONY: demo test lint bench docs clean

demo: .venv/.installed
	$(BIN)/quorate reproduce fig3 --out results/demo/fig3
	$(BIN)/quorate reproduce fig4 --out results/demo/fig4

test: .venv/.installed
	$(BIN)/python -m pytest -n auto --seed $(SEED)

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

bench: .venv/.installed
	$(BIN)/python benchmarks/reproduce_fig4.py
	$(BIN)/python benchmarks/many_workers.py
	$(BIN)/python benchmarks/shards_out_of_core.py

docs: .venv/.installed-docs
	$(BIN)/sphinx-build --fail-on-warning --quiet docs site
	@echo "site/index.html"

clean:
	rm -rf .venv results site

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.installed-docs: .venv/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

# Every target sets up .venv by itself. Versions are those of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
SEED ?= 0
MINUTES ?= 30
VERSIONS ?= 3.11 3.13
OF_VERSIONS := tests/results tests/run/test_opened.py tests/models/test_programs.py \
	tests/models/test_groups_numpyro.py tests/models/test_groups_pymc.py tests/merging/test_rules.py

.PHONY: help demo paper test test-versions cluster-test lint hooks bench soak docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.flights ## Fit 327,346 flights on this machine
	$(BIN)/python examples/flights.py

paper: .venv/.core ## Draw the paper's figures into results/paper
	$(BIN)/quorate reproduce fig3 --out results/paper/fig3
	$(BIN)/quorate reproduce fig4 --out results/paper/fig4

# Tests start hundreds of workers: none of them should have to compile our modules again. Tests wait
# for workers now and then, so there is one test process more than cores. Threads of BLAS would only
# wait for each other, and take CPU time for it.
# If a test process crashes, the run ends: with a new process in its place, xdist may wait for ever.
test: .venv/.installed ## Run all tests; SEED=7 for other randomness
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest \
		-n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadgroup --max-worker-restart 0 --seed $(SEED)

# What touches ArviZ, PyMC and NumPyro, with the newest of them that each Python can have. pyenv
# finds a Python that is not the current one, if it is told all of its versions.
test-versions: ## Run the tests of ArviZ, PyMC and NumPyro on VERSIONS, with their newest releases
	@set -e; export PYENV_VERSION="$$(pyenv versions --bare 2>/dev/null | paste -sd: -)"; \
	for version in $(VERSIONS); do \
		in=.venv/versions/$$version; \
		[ -d $$in ] || python$$version -m venv $$in; \
		$$in/bin/pip install --quiet --upgrade --editable '.[versions]'; \
		echo "Python $$version: $$($$in/bin/pip list --format=freeze | \
			grep -E '^(arviz|numpyro|pymc|jax|numpy|xarray)==' | paste -sd' ' -)"; \
		$$in/bin/python -m pytest -n auto --dist loadgroup --seed $(SEED) $(OF_VERSIONS); \
	done

# Machines are network namespaces, so this needs root and Linux, and for Slurm Debian's packages
# slurm-wlm and munge. What cannot run says so.
cluster-test: .venv/.installed ## Run Ray and Slurm on several machines made of namespaces
	$(BIN)/python -m pytest -n 0 --cluster --capture=no -rs --seed $(SEED) \
		tests/engines/test_ray_machines.py tests/engines/test_slurm.py tests/engines/test_kube.py

lint: .venv/.installed ## Run ruff, mypy and import-linter, as CI does
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

hooks: ## Run make lint before every commit
	@printf '#!/bin/sh\nexec make lint\n' > "$$(git rev-parse --git-path hooks)/pre-commit"
	@chmod +x "$$(git rev-parse --git-path hooks)/pre-commit"

bench: .venv/.installed ## Measure CPU times, beside something measured in the same run
	$(BIN)/python benchmarks/reproduce_fig4.py
	$(BIN)/python benchmarks/many_workers.py
	$(BIN)/python benchmarks/idle_workers.py
	$(BIN)/python benchmarks/node_processes.py
	$(BIN)/python benchmarks/scale_constants.py
	$(BIN)/python benchmarks/beyond_times.py
	$(BIN)/python benchmarks/coded_exact.py
	$(BIN)/python benchmarks/shards_out_of_core.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/stopped_worker.py
	$(BIN)/python benchmarks/merging.py
	$(BIN)/python benchmarks/weights_on_cases.py
	$(BIN)/python benchmarks/flights_to_ess.py
	$(BIN)/python benchmarks/groups.py flights slopes

soak: .venv/.installed ## Attack one run after another; MINUTES=30
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

docs: .venv/.installed-docs ## Build the site
	$(BIN)/sphinx-build --fail-on-warning --quiet docs site
	@echo "site/index.html"

.PHONY: notebooks
notebooks: .venv/.installed ## Run the notebooks, and store their outputs
	$(BIN)/python -m nbconvert --to notebook --execute --inplace docs/notebooks/*.ipynb

clean: ## Remove .venv, results and the site
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

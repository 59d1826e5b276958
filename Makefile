# Two commands set everything up by themselves: `make evolve` runs the main job, `make test` the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: evolve test soak check gpu-test wheel clean

evolve: $(VENV)/ready            ## evolve attention kernels on this machine: no GPU, no key, no network
	$(BIN)/evo evolve $(ARGS)

test: $(VENV)/ready              ## the default tests: no GPU, no network
	$(BIN)/pytest -q -n 2 --dist loadgroup $(ARGS)

soak: $(VENV)/ready              ## minutes: runs killed at hundreds of random moments, each of which must end as if it had not been
	$(BIN)/pytest -m soak -n 2 $(ARGS)

check: $(VENV)/ready             ## style, types, the layers of imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gpu-test: $(VENV)/ready          ## the tests that need an NVIDIA GPU
	$(BIN)/pytest -m gpu $(ARGS)

wheel: $(VENV)/ready
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cuda13]'
	touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

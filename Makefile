# Every target sets up what it needs by itself; an environment that is up to date costs no time.

VENV ?= .venv
export VENV PYTHON STACK JOBS MMCV_CUDA CHROME
python = "$(VENV)/bin/python"

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-zoo test-gpu test-browser test-lowest lint format clean

help: ## this list
	@echo 'make VENV=.venv PYTHON=python3.12 <target>, where target is one of'
	@sed -n 's/^\([a-z-]*\):[^#]*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: ## the environment: torch, the OpenMMLab packages, mmbixt itself
	@tools/dev/setup_env.sh

demo: setup ## train, test and look at a small model on generated images
	@$(python) tools/demo.py

docs: setup ## the site of the documentation, in build/site
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

test: lint ## lint, then all tests that take seconds
	@OMP_NUM_THREADS=1 $(python) -m pytest -n 2 --dist worksteal

test-zoo: setup ## the tests that take minutes: all configs and models, mim, compilers, exporters
	@OMP_NUM_THREADS=1 $(python) -m pytest -m zoo -n 2 --dist worksteal

test-gpu: setup ## the tests that need a GPU
	@$(python) -m pytest -m gpu tests

# Without OpenMMLab, so only the tests that need torch, timm and numpy alone.
lowest = "$(VENV)-lowest"
test-lowest: setup ## attentions and networks with the oldest versions that requirements.txt claims
	@"$(VENV)/bin/uv" venv -q --clear --python $(python) $(lowest)
	@sed 's/>=/==/' requirements.txt | "$(VENV)/bin/uv" pip install -q --python $(lowest) -r -
	@"$(VENV)/bin/uv" pip install -q --python $(lowest) -c requirements/environment.txt pytest-xdist
	@OMP_NUM_THREADS=1 $(lowest)/bin/python -m pytest -n 2 --dist worksteal \
		tests/test_attention tests/test_layers $(foreach name,arch biformer bixt composition contract \
		export second_derivatives,tests/test_backbones/test_$(name).py)

test-browser: setup ## look at a report and the site in Chromium, on a desk and on a phone (CHROME=path: in that one)
	@OMP_NUM_THREADS=1 $(python) -m pytest tests/browser

lint: setup ## check format and style
	@$(python) -m ruff format --check .
	@$(python) -m ruff check .
	@"$(VENV)/bin/lint-imports" --no-logo --no-cache

format: setup ## put format and style in order
	@$(python) -m ruff format -q . # wraps what would be too long for the check
	@$(python) -m ruff check --fix .
	@$(python) -m ruff format .

.PHONY: lock release-check
lock: setup ## renew requirements/locked/, the hashes of all that is pinned (after a change of a pin)
	@for set in environment openmmlab onedl peft cuda; do \
		grep -Ev '^torch(vision)?=' requirements/$$set.txt | "$(VENV)/bin/uv" pip compile - -q --upgrade \
			--no-deps --generate-hashes --custom-compile-command "make lock" --no-annotate \
			--python $(python) --output-file requirements/locked/$$set.txt >/dev/null || exit; \
	done

release-check: setup ## build wheel and sdist, check them, run the README from them in an empty folder
	@$(python) tools/dev/release_check.py

clean: ## remove what builds and tests left (neither the environment nor work_dirs)
	@rm -rf build dist .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

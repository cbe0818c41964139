# make test        the test suite, in a virtual environment made here (.venv)
# make tune        the main job: tune a convolution of ResNet-18 on this machine
# make lint        ruff, and the prose of the documents
# make typecheck   mypy --strict
# make docs        the site, in build/docs, and tutorials as notebooks in its folder notebooks
# make dist        the wheel and the source archive, in dist
# make clean       remove what was built; .venv stays
#
# PYTHON=python3.12      which Python makes .venv
# EXTRAS=dev,torch,onnx  what to install beside the package (test, lint, typecheck; default dev)
# PYTEST_ARGS="-k space" what to hand to pytest (default: two processes)

SHELL := bash
.DELETE_ON_ERROR:

PYTHON ?= python3
EXTRAS ?= dev
PYTEST_ARGS ?= -n 2 --dist loadfile

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.PHONY: test tune lint typecheck docs dist clean

test: .venv/installed-$(EXTRAS)
	$(PY) -m pytest $(PYTEST_ARGS)

tune: .venv/installed-plots
	$(PY) -m loopwright tune conv2d x=1,128,28,28 w=128,128,3,3:constant padding=1 \
	  --effort quick -o c6.so --plot c6.png --report c6.html

lint: .venv/installed-$(EXTRAS)
	$(PY) -m ruff check .
	$(PY) tools/prose.py

typecheck: .venv/installed-$(EXTRAS)
	$(PY) -m mypy -p loopwright

docs: .venv/installed-docs
	$(PY) -m sphinx -q -W --keep-going docs build/docs

dist: .venv/installed-dev
	rm -rf dist build/lib
	$(PY) -m build --no-isolation

clean:
	rm -rf build dist docs/generated *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(PY):
	$(PYTHON) -m venv .venv

# installed-base is the package alone, installed-dev,torch the package with those extras.
.venv/installed-%: pyproject.toml constraints.txt | $(PY)
	$(PIP) install --quiet -c constraints.txt -e '.$(if $(filter base,$*),,[$*])'
	touch '$@'

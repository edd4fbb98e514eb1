# `make demo` and `make test` install everything that they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Tests and demo start Python many hundred times; without bytecode each start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java kafka demo demo-gateway lint format test test-real test-gateway conformance conformance-random fuzz bench performance docs clean

help:
	@echo "make demo       redeploy Spark and a consumer in one group without a rebalance (about four minutes)"
	@echo "make demo-gateway  scale a group up and kill the gateway, on a Kafka cluster of three brokers (about two minutes)"
	@echo "make test       the fast tests (a few minutes)"
	@echo "make test-real  the tests with Apache Kafka, Spark and other clients (installs them)"
	@echo "make test-gateway  all tests of the gateway, also the long ones"
	@echo "make conformance  compare the answers to group requests with those of Apache Kafka"
	@echo "make conformance-random  the same with random scenarios, for ten minutes (MINUTES=10 SEED=1)"
	@echo "make fuzz       coverage-guided fuzzing, for ten minutes (MINUTES=10)"
	@echo "make lint       ruff, strict types, import contracts, spelling, words that we do not use"
	@echo "make bench      Holdfast and Apache Kafka side by side; renders docs/performance.md (hours; BENCH=--skip-fresh continues)"
	@echo "make docs       the documentation site, in build/site (open index.html in a browser)"
	@echo "make format     format the code with ruff"

setup: $(READY) java

$(READY): requirements.lock pyproject.toml scripts/setup
	@scripts/setup "$(PYTHON)" "$(VENV)"

java:
	@scripts/java-ensure > /dev/null

kafka:
	@scripts/kafka-install

demo: setup
	@JAVA_HOME="$$(dirname "$$(dirname "$$(scripts/java-ensure)")")" $(BIN)/python -m examples.demo

demo-gateway: setup kafka
	@$(BIN)/python -m examples.demo_gateway

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python scripts/check_words.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All tests take about 500 s of CPU. Those of brokers and clients, which come first, wait most of their time for a session
# to end or for a client to reconnect, so eight at a time keep two cores busy. The tests of a file share their broker and
# run in one worker.
test: setup
	$(BIN)/python -m pytest tests -m "not real" -n 8 --dist loadfile --no-loadscope-reorder -q

# Most Java processes of the tests run for seconds, so a short start matters more than peak speed.
test-real test-gateway conformance: export SPARK_SUBMIT_OPTS = $(SOON_READY)
test-real test-gateway conformance: export KAFKA_JVM_PERFORMANCE_OPTS = $(SOON_READY)
SOON_READY := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

test-real: setup
	-@scripts/kafka-install
	-@scripts/kafka-apps-ensure > /dev/null
	-@scripts/kcat-ensure > /dev/null
	-@scripts/kafkajs-ensure > /dev/null
	-@scripts/go-program-ensure tests/client_compat/go > /dev/null
	-@scripts/go-program-ensure tests/groups/go > /dev/null
	-@scripts/spark-oldest-ensure > /dev/null
	-@scripts/chromium-ensure > /dev/null
	-@scripts/spark-kafka-ensure > /dev/null
	-@scripts/spark-delta-ensure > /dev/null
	$(BIN)/python -m pytest tests -m real -q -n 2 --dist loadfile $(SENSITIVE:%=--ignore %)
	$(BIN)/python -m pytest $(SENSITIVE) -m real -q $(LONG:%=--ignore %)

# Tests of real parts that answer too slowly when another test uses the machine.
SENSITIVE := tests/holdfast_client tests/groups tests/spark tests/unit/spark tests/gateway

# Tests of the gateway with kills, tools and single parts on a real Kafka, and its demo: `make test-gateway` runs them.
LONG := $(filter-out %/test_clients.py %/test_security.py,$(wildcard tests/gateway/test_*.py))

test-gateway: setup kafka
	$(BIN)/python -m pytest tests/gateway -m real -q

conformance: setup kafka
	$(BIN)/python -m pytest tests/conformance -q

MINUTES ?= 10
SEED    ?= 1

conformance-random: setup kafka
	$(BIN)/python -m tests.conformance.random_runs --minutes $(MINUTES) --seed $(SEED)

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# BENCH="--only start" measures one case, BENCH=--skip-fresh continues an interrupted run.
BENCH ?=

bench: setup kafka
	$(BIN)/python -m benchmarks $(BENCH)

performance: $(READY)
	$(BIN)/python -m benchmarks.render

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY)
	$(BIN)/mkdocs build
	@echo "open build/site/index.html"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build src/*.egg-info

# The front door. `make demo` and `make test` do all set-up by themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Tests and demo start Python many hundred times; without bytecode each start compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java kafka demo lint format test test-real conformance conformance-random fuzz bench performance clean

help:
	@echo "make demo       Spark and a consumer in one group, redeployed: nobody notices (four minutes, longer on a busy machine)"
	@echo "make test       the fast tests (a few minutes)"
	@echo "make test-real  the tests beside Apache Kafka and Spark (installs them)"
	@echo "make conformance  groups answer for answer beside Apache Kafka"
	@echo "make conformance-random  the same with random plays, for ten minutes (MINUTES=10 SEED=1)"
	@echo "make fuzz       hostile bytes, guided by what they reach, for ten minutes (MINUTES=10)"
	@echo "make lint       ruff, strict types, import contracts"
	@echo "make bench      Holdfast and Apache Kafka side by side; renders docs/performance.md"
	@echo "make format     let ruff format the code"

setup: $(READY) java

$(READY): requirements.lock pyproject.toml scripts/setup
	@scripts/setup "$(PYTHON)" "$(VENV)"

java:
	@scripts/java-ensure > /dev/null

kafka:
	@scripts/kafka-install

demo: setup
	@JAVA_HOME="$$(dirname "$$(dirname "$$(scripts/java-ensure)")")" $(BIN)/python -m examples.demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Most of these tests wait: for a session to end, for a client to come back. Four at a time keep two cores busy. File by
# file, in this order: those that wait share their broker, and have the machine before those that calculate.
test: setup
	$(BIN)/python -m pytest tests -m "not real" -n 4 --dist loadfile --no-loadscope-reorder -q

# Of the Java that tests start, most lives for seconds: better soon ready than fast later.
test-real conformance: export SPARK_SUBMIT_OPTS = $(SOON_READY)
test-real conformance: export KAFKA_JVM_PERFORMANCE_OPTS = $(SOON_READY)
SOON_READY := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

test-real: setup
	-@scripts/kafka-install
	-@scripts/kafka-apps-ensure > /dev/null
	-@scripts/kcat-ensure > /dev/null
	-@scripts/kafkajs-ensure > /dev/null
	-@scripts/go-program-ensure tests/clients/go > /dev/null
	-@scripts/go-program-ensure tests/groups/go > /dev/null
	-@scripts/spark-oldest-ensure > /dev/null
	-@scripts/chromium-ensure > /dev/null
	-@scripts/spark-kafka-ensure > /dev/null
	$(BIN)/python -m pytest tests -m real -q -n 2 --dist loadfile $(SENSITIVE:%=--ignore %)
	$(BIN)/python -m pytest $(SENSITIVE) -m real -q

# Real parts that are slow to answer when another test has the machine.
SENSITIVE := tests/client tests/groups tests/spark tests/unit/spark

conformance: setup kafka
	$(BIN)/python -m pytest tests/conformance -q

MINUTES ?= 10
SEED    ?= 1

conformance-random: setup kafka
	$(BIN)/python -m tests.conformance.random_runs --minutes $(MINUTES) --seed $(SEED)

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

bench: setup kafka
	$(BIN)/python -m bench

performance: $(READY)
	$(BIN)/python -m bench.render

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build src/*.egg-info

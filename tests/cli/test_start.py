"""What `holdfast serve` loads and costs until it listens, and what the first requests load after that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from benchmarks.proc import cpu_seconds
from tests.broker.secured_broker import SecuredBroker
from tests.cli.processes import HOLDFAST
from tests.support.holdfast_broker import HoldfastBroker

NOT_FOR_SERVING = (
    "holdfast.client",
    "holdfast.membership",
    "holdfast.assignors",
    "holdfast.spark",
    *(f"holdfast.cli.{command}" for command in ("groups", "topics", "produce", "consume", "pipeline", "users")),
    "confluent_kafka",
    "numpy",
    "multiprocessing",
    "importlib.metadata",
    "email",
    "zipfile",
    "http",
    "unittest",
    "scramp",
    "asn1crypto",
)
MAX_TIMES_A_BARE_LOOP = 4.0
"""It was 4.6 while every message was a dataclass, and is 3.0."""

_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| *(\S+)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def warm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python processes that start now write a line for each import to stderr."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


@pytest.fixture
def watched_broker(importing: None) -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as broker:
        yield broker


def imports(log: str) -> set[str]:
    return set(_IMPORTED.findall(log))


def under(packages: tuple[str, ...], modules: set[str]) -> list[str]:
    return sorted(name for name in modules if any(name == one or name.startswith(one + ".") for one in packages))


def test_a_broker_loads_only_what_serving_needs(watched_broker: HoldfastBroker) -> None:
    loaded = imports(watched_broker.log_text())

    assert "holdfast.broker.server" in loaded
    assert under(NOT_FOR_SERVING, loaded) == []


def test_a_broker_with_scram_loads_it_before_it_listens(importing: None, tmp_path: Path) -> None:
    with SecuredBroker(tmp_path) as broker:
        before_ready = broker.log_text().split("holdfast listening on")[0]

    assert under(("scramp",), imports(before_ready)) != []


def test_the_first_requests_load_no_module(watched_broker: HoldfastBroker) -> None:
    """An import on the event loop would delay every client."""
    at_start = len(watched_broker.log_text())
    server = {"bootstrap.servers": watched_broker.bootstrap}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(server | {"compression.type": codec, "enable.idempotence": True})
        for _ in range(10):
            producer.produce("orders", b"a" * 1000)
        assert producer.flush(60) == 0
    consumer = Consumer(server | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(50, 60)) == 50
    consumer.commit(asynchronous=False)
    consumer.close()

    loaded = imports(watched_broker.log_text()[at_start:])

    assert {name for name in loaded if not name.startswith("encodings.")} == set()


def cpu_of_bare_loop() -> float:
    program = (
        "import asyncio, uvloop, time\n"
        "asyncio.Runner(loop_factory=uvloop.new_event_loop).run(asyncio.sleep(0))\n"
        "print(time.process_time())"
    )
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)


def cpu_of_start() -> float:
    with HoldfastBroker() as broker:
        return cpu_seconds(broker.pid)


def test_a_start_costs_a_few_times_the_cpu_of_a_bare_event_loop() -> None:
    cpu_of_start()  # writes the bytecode

    rounds = [(cpu_of_start(), cpu_of_bare_loop()) for _ in range(5)]

    start, bare = (min(figures) for figures in zip(*rounds, strict=True))
    assert start / bare < MAX_TIMES_A_BARE_LOOP, rounds


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("groups", "--help"), ("completion", "bash")])
def test_help_loads_no_event_loop(importing: None, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([*HOLDFAST, *arguments], capture_output=True, text=True, check=True, env=os.environ)

    loaded = imports(done.stderr)

    assert "holdfast.cli.parsing" in loaded
    assert under(("asyncio", "ssl", "holdfast.broker", "holdfast.client"), loaded) == []


def test_importing_the_package_loads_nothing_of_it(importing: None) -> None:
    done = subprocess.run([sys.executable, "-c", "import holdfast"], capture_output=True, text=True, check=True)

    assert under(("holdfast",), imports(done.stderr)) == ["holdfast", "holdfast.extras", "holdfast.version"]

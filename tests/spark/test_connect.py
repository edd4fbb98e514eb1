"""Spark Connect: the queries run in a server, not where the user's Python is. So do Spark Declarative Pipelines.

The programs are examples/spark/connect.py and examples/spark/declarative.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.groups.admins import ConfluentAdmin
from tests.spark.records import new_topic, values_of
from tests.support.eventually import DEADLINE_S
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.spark_connect import ConnectServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXAMPLES = REPOSITORY / "examples" / "spark"
PARTITIONS = 2
CUSTOMERS = ("anna", "bert", "carl")
SHOW_TABLES = """
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
orders = spark.table("orders").select("customer", "amount", "partition", "offset").collect()
revenue = spark.table("revenue").select("customer", "orders", "amount").orderBy("customer").collect()
print(json.dumps({"orders": sorted(orders), "revenue": revenue}))
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


def test_a_client_reads_and_writes_as_stream_and_as_batch(
    connect: ConnectServer, quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given payments of three customers, and two empty topics
    bootstrap, copy, totals = quick_holdfast.bootstrap, f"{topic}-copy", f"{topic}-totals"
    for name in (topic, copy, totals):
        new_topic(bootstrap, name, PARTITIONS)
    amounts = list(range(50, 170))
    _produce(bootstrap, topic, amounts)

    # when the client of the example runs
    names = {"topic": topic, "group": group, "copy": copy, "totals": totals, "checkpoint": str(tmp_path / "checkpoint")}
    given = {"remote": connect.url, "bootstrap-server": bootstrap, **names}
    said = _run([sys.executable, EXAMPLES / "connect.py", *_flags(given)], connect)

    # then each large payment was copied once, and their totals were written and returned
    large = [amount for amount in amounts if amount >= 100]
    assert sorted(values_of(bootstrap, copy), key=int) == [str(amount) for amount in large]
    expected = [sum(amount for amount in large if amount % 3 == number) for number in range(3)]
    assert sorted(values_of(bootstrap, totals)) == sorted(map(str, expected))
    assert said.splitlines() == [f"{name} paid {total}" for name, total in zip(CUSTOMERS, expected, strict=True)]
    assert ConfluentAdmin().offsets(bootstrap, group, topic) == dict.fromkeys(range(PARTITIONS), 60)


def test_a_declarative_pipeline_has_each_record_once_also_after_a_full_refresh(
    connect: ConnectServer, quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given the pipeline of the example with another broker, topic, group and storage
    bootstrap = quick_holdfast.bootstrap
    new_topic(bootstrap, topic, PARTITIONS)
    shutil.copytree(EXAMPLES / "declarative", tmp_path / "declarative")
    spec = tmp_path / "declarative" / "spark-pipeline.yml"
    text = (
        spec.read_text().replace("127.0.0.1:9092", bootstrap).replace("/tmp/holdfast-orders", str(tmp_path / "state"))
    )
    spec.write_text(text.replace("topic: orders", f"topic: {topic}").replace("group: orders-table", f"group: {group}"))

    # when it runs, and runs again after there are new records
    _produce(bootstrap, topic, range(12))
    _run_pipeline(connect, spec)
    first = _tables(connect)
    _produce(bootstrap, topic, range(12, 18))
    _run_pipeline(connect, spec)
    second = _tables(connect)

    # then the table has each record once, and the view was computed from all of them
    assert first == _expected(range(12))
    assert second == _expected(range(18))

    # and a full refresh reads the whole topic again
    _run_pipeline(connect, spec, "--full-refresh-all")
    assert _tables(connect) == second


def _run_pipeline(connect: ConnectServer, spec: Path, *arguments: str) -> None:
    said = _run(["spark-pipelines", "run", "--remote", connect.url, "--spec", spec, *arguments], connect)
    assert "Run is COMPLETED" in said


def _tables(connect: ConnectServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run([sys.executable, "-c", SHOW_TABLES], connect, SPARK_REMOTE=connect.url))
    return found


def _expected(amounts: Sequence[int]) -> dict[str, Any]:
    orders = [[CUSTOMERS[amount % 3], amount, amount % PARTITIONS, amount // PARTITIONS] for amount in amounts]
    revenue = []
    for number, customer in enumerate(CUSTOMERS):
        own = [amount for amount in amounts if amount % 3 == number]
        revenue.append([customer, len(own), sum(own)])
    return {"orders": sorted(orders), "revenue": revenue}


def _produce(bootstrap: str, topic: str, amounts: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for amount in amounts:
        producer.produce(topic, str(amount), key=CUSTOMERS[amount % 3], partition=amount % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def _flags(given: dict[str, str]) -> list[str]:
    return [part for name, value in given.items() for part in (f"--{name}", value)]


def _run(command: Sequence[str | Path], connect: ConnectServer, **environment: str) -> str:
    """What the program prints. It runs with the server's Python, and must end well."""
    done = subprocess.run(
        command,
        env={**connect.environment, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout

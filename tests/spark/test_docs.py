"""The examples of docs/spark.md work when pasted, one after the other."""

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.groups.topics import make_topic
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.quick_brokers import QUICK
from tests.support.spark_apps import spark_environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXAMPLES = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "spark.md").read_text(), re.DOTALL)
IMPORT = "import holdfast.spark\n"
READ_BACK = """
reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", "127.0.0.1:9092")
written = reader.option("subscribe", "invoices").load()
print(written.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect())
"""
LOOPBACK = 'import os; os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"\n'


@pytest.fixture
def without_activation(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell whose `python3` is another one, without Holdfast."""
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    inherited = spark_environment(Path(sys.executable), PATH=f"{other}/bin:/usr/bin:/bin")
    return {name: value for name, value in inherited.items() if name != "SPARK_HOME"}  # with the modules of pyspark


def run(code: str, environment: dict[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOOPBACK + code],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_examples_work_when_pasted_without_activating_the_environment(
    tmp_path: Path, without_activation: dict[str, str]
) -> None:
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, "orders", 2)
        make_topic(broker, "invoices", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", "first order", partition=0)
        assert producer.flush(30) == 0

        code = "\n".join([*EXAMPLES, READ_BACK]).replace("127.0.0.1:9092", broker.bootstrap)
        done = run(code, without_activation, tmp_path)

    assert done.returncode == 0, done.stderr[-3000:]
    stream, batch, sink = done.stdout.split("[Row(")
    assert re.search(r"\|first order\|orders\| +0\| +0\|", stream), done.stdout
    assert batch == "value='first order')]\n"
    assert sink == "key='order-1', value='12.50')]\n"


def test_without_the_import_spark_does_not_find_the_source(tmp_path: Path, without_activation: dict[str, str]) -> None:
    example = EXAMPLES[0]
    assert IMPORT in example

    done = run(example.replace(IMPORT, ""), without_activation, tmp_path)

    assert done.returncode == 1
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr

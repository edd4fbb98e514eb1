"""The examples of docs/pipelines.md work when pasted, one after the other."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.groups.topics import make_topic
from tests.spark.table_checks import landed_values
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.quick_brokers import QUICK
from tests.support.spark_apps import spark_environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PAGE = (REPOSITORY / "docs" / "pipelines.md").read_text().partition("\n## Forensics\n")[0]
COMMANDS = re.findall(r"\$ (holdfast pipeline .*)\n((?:[^$`].*\n)+)", PAGE)
READ, LAND, AGGREGATE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LOOPBACK = "--conf spark.driver.bindAddress=127.0.0.1 --conf spark.driver.host=127.0.0.1 pyspark-shell"


def run(arguments: list[str], directory: Path) -> str:
    python = Path(sys.executable)
    path = f"{REPOSITORY / 'src'}"
    environment = spark_environment(python, PYSPARK_PYTHON=str(python), PYTHONPATH=path, PYSPARK_SUBMIT_ARGS=LOOPBACK)
    done = subprocess.run(
        [str(python), *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def send(broker: HoldfastBroker, topic: str, *values: tuple[str | None, str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in values:
        producer.produce(topic, value, key=key, partition=0)
    assert producer.flush(30) == 0


def paste(broker: HoldfastBroker, directory: Path, names: list[str]) -> None:
    """The commands of the page with these names; they print what it says."""
    chosen = [(shlex.split(command), said) for command, said in COMMANDS if shlex.split(command)[2] in names]
    assert [words[2] for words, _ in chosen] == names
    for words, said in chosen:
        here = [word.replace("127.0.0.1:9092", broker.bootstrap) for word in words[1:]]
        printed = run(["-m", "holdfast.cli.main", *here], directory)
        assert re.fullmatch(re.escape(said.strip()).replace("…", ".*"), printed.strip()), printed


def test_the_examples_of_land_work_when_pasted(tmp_path: Path) -> None:
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, "orders", 1)
        send(broker, "orders", (None, "first order"))

        paste(broker, tmp_path, ["land", "land-compact"])
        send(broker, "orders", (None, "second order"))
        printed = run(["-c", LAND.replace("127.0.0.1:9092", broker.bootstrap)], tmp_path)
        read = run(["-c", READ], tmp_path)

    assert "2 records" in read
    assert landed_values(tmp_path / "lake") == [(0, 0, "first order"), (0, 1, "second order")]
    for at, order in enumerate(("first order", "second order")):
        assert re.search(rf"\| *{order}\| +0\| +{at}\|", printed), printed


def test_the_examples_of_aggregate_work_when_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, "payments", 1)
        send(broker, "payments", ("anna", "5"), ("bert", "3"), ("anna", "7"))

        paste(broker, tmp_path, ["aggregate", "aggregate-show"])
        send(broker, "payments", ("bert", "39"))
        printed = run(["-c", AGGREGATE.replace("127.0.0.1:9092", broker.bootstrap)], tmp_path)

    assert "0 bytes of state loaded" in printed
    for who, count, total in (("anna", 2, 12), ("bert", 2, 42)):
        assert re.search(rf"\| *{who}\| +{count}\| +{total}\|", printed), printed

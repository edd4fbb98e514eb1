"""The examples under "Forensics" in docs/pipelines.md work when pasted, one after the other."""

import json
import re
import shlex
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.groups.topics import make_topic
from tests.spark.test_land_docs import run
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.quick_brokers import QUICK

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PAGE = (REPOSITORY / "docs" / "pipelines.md").read_text().partition("\n## Forensics\n")[2]
((COMMAND, HEAD),) = re.findall(r"\$ (holdfast pipeline forensics .*)\n(.*)…\n", PAGE)
PICTURE = shlex.split(re.findall(r"With `(--picture \S+)`", PAGE)[0])
EXAMPLE, READING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_of_the_page_work_when_pasted(tmp_path: Path) -> None:
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, "orders", 2)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "orders"})
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "its assignment")
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()

        words = shlex.split(COMMAND.replace("127.0.0.1:9092", broker.bootstrap))
        printed = run(["-m", "holdfast.cli.main", *words[1:], *PICTURE], tmp_path)
        reported = json.loads((tmp_path / "report" / "report.json").read_text())
        pasted = run(["-c", (EXAMPLE + READING).replace("127.0.0.1:9092", broker.bootstrap)], tmp_path)

    assert printed.split()[: len(HEAD.split())] == HEAD.split()
    assert "\norders: 1 × a new member joined\n" in printed
    assert [(row["group_id"], row["rebalances"], row["emptied"]) for row in reported["shown"]] == [("orders", 1, 1)]
    assert printed.endswith("\nthe timeline of orders is in orders.png\n")
    assert (tmp_path / "orders.png").read_bytes().startswith(b"\x89PNG")
    assert "1 rebalances\n" in pasted
    by_deltalake, by_duckdb, by_polars, by_spark = (
        r"\d+ +a new member joined +\d+\n",
        r"│ a new member joined │ +1 │ +\d+ │",
        r"┆ a new member joined ┆",
        r"\|a new member joined\|",
    )
    for found in (by_deltalake, by_duckdb, by_polars, by_spark):
        assert re.search(found, pasted), pasted

"""The examples of docs/spark.md work when pasted, one after the other."""

import re
import subprocess
import sys
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
READ_BACK = """
reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", "127.0.0.1:9092")
written = reader.option("subscribe", "invoices").load()
print(written.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect())
"""
LOOPBACK = 'import os; os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"\n'


def test_the_examples_of_the_page_work_when_pasted(tmp_path: Path) -> None:
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, "orders", 1)
        make_topic(broker, "invoices", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", "first order")
        assert producer.flush(30) == 0

        code = LOOPBACK + "\n".join([*EXAMPLES, READ_BACK]).replace("127.0.0.1:9092", broker.bootstrap)
        python = Path(sys.executable)
        done = subprocess.run(
            [python, "-c", code],
            env=spark_environment(python, PYSPARK_PYTHON=str(python)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    assert done.returncode == 0, done.stderr[-3000:]
    stream, batch, sink = done.stdout.split("[Row(")
    assert re.search(r"\|first order\|orders\| +0\| +0\|", stream), done.stdout
    assert batch == "value='first order')]\n"
    assert sink == "key='order-1', value='12.50')]\n"

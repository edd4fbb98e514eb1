"""What can be reported before Spark runs, and errors of Spark in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.forensics.job import check, spark_error_text
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("options", "source", "rules", "said"),
    [
        ({}, "auto", ForensicsThresholds(), "option kafka.bootstrap.servers is missing"),
        ({**BROKER, "subscribe": "orders"}, "auto", ForensicsThresholds(), "option 'subscribe' is not for forensics"),
        ({**BROKER, "kafka.no.such": "1"}, "auto", ForensicsThresholds(), "no.such"),
        (BROKER, "zookeeper", ForensicsThresholds(), "source is 'zookeeper'; it can be auto, ledger, offsets"),
        (BROKER, "auto", ForensicsThresholds(since_ms=5, until_ms=5), "ends before it begins"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, options: dict[str, str], source: str, rules: ForensicsThresholds, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(tmp_path / "report", options, source, rules)
    check(tmp_path / "report", BROKER, "auto", ForensicsThresholds())  # the control


def test_what_a_task_failed_with_is_found_in_the_stack() -> None:
    said = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
  File "/somewhere/fetching.py", line 1, in _too_late
holdfast.client.errors.ConnectionFailed: nothing could be read of t-0 from 3 on for 60 s
    at org.apache.spark.api.python.BasePythonRunner
"""
    assert spark_error_text(said) == "Spark could not finish the job: nothing could be read of t-0 from 3 on for 60 s"
    assert (
        spark_error_text("\n[OUT_OF_MEMORY] too much\n at java")
        == "Spark could not finish the job: [OUT_OF_MEMORY] too much"
    )
    assert spark_error_text("") == "Spark could not finish the job: it does not say why"

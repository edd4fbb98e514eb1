"""The case about the Python client is held against both clients it is measured beside."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from benchmarks.cases import consume_client
from benchmarks.cases.consume_client import CONFLUENT, KAFKA_PYTHON
from benchmarks.group_reader import READERS, read
from benchmarks.measure import HOLDFAST, Result, Row

SHAPE = "100 B, 12 partitions"


def measured(rates: dict[str, float]) -> Result:
    figures = dict.fromkeys(("client_cpu_per_million", "server_cpu_per_million", "client_cores"), 1.0)
    rows = [Row(SHAPE, client, 1, {"records_per_s": rate, **figures}) for client, rate in rates.items()]
    settings = {"records": {SHAPE: 1}, "consumer": {"check.crcs": False}, "librdkafka": {}, "consume_at_once": 10_000}
    return Result(consume_client.NAME, settings, rows)


@pytest.mark.parametrize(
    ("confluent", "kafka_python", "met"),
    [(100.0, 45.0, [True, True]), (101.0, 45.0, [False, True]), (100.0, 46.0, [True, False])],
)
def test_it_must_be_near_the_one_and_far_from_the_other(confluent: float, kafka_python: float, met: list[bool]) -> None:
    result = measured({HOLDFAST: 90.0, CONFLUENT: confluent, KAFKA_PYTHON: kafka_python})

    assert [one.met for one in consume_client.verdicts(result)] == met


def test_every_client_that_is_measured_is_shown_with_its_ratio() -> None:
    page = consume_client.section(measured(dict.fromkeys(READERS, 90.0)))

    shown = [line for line in page if line.startswith(f"| {SHAPE}")]
    assert len(shown) == len(READERS) == 3
    assert ["×" in line for line in shown] == [False, True, True]
    assert "`check.crcs=false`" in "\n".join(page)


class Scripted:
    """A client that is given its partitions, then gets records in portions; or is given partitions again meanwhile."""

    def __init__(self, portions: list[int], assigned_at: set[int]) -> None:
        self._portions = portions
        self._assigned_at = assigned_at
        self.closed = False

    def read(self, on_assign: Callable[[], None]) -> Callable[[], int]:
        turns = iter(enumerate(self._portions))

        def take() -> int:
            number, portion = next(turns)
            if number in self._assigned_at:
                on_assign()
            return portion

        return take

    def close(self) -> None:
        self.closed = True


def test_the_watch_runs_from_the_assignment_and_a_second_one_spoils_the_round() -> None:
    good = Scripted([0, 3, 2], {0})
    assert read(good, records=5, record_bytes=100, server_pid=os.getpid())["records"] == 5
    assert good.closed
    with pytest.raises(ValueError, match="too many values"):
        read(Scripted([0, 3, 2], {0, 2}), records=5, record_bytes=100, server_pid=os.getpid())

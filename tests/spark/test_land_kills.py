"""Two queries land one topic, as processes of their own in one group. Either is killed, and the broker, and one is
paused for so long that the other one has its partitions, while sequence numbers flow: in the end every one of them is
in the table once, on a disk and in S3."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.spark.pipelines.location import Location
from tests.groups.topics import make_topic
from tests.spark.pipeline_processes import (
    PARTITIONS,
    PATIENCE_S,
    SESSION_MS,
    TERMINATED,
    TOPIC,
    Numbers,
    PipelineProcess,
    TwoProcesses,
)
from tests.spark.table_checks import Place, ends, landed_values, unlisted
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.process_tree import descendants
from tests.support.quick_brokers import QUICK
from tests.support.s3_emulator import s3_emulator

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

GROUP = "lake"


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "disk":
        yield tmp_path / "lake"
        return
    with s3_emulator() as s3:
        yield Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)


@contextlib.contextmanager
def paused_in_a_batch(one: PipelineProcess, table: Place) -> Iterator[None]:
    """Its driver and all of its processes stand still, if possible between the files of a batch and its commit."""
    before = unlisted(table)
    with contextlib.suppress(AssertionError):  # batches are short; then it is paused between two of them
        eventually(lambda: unlisted(table) - before, "a batch", 5)
    pids = [one._process.pid, *descendants(one._process.pid)]
    try:
        _send(pids, signal.SIGSTOP)
        yield
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def live_through_a_pause(queries: TwoProcesses, numbers: Numbers, table: Place) -> None:
    """When the first one goes on, it is a zombie: it commits a batch of partitions that the other one has landed."""
    with paused_in_a_batch(queries.first, table):
        beyond = numbers.count + 1
        eventually(lambda: min(ends(table).values()) > beyond, f"the end of a session of {SESSION_MS} ms", PATIENCE_S)
    queries.await_progress()


def test_every_sequence_number_is_there_once_after_any_kill_or_pause(tmp_path: Path, table: Place) -> None:
    options = table.storage_options if isinstance(table, Location) else {}
    storage = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, TOPIC, PARTITIONS)
        numbers = Numbers(broker.bootstrap)
        with numbers.flowing():
            queries = TwoProcesses(
                ["land", "--path", str(table), *storage],
                broker.bootstrap,
                GROUP,
                tmp_path,
                numbers,
                ends=lambda: ends(table),
                unlisted=lambda: unlisted(table),
                records="rows",
            )
            queries.live_through_kills(
                broker, is_enough=lambda: queries.has_cut_off() or queries.sum_of("already_landed") > 0
            )
            live_through_a_pause(queries, numbers, table)
        assert numbers.unsent == 0
        # then they come to the end, and end well when they are asked to
        queries.await_end()
        assert [one.stop() for one in queries.both] == [TERMINATED, TERMINATED], queries.both

    expected = [(partition, at, str(at)) for partition in range(PARTITIONS) for at in range(numbers.count)]
    assert landed_values(table) == expected
    assert queries.sum_of("already_landed") or unlisted(table), (
        "the control: some batch was cut off, or read again by its next owner"
    )

"""Two queries count one topic, as processes of their own in one group. Either is killed, and the broker, while sequence
numbers flow: in the end every total is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.spark.pipelines.location import Location
from tests.groups.topics import make_topic
from tests.spark.count_checks import total_ends, totals, unlisted_runs
from tests.spark.pipeline_processes import PARTITIONS, TERMINATED, TOPIC, Numbers, TwoProcesses
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.s3_emulator import s3_emulator

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

GROUP, KEYS = "totals", 50
AMOUNT = "CAST(CAST(value AS STRING) AS BIGINT)"


def two_queries(
    location: Location, broker: HoldfastBroker, directory: Path, numbers: Numbers, more: Sequence[str] = ()
) -> TwoProcesses:
    return TwoProcesses(
        ["aggregate", "--path", str(location), "--amount", AMOUNT, *more],
        broker.bootstrap,
        GROUP,
        directory,
        numbers,
        ends=lambda: total_ends(location),
        unlisted=lambda: unlisted_runs(location),
        records="records",
    )


def expected_totals(count: int) -> dict[tuple[int, str], tuple[int, int, int, int]]:
    return {
        (partition, f"key {key}"): (len(of_key), sum(of_key), of_key[-1], of_key[-1])
        for partition in range(PARTITIONS)
        for key in range(KEYS)
        if (of_key := range(key, count, KEYS))
    }


def test_every_total_is_right_after_any_kill(tmp_path: Path) -> None:
    location = Location.parse(tmp_path / "totals")
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, TOPIC, PARTITIONS)
        numbers = Numbers(broker.bootstrap, KEYS)
        with numbers.flowing():
            queries = two_queries(location, broker, tmp_path, numbers, ["--cache", str(tmp_path / "cache")])
            queries.live_through_kills(broker, is_enough=lambda: queries.sum_of("loaded_bytes") > 0)
        assert numbers.unsent == 0
        # then they come to the end, and end well when they are asked to
        queries.await_end()
        assert [one.stop() for one in queries.both] == [TERMINATED, TERMINATED], queries.both

    assert totals(location) == expected_totals(numbers.count)
    assert queries.sum_of("loaded_bytes") > 0, "the control: state has moved with its partitions"


def test_every_total_in_s3_is_right_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter: the one that is left takes over the other's partitions, with the state in S3."""
    with s3_emulator() as s3, HoldfastBroker(QUICK) as broker:
        # given two queries, whose caches and checkpoints are where they are by default
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        for name, value in s3.options.items():
            if "KEY" in name:  # processes show their arguments, and not their environment
                monkeypatch.setenv(name, value)
        storage = {name: value for name, value in s3.options.items() if "KEY" not in name}
        location = Location.parse(f"s3://{s3.new_bucket()}/totals", "state", storage)
        more = [f"--storage={name}={value}" for name, value in storage.items()]
        make_topic(broker, TOPIC, PARTITIONS)
        numbers = Numbers(broker.bootstrap, KEYS)
        with numbers.flowing():
            queries = two_queries(location, broker, tmp_path, numbers, more)
            queries.await_progress()
            # when
            queries.kill_in_a_batch(queries.first)
        # then
        queries.await_end()
        assert queries.second.stop() == TERMINATED, queries.second
        assert totals(location) == expected_totals(numbers.count)
        assert queries.sum_of("loaded_bytes") > 0, "the control: state has moved with its partitions"
        cached = tmp_path / "cache" / "holdfast" / "aggregate" / location.digest / f"{GROUP}-2"
        assert len(list(cached.glob("*/offsets"))) == 1, "its checkpoint"

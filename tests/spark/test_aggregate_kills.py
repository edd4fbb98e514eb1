"""Two queries count one topic, as processes of their own in one group. Either is killed, and the broker, while sequence
numbers flow: in the end every total is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.groups.topics import make_topic
from tests.spark.count_checks import total_ends, totals, unlisted_runs
from tests.spark.pipeline_processes import PARTITIONS, TERMINATED, TOPIC, Numbers, TwoProcesses
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

GROUP, KEYS = "totals", 50
AMOUNT = "CAST(CAST(value AS STRING) AS BIGINT)"


def test_every_total_is_right_after_any_kill(tmp_path: Path) -> None:
    state = tmp_path / "totals"
    with HoldfastBroker(QUICK) as broker:
        make_topic(broker, TOPIC, PARTITIONS)
        numbers = Numbers(broker.bootstrap, KEYS)
        with numbers.flowing():
            queries = TwoProcesses(
                ["aggregate", "--path", str(state), "--amount", AMOUNT, "--cache", str(tmp_path / "cache")],
                broker.bootstrap,
                GROUP,
                tmp_path,
                numbers,
                ends=lambda: total_ends(state),
                unlisted=lambda: unlisted_runs(state),
                records="records",
            )
            queries.live_through_kills(broker, is_enough=lambda: queries.sum_of("loaded_bytes") > 0)
        assert numbers.unsent == 0
        # then they come to the end, and end well when they are asked to
        queries.await_end()
        assert [one.stop() for one in queries.both] == [TERMINATED, TERMINATED], queries.both

    assert totals(state) == {
        (partition, f"key {key}"): (len(of_key), sum(of_key), of_key[-1], of_key[-1])
        for partition in range(PARTITIONS)
        for key in range(KEYS)
        if (of_key := range(key, numbers.count, KEYS))
    }
    assert queries.sum_of("loaded_bytes") > 0, "the control: state has moved with its partitions"

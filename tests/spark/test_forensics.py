"""`forensics` on a real Spark and real brokers: the figures are what the test did to its groups."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from holdfast.client.errors import ConfigError, GroupError, TopicError
from holdfast.coordinator.events.causes import CauseCode
from holdfast.spark import ForensicsThresholds, forensics
from holdfast.spark.pipelines.forensics.inferred_causes import InferredCause
from holdfast.spark.pipelines.forensics.report import Report
from tests.client_compat.servers import Server
from tests.groups.topics import PARTITIONS, make_topic
from tests.spark.streaming_queries import PlainMember
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ALL = set(range(PARTITIONS))


def table(report: Report, name: str, **where: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(report.path / name).to_pyarrow_table().to_pylist()
    return [row for row in rows if all(row[column] == value for column, value in where.items())]


def options(server: Server) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap}


class Pair:
    """Two members of a group, of which the second is stopped and started again. They live until the test ends."""

    def __init__(self, server: Server, group: str, topic: str, ending: ExitStack, *, static: bool) -> None:
        self._start = (server.bootstrap, group, topic)
        self._ending = ending
        self._static = static
        self.first = self._member("a")
        eventually(lambda: self.first.partitions == ALL, "all partitions for the first")
        self.second = self._member("b")
        self._both_are_assigned()

    def restart_the_second(self) -> None:
        self.second.stop()
        if not self._static:
            eventually(lambda: self.first.partitions == ALL, "all partitions for the one that is left")
        self.second = self._member("b")
        self._both_are_assigned()

    def _member(self, name: str) -> PlainMember:
        static = {"group_instance_id": name} if self._static else {}
        settings = {"partition_assignment_strategy": "range", "client_id": name, **static}
        member = PlainMember("confluent", *self._start, settings)
        self._ending.callback(member.stop)
        return member

    def _both_are_assigned(self) -> None:
        def shared() -> bool:
            first, second = self.first.partitions, self.second.partitions
            return bool(first) and bool(second) and first | second == ALL and not first & second

        eventually(shared, "an assignment for both")


def set_back(server: Server, group: str, topic: str, *offsets: int) -> None:
    """Commits from outside of the group, one after the other."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, "enable.auto.commit": False})
    for offset in offsets:
        consumer.commit(offsets=[TopicPartition(topic, 1, offset)], asynchronous=False)
    consumer.close()


def test_restarts_cost_a_dynamic_member_two_rebalances_and_a_static_one_none(
    spark: Any, server: Server, topic: str, group: str, ending: ExitStack, tmp_path: Path
) -> None:
    # given two groups that are treated alike, and one whose offset is set back
    make_topic(server, topic, PARTITIONS)
    static, dynamic, back = f"{group}-static", f"{group}-dynamic", f"{group}-<b>back"
    for name in (static, dynamic):
        Pair(server, name, topic, ending, static=name == static).restart_the_second()
    set_back(server, back, topic, 100, 120, 40)

    # when
    report = forensics(spark, tmp_path / "report", options(server), [static, dynamic, back])

    # then
    figures = {row["group_id"]: row for row in report.shown}
    assert report.groups == 3
    assert [figures[static][name] for name in ("rebalances", "static_rejoins", "moved")] == [2, 1, 2]
    assert [figures[dynamic][name] for name in ("rebalances", "static_rejoins", "moved")] == [4, 0, 6]
    assert [figures[name]["static_rebalances"] for name in (static, dynamic)] == [0, 2]
    assert [figures[name]["two_owners"] for name in (static, dynamic)] == [0, 0]
    is_kafka = "__group_ledger" not in report.sources
    assert figures[dynamic]["causes"] == (
        {InferredCause.MEMBERS_ADDED: 3, InferredCause.MEMBERS_REMOVED: 1}
        if is_kafka
        else {CauseCode.MEMBER_JOINED: 3, CauseCode.MEMBER_LEFT: 1}
    )
    assert figures[dynamic]["is_lower_bound"] == is_kafka

    (step,) = table(report, "went_back")
    assert (step["group_id"], step["topic"], step["partition"]) == (back, topic, 1)
    assert (step["from_offset"], step["to_offset"], step["circumstances"]) == (120, 40, "while it had no owner")
    for name in (static, dynamic):
        going_on = [row for row in table(report, "ownership", group_id=name) if row["to_ms"] is None]
        assert {row["partition"] for row in going_on} == ALL
    owners = {row["member"] for row in table(report, "ownership", group_id=dynamic)}
    assert len(owners) == 3, "a, b, and b under another id"
    assert {row["member"] for row in table(report, "ownership", group_id=static)} == {"a", "b"}

    page = (report.path / "timeline.html").read_text()
    assert page.count("<svg") == 2, "nobody owned anything in the third"
    assert page.count('class="rebalance"') == 6
    assert "&lt;b&gt;back" in page and "<b>" not in page


def test_what_was_asked_for_and_is_not_there_is_one_sentence(
    spark: Any, server: Server, topic: str, group: str, tmp_path: Path
) -> None:
    make_topic(server, topic, PARTITIONS)
    set_back(server, group, topic, 10)
    out = tmp_path / "report"

    with pytest.raises(GroupError, match=rf"have no records of group '{group}-nobody': check its name"):
        forensics(spark, out, options(server), [group, f"{group}-nobody"])
    with pytest.raises(ConfigError, match="ends before it begins"):
        forensics(spark, out, options(server), thresholds=ForensicsThresholds(since_ms=2, until_ms=1))
    with pytest.raises(TopicError, match=re.escape("there is no a-copy: Apache Kafka has no ledger")):
        forensics(spark, out, options(server), source="ledger", ledger_topic="a-copy")

    assert not out.exists() and [*tmp_path.iterdir()] == []
    report = forensics(spark, out, options(server), [group], source="offsets")
    assert [row["group_id"] for row in report.shown] == [group], "the control"


def test_a_window_of_time_leaves_out_what_was_over_and_what_came_later(
    spark: Any, quick_holdfast: Server, topic: str, group: str, ending: ExitStack, tmp_path: Path
) -> None:
    make_topic(quick_holdfast, topic, PARTITIONS)
    Pair(quick_holdfast, group, topic, ending, static=False).restart_the_second()
    whole = forensics(spark, tmp_path / "whole", options(quick_holdfast), [group])
    second, third = (row["started_ms"] for row in sorted(table(whole, "rebalances"), key=_by_start)[1:3])

    window = ForensicsThresholds(since_ms=second, until_ms=third - 1)
    report = forensics(spark, tmp_path / "window", options(quick_holdfast), [group], thresholds=window)
    ledger_only = forensics(spark, tmp_path / "ledger", options(quick_holdfast), [group], source="ledger")

    assert [row["rebalances"] for row in whole.shown] == [4], "the control"
    assert [(row["rebalances"], row["moved"]) for row in report.shown] == [(1, 2)]
    assert [(row["rebalances"], row["static_rebalances"]) for row in ledger_only.shown] == [(4, 2)]
    assert table(ledger_only, "ownership") == []


def test_foreign_records_in_the_ledger_do_not_stop_the_report_of_a_group(
    spark: Any, quick_holdfast: Server, topic: str, tmp_path: Path
) -> None:
    # given a copy of a ledger without a record
    make_topic(quick_holdfast, topic, 1)
    reported = {"source": "ledger", "ledger_topic": topic}
    nothing = forensics(spark, tmp_path / "nothing", options(quick_holdfast), **reported)
    # when, beside an event, odd ones are in it
    event = {"kind": "assigned", "generation": 1, "cause": "protocol range", "members": 1, "unassigned_ms": 5}
    producer = Producer({"bootstrap.servers": quick_holdfast.bootstrap})
    for key, about in ((b"orders", {}), (b"\xff", {}), (b"orders", {"generation": 2**40})):
        producer.produce(topic, json.dumps(event | about).encode(), key=key)
    producer.produce(topic, json.dumps(event).encode(), key=b"early", timestamp=1)
    producer.produce(topic, b"[" * 100_000, key=b"orders")
    assert producer.flush(60) == 0
    report = forensics(spark, tmp_path / "report", options(quick_holdfast), **reported)

    # then
    assert (nothing.groups, nothing.notes) == (0, [f"nothing to report: there is no group in {topic}"])
    assert "nothing to report" in (nothing.path / "timeline.html").read_text()
    assert {row["group_id"]: row["rebalances"] for row in report.shown} == {"orders": 1, "early": 1, "\ufffd": 1}
    assert report.unread == {"__group_ledger: no event": 2}


def _by_start(row: dict[str, Any]) -> int:
    return int(row["started_ms"])

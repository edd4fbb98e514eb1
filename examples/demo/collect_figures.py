"""Collects the data of one run of the scenario, and computes its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from examples.demo.figures import DELAY_MS, Owned, Processed, RecordCounts, count_records, moves
from examples.demo.processes import TIMEOUT_S, DemoFailed, read_event_log, wait_for
from examples.demo.producer import PARTITIONS
from examples.demo.scenario import NEWCOMERS, Outcome
from holdfast import Admin
from holdfast.coordinator.events.group_event import EventKind


@dataclass(frozen=True)
class Figures:
    """One column of the report."""

    static: bool
    group: str
    records: int
    restarts: int
    rebalances: int
    moved: int
    loaded_bytes: int
    counts: RecordCounts
    newcomers: int
    scale_up_rebalances: int

    def figures(self) -> dict[str, int]:
        """By the names in the report."""
        return {
            "records": self.records,
            "restarts": self.restarts,
            "rebalances": self.rebalances,
            "partitions_moved": self.moved,
            f"records_delayed_over_{DELAY_MS}_ms": self.counts.delayed,
            "of_these_of_members_that_were_not_restarted": self.counts.delayed_elsewhere,
            "bytes_of_state_loaded": self.loaded_bytes,
            "records_lost": self.counts.lost,
            "records_duplicated": self.counts.duplicated,
            "newcomers": self.newcomers,
            "rebalances_by_the_scale_up": self.scale_up_rebalances,
        }


def collect_figures(bootstrap: str, played: Outcome, owned: list[Owned]) -> Figures:
    written = _written(bootstrap, played.topic)
    window = played.began_ms, played.restarted_ms
    away = {worker.name: worker.restarts for worker in played.workers}
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        started = [one.at_ms for one in admin.history([played.group]) if one.kind == EventKind.REBALANCE_STARTED]
    return Figures(
        played.static,
        played.group,
        records=sum(map(len, written.values())),
        restarts=sum(map(len, away.values())),
        rebalances=sum(played.began_ms <= at_ms < played.restarted_ms for at_ms in started),
        moved=moves(owned, *window),
        loaded_bytes=_loaded(played),
        counts=count_records(written, _processed(played), owned, away, window),
        newcomers=NEWCOMERS,
        scale_up_rebalances=sum(played.restarted_ms <= at_ms < played.ended_ms for at_ms in started),
    )


def _written(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The timestamps of all records, by partition, in the order of offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places)
        consumer.assign(places)
        times: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        while left:
            messages: list[Any] = wait_for(partial(consumer.consume, min(left, 10_000), 1.0), f"the records of {topic}")
            if any(one.error() is not None for one in messages):
                raise DemoFailed(f"{topic} cannot be read")
            for one in messages:
                times[one.partition()].append(one.timestamp()[1])
            left -= len(messages)
        return times
    finally:
        consumer.close()


def _processed(played: Outcome) -> Iterator[Processed]:
    """For consumers from their event logs, for queries from the versions of the state: records that no version covers
    were not aggregated."""
    for worker in played.workers:
        for event in read_event_log(worker.event_log):
            for partition, first, end in event.get("ranges", ()):
                yield Processed(worker.name, partition, first, end, event["at_ms"])
    for path in played.state.glob(f"topics/{played.topic}/*/versions/*.json"):
        version = _version(path)
        if not version["is_lost"]:
            yield Processed("query", version["partition"], version["first"], version["end"], version["at_ms"])


def _version(path: Path) -> Mapping[str, int]:
    version: Mapping[str, int] = json.loads(path.read_bytes())
    return version


def _loaded(played: Outcome) -> int:
    """By all queries, during the restarts."""
    return sum(
        event.get("loaded_bytes", 0)
        for worker in played.workers
        for event in read_event_log(worker.event_log)
        if played.began_ms <= event["at_ms"] < played.restarted_ms
    )

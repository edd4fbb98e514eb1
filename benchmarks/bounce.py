"""Restarts the members of a group one after the other: `python -m benchmarks.bounce '{...}'` prints one JSON object.

All members are consumers of confluent-kafka in this one process, each with its own thread; another process
(`benchmarks.steady_producer`) produces the records. A pause is a gap between two records of a member that is not being
restarted itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from benchmarks.steady import records, until

CONSUMER: Final[dict[str, Any]] = {
    "auto.offset.reset": "latest",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 45_000,  # which a restart must not exceed; librdkafka's default
    "log_level": 0,
}
PATIENCE_SECONDS: Final = 90
_WAIT_SECONDS: Final = 0.2


class Member:
    """A consumer and its thread. The effects of its own restart are not counted."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        heartbeat_ms: int,
        static: bool,
        commit_ms: int = 5_000,
    ) -> None:
        self._settings = {
            **CONSUMER,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "heartbeat.interval.ms": heartbeat_ms,
            "auto.commit.interval.ms": commit_ms,
        }
        if static:
            self._settings["group.instance.id"] = f"member-{number:02}"
        self._topic = topic
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._last_record = 0.0
        self.longest_gap = 0.0
        self.revocations = 0

    def start(self) -> None:
        self._last_record = 0.0
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    @property
    def has_records(self) -> bool:
        """Since it was started."""
        if self._failure is not None:
            raise self._failure
        return self._last_record > 0

    def begin_window(self) -> None:
        self.longest_gap = 0.0
        self.revocations = 0

    def end_window(self) -> None:
        """A member that is currently waiting also has a gap."""
        self.longest_gap = max(self.longest_gap, time.monotonic() - self._last_record)

    def _run(self) -> None:
        try:
            consumer = Consumer(self._settings)
            consumer.subscribe([self._topic], on_revoke=self._revoked)
            while not self._stopping.is_set():
                self._take(consumer.poll(_WAIT_SECONDS))
            consumer.close()  # a static member does not leave with it
        except Exception as failure:  # noqa: BLE001 - raised in the thread that waits for this member
            self._failure = failure

    def _take(self, message: Message | None) -> None:
        if message is None or self._stopping.is_set():
            return
        if (error := message.error()) is not None:
            raise KafkaException(error)
        now = time.monotonic()
        if self._last_record:
            self.longest_gap = max(self.longest_gap, now - self._last_record)
        self._last_record = now

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
        if not self._stopping.is_set():
            self.revocations += 1


def run(
    bootstrap: str,
    group: str,
    topic: str,
    partitions: int,
    members: int,
    bounces: int,
    heartbeat_ms: int,
    static: bool,
) -> dict[str, float]:
    """Restarts `bounces` of the members one by one, then observes all of them without restarts for the same time."""
    everybody = [
        Member(number, bootstrap, group, topic, heartbeat_ms=heartbeat_ms, static=static) for number in range(members)
    ]
    with records(bootstrap, topic, partitions, PATIENCE_SECONDS):
        for member in everybody:
            member.start()
        until(lambda: all(member.has_records for member in everybody), "all members have records", PATIENCE_SECONDS)
        until(lambda: _are_settled(everybody, 1.5 * heartbeat_ms / 1000), "no more rebalances", PATIENCE_SECONDS)
        away: list[float] = []

        def bounce_them() -> None:
            away.extend(_restart(member) for member in everybody[:bounces])
            # Effects of the last restart are visible within a heartbeat interval.
            time.sleep(2 * heartbeat_ms / 1000)

        bounced = _window(everybody, bounce_them)
        quiet = _window(everybody, lambda: time.sleep(bounced["seconds"]))
        threads = [threading.Thread(target=member.stop) for member in everybody]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        "bounces": bounces,
        "seconds": bounced["seconds"],
        "rebalances": bounced["rebalances"],
        "gap_s": bounced["gap_s"],
        "quiet_gap_s": quiet["gap_s"],
        "quiet_rebalances": quiet["rebalances"],
        "away_s": statistics.median(away),
    }


def _restart(member: Member) -> float:
    """How long it took, in seconds, until it had records again."""
    began = time.monotonic()
    member.stop()
    member.start()
    until(lambda: member.has_records, "a restarted member has records", PATIENCE_SECONDS)
    return time.monotonic() - began


def _are_settled(everybody: list[Member], seconds: float) -> bool:
    """No member has lost its partitions for longer than it takes to learn of a rebalance."""
    seen = sum(member.revocations for member in everybody)
    time.sleep(seconds)
    return seen == sum(member.revocations for member in everybody) and all(member.has_records for member in everybody)


def _window(everybody: list[Member], action: Callable[[], None]) -> dict[str, float]:
    """The observations of the members while the action ran."""
    began = time.monotonic()
    for member in everybody:
        member.begin_window()
    action()
    for member in everybody:
        member.end_window()
    return {
        "seconds": time.monotonic() - began,
        "rebalances": max(member.revocations for member in everybody),
        "gap_s": max(member.longest_gap for member in everybody),
    }


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))

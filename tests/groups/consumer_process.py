"""What the Python consumers of these tests share: how they get their commands, and how they report events.

They run as processes of their own, so that one can be killed, and print an event per line in the words of Kafka's own
`VerifiableConsumer`, so that a test reads all clients the same way.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

POLL_S = 0.1
ENDLESS_POLL_S = 600.0
"""Longer than a test: no poll of kafka-python ends because of its timeout. One that does forgets the join that it is in
(3.0.12, `join_group_async`). If the join is done just then, the next poll joins again; where the member leads, that is
one more rebalance for everybody. And if a leader joins because its topic has grown, and has shared it out but has no
answer to its sync yet, then nothing reminds the next poll of the join (`need_rejoin`): on any broker it stays without
partitions and without heartbeats for good. After a broker's end, however, long polls of kafka-python stall: a test that
ends one has its members poll for POLL_S."""


@dataclass(frozen=True)
class ConsumerConfig:
    """A consumer in a group, in the same few words for every client."""

    bootstrap: str
    topic: str
    group: str
    instance_id: str | None = None
    assignor: str = "range"
    session_timeout_ms: int = 45_000
    """Outlasts the restart of a JVM on a busy machine: members that are to expire soon set a shorter one."""
    heartbeat_interval_ms: int = 200
    metadata_max_age_ms: int = 300_000
    group_protocol: str | None = None
    poll_s: float = ENDLESS_POLL_S
    """Of kafka-python."""
    request_timeout_ms: int = 40_000
    """Of aiokafka, which waits no longer for the answer to a join either; the others wait for the rebalance."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def config_from_arguments() -> ConsumerConfig:
    return ConsumerConfig(**json.loads(sys.argv[1]))


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"name": name} | fields), flush=True)


def report_partitions(name: str, partitions: Iterable[Any]) -> None:
    """`partitions_assigned` or `partitions_revoked`, with the partitions as the client gives them."""
    report(name, partitions=[{"topic": tp.topic, "partition": tp.partition} for tp in partitions])


def report_consumed(offsets: Mapping[tuple[str, int], list[int]]) -> None:
    ranges = [
        {"topic": topic, "partition": partition, "count": len(seen), "minOffset": seen[0], "maxOffset": seen[-1]}
        for (topic, partition), seen in offsets.items()
    ]
    report("records_consumed", count=sum(map(len, offsets.values())), partitions=ranges)


def report_committed(offsets: Mapping[tuple[str, int], int], error: Exception | None = None) -> None:
    committed = [{"topic": topic, "partition": at, "offset": offset} for (topic, at), offset in offsets.items()]
    report("offsets_committed", offsets=committed, success=error is None, error=repr(error) if error else None)


def next_offsets(offsets: Mapping[tuple[str, int], list[int]]) -> dict[tuple[str, int], int]:
    """What to commit after these records."""
    return {partition: seen[-1] + 1 for partition, seen in offsets.items()}

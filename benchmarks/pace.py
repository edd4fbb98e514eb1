"""Records at a steady rate and a consumer that waits for them (benchmarks/pace.c), in a separate process."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from benchmarks.librdkafka import end_offsets
from benchmarks.load import program
from benchmarks.measure import per_million
from benchmarks.proc import cpu_seconds_with_children
from benchmarks.servers import Broker
from benchmarks.wire import request_frame
from holdfast.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.records import Record, encode_batch

PRODUCE_VERSION: Final = 7
FETCH_VERSION: Final = 11
"""The last versions before flexible ones, so that the fields that the C program reads have fixed positions."""
MAX_WAIT_MS: Final = 500
_MAX_BYTES: Final = 1 << 20
_PRODUCE_TIMEOUT_MS: Final = 10_000
_OFFSET_MARK: Final = 0x0123_4567_89AB_CDEF
"""A placeholder for the fetch offset until its position in the frame is known."""
_PATIENCE_S: Final = 90.0


@dataclass(frozen=True)
class Pace:
    rate: int
    seconds: float
    """At most; it may be stopped earlier."""
    record_bytes: int = 100
    key: bytes | None = None
    """For topics that are compacted."""


class Paced:
    """The load from creation until `finish` or `stop`; figures in ms from the moment at which a record was due."""

    def __init__(self, pace: Pace, broker: Broker, topic: str) -> None:
        self._pace, self._pid = pace, broker.pid
        (start,) = end_offsets(broker, topic, partitions=1)
        fetch, offset_at = fetch_frame(topic)
        numbers = (broker.address[1], pace.rate, pace.seconds, start, offset_at, len(topic.encode()))
        self._cpu_before = cpu_seconds_with_children(self._pid)
        self._process = subprocess.Popen(
            [program("pace"), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(produce_frame(topic, pace.record_bytes, pace.key) + fetch)
        self._process.stdin.close()
        self._process.stdin = None  # `communicate` has nothing more to send

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> dict[str, float]:
        """Stops as soon as all records that are due by now are consumed."""
        self._process.terminate()
        return self._figures(_PATIENCE_S)

    def finish(self) -> dict[str, float]:
        return self._figures(self._pace.seconds + _PATIENCE_S)

    def _figures(self, patience_s: float) -> dict[str, float]:
        said, complaint = self._process.communicate(timeout=patience_s)
        server_cpu = cpu_seconds_with_children(self._pid) - self._cpu_before
        if self._process.returncode != 0:
            raise RuntimeError(f"the paced load failed: {complaint.decode().strip()}")
        figures: dict[str, float] = json.loads(said)
        records, client_cpu = figures["records"], figures.pop("cpu_seconds")
        return {
            **figures,
            "server_cpu_per_million": per_million(server_cpu, records),
            "client_cpu_per_million": per_million(client_cpu, records),
            "server_cores": server_cpu / figures["seconds"],
        }


def keep_pace(pace: Pace, broker: Broker, topic: str) -> dict[str, float]:
    with Paced(pace, broker, topic) as load:
        return load.finish()


def produce_frame(topic: str, record_bytes: int, key: bytes | None) -> bytes:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, key, bytes(record_bytes))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[data])
    return request_frame(request, PRODUCE_VERSION)


def fetch_frame(topic: str) -> tuple[bytes, int]:
    """The request, and the position of the offset in it."""
    wanted = FetchPartition(partition=0, fetch_offset=_OFFSET_MARK, partition_max_bytes=_MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=_MAX_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    frame = request_frame(request, FETCH_VERSION)
    return frame, frame.index(_OFFSET_MARK.to_bytes(8))

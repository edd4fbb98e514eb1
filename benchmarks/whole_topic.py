"""Reads a topic from beginning to end, as fast as possible: `python -m benchmarks.whole_topic read '{...}'`.

One connection with one Fetch in flight and the limits of the usual clients. Responses are parsed batch by batch, and no
record is decoded. librdkafka decodes records and would be the bottleneck instead of the server.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from typing import Any, Final

from benchmarks.client import Stopwatch
from benchmarks.wire import expect_none, request_frame
from holdfast.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.batch import HEADER_SIZE, Buffer, parse_header
from holdfast.wire.headers import decode_response

FETCH_VERSION: Final = 12
"""The last with the topic's name."""
MAX_BYTES: Final = 52_428_800
MAX_PARTITION_BYTES: Final = 1_048_576
"""`fetch.max.bytes` and `max.partition.fetch.bytes` as clients have them by default."""
_MAX_WAIT_MS: Final = 500
_PATIENCE_S: Final = 60
_REPLY_BYTES: Final = MAX_BYTES + (1 << 20)
"""The maximum size of a reply, plus the first batch, which is always sent whole."""


class Reader:
    def __init__(self, address: tuple[str, int], topic: str, partitions: int) -> None:
        self._socket = socket.create_connection(address, timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reply = memoryview(bytearray(_REPLY_BYTES))
        self._topic = topic
        self._offsets = [0] * partitions

    def close(self) -> None:
        self._socket.close()

    def fetch(self) -> int:
        """The number of records read."""
        self._socket.sendall(request_frame(self._request(), FETCH_VERSION))
        (size,) = struct.unpack(">i", self._exactly(4))
        _, response = decode_response(FETCH, FETCH_VERSION, self._exactly(size))
        expect_none(response.error_code, "Fetch")
        (topic,) = response.responses
        return sum(self._take(answer) for answer in topic.partitions)

    def _request(self) -> FetchRequest:
        wanted = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=MAX_PARTITION_BYTES)
            for number, offset in enumerate(self._offsets)
        ]
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic=self._topic, partitions=wanted)],
        )

    def _take(self, answer: Any) -> int:
        expect_none(answer.error_code, "Fetch")
        next_offset, count = walk(answer.records or b"", self._offsets[answer.partition_index])
        self._offsets[answer.partition_index] = next_offset
        return count

    def _exactly(self, size: int) -> memoryview:
        received = 0
        while received < size:
            got = self._socket.recv_into(self._reply[received:size])
            if not got:
                raise ConnectionError(f"closed by the server after {received} of {size} bytes")
            received += got
        return self._reply[:size]


def walk(records: Buffer, next_offset: int) -> tuple[int, int]:
    """The offset after the complete batches, and their number of records. A truncated batch is fetched again."""
    position = count = 0
    while len(records) - position >= HEADER_SIZE:
        header = parse_header(records, position)
        position += header.size
        if position > len(records):
            break
        next_offset, count = header.last_offset + 1, count + header.record_count
    return next_offset, count


def read(
    address: tuple[str, int], topic: str, partitions: int, records: int, record_bytes: int, server_pid: int
) -> dict[str, float]:
    reader = Reader(address, topic, partitions)
    watch = Stopwatch(server_pid)
    received = fetches = empty = 0
    while received < records:
        came = reader.fetch()
        empty += not came
        received, fetches = received + came, fetches + 1
        if empty > _PATIENCE_S:
            raise RuntimeError(f"{received} of {records} records came")
    figures = watch.figures(received, record_bytes)
    reader.close()
    gigabytes = received * record_bytes / 1e9
    server_cpu = figures["server_cores"] * figures["seconds"]
    return {**figures, "fetches": fetches, "server_cpu_per_gb": server_cpu / gigabytes}


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    options["address"] = tuple(options["address"])
    print(json.dumps(read(**options)))

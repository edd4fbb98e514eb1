"""A client that says exactly what a test wants said, and notices how it is answered."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from holdfast.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from holdfast.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.batch import batches
from holdfast.wire.headers import decode_response, encode_request
from holdfast.wire.records import Record, decode_batch, encode_batch

PATIENCE_S = 20.0
NOW_MS = 1_700_000_000_000

_correlation_ids = itertools.count(1)


class WireClient:
    """One connection. Requests are Holdfast's own messages, or bytes as the test made them."""

    def __init__(self, address: tuple[str, int], receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, message: Any, version: int) -> int:
        correlation_id = next(_correlation_ids)
        self.send_bytes(encode_request(message, version, correlation_id, "holdfast-tests"))
        return correlation_id

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, api: Any, version: int) -> tuple[int, Any]:
        return decode_response(api, version, self.receive_frame())

    def ask(self, message: Any, version: int) -> Any:
        correlation_id = self.send(message, version)
        answered, response = self.receive(message.API, version)
        assert answered == correlation_id
        return response

    def is_closed_by_broker(self, within_s: float = PATIENCE_S) -> bool:
        """Whether the broker ends the connection, and says nothing more before."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(PATIENCE_S)

    def receives_something(self) -> bool:
        """Whether an answer or the end of the connection comes."""
        try:
            self.socket.recv(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(min(size - len(received), 1 << 20))
            if not chunk:
                raise ConnectionError(f"closed by the broker after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)

    # -- what most tests need ------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        overrides = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        topic = CreatableTopic(name, partitions, 1, configs=overrides)
        (result,) = self.ask(CreateTopicsRequest([topic], 30_000), 5).topics
        assert result.error_code == 0, result

    def produce(
        self, topic: str, records: bytes, acks: int = -1, version: int = 9, partition: int = 0
    ) -> PartitionProduceResponse:
        response = self.ask(produce_request(topic, records, acks, partition), version)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def fetch(self, topic: str, offset: int = 0, max_wait_ms: int = 0, partition: int = 0) -> list[Record]:
        response = self.ask(fetch_request(topic, offset, max_wait_ms, partition=partition), 12)
        answer = response.responses[0].partitions[0]
        assert answer.error_code == 0, answer
        return [record for record in decoded(bytes(answer.records)) if record.offset >= offset]

    def fetch_all(self, topic: str, partition: int = 0, start: int = 0) -> list[Record]:
        found: list[Record] = []
        while more := self.fetch(topic, found[-1].offset + 1 if found else start, partition=partition):
            found += more
        return found


def produce_request(topic: str, records: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic, partition_data=[PartitionProduceData(partition, records)])],
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    max_wait_ms: int = 0,
    *,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    partition: int = 0,
) -> FetchRequest:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic, partitions=[wanted])],
    )


def batch(*values: bytes, **fields: Any) -> bytes:
    now_ms = int(time.time() * 1000)
    return encode_batch([Record(number, now_ms, None, value) for number, value in enumerate(values)], **fields)


def decoded(stored: bytes) -> list[Record]:
    """The records of all whole batches; a fetch may end within one."""
    found: list[Record] = []
    position = 0
    while position + 12 <= len(stored):
        size = 12 + struct.unpack_from(">i", stored, position + 8)[0]
        if position + size > len(stored):
            break
        found += decode_batch(stored[position : position + size])
        position += size
    return found


__all__ = ["NOW_MS", "PATIENCE_S", "WireClient", "batch", "batches", "decoded", "fetch_request", "produce_request"]

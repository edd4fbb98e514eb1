"""A few Kafka requests as plain bytes.

What is known about a broker here must not rest on the code under test, so this module shares nothing with
``holdfast.wire``; it knows only the two requests that tell whether a broker is up and who leads a partition.
"""

import socket
import struct
from dataclasses import dataclass

API_VERSIONS = 18
METADATA = 3

_CLIENT_ID = b"holdfast-tests"


def exchange(address: tuple[str, int], api_key: int, version: int, body: bytes, timeout: float = 10) -> bytes:
    """Send one request (header v1) on a fresh connection and return the reply behind its correlation id.

    Raises ``ConnectionError`` when the broker closes the connection instead of answering.
    """
    correlation_id = 7
    header = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    frame = header + body
    with socket.create_connection(address, timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _read_exactly(connection, 4))
        reply = _read_exactly(connection, size)
    (answered_id,) = struct.unpack_from(">i", reply)
    if answered_id != correlation_id:
        raise ConnectionError(f"asked with correlation id {correlation_id}, answered with {answered_id}")
    return reply[4:]


def api_versions(address: tuple[str, int], timeout: float = 10) -> dict[int, tuple[int, int]]:
    """The version range of every API key that the broker advertises (ApiVersions v0)."""
    reply = exchange(address, API_VERSIONS, 0, b"", timeout)
    error_code, count = struct.unpack_from(">hi", reply)
    if error_code:
        raise ConnectionError(f"ApiVersions v0 was answered with error {error_code}")
    ranges = (struct.unpack_from(">hhh", reply, 6 + 6 * index) for index in range(count))
    return {api_key: (lowest, highest) for api_key, lowest, highest in ranges}


def broker_count(address: tuple[str, int], timeout: float = 10) -> int:
    """How many live brokers the cluster's metadata names (Metadata v1, asked for no topic)."""
    return len(brokers(address, timeout))


def brokers(address: tuple[str, int], timeout: float = 10) -> dict[int, tuple[str, int]]:
    """The live brokers with their addresses on this listener (Metadata v1, asked for no topic)."""
    no_topics = struct.pack(">i", 0)
    return _read_brokers(_Reader(exchange(address, METADATA, 1, no_topics, timeout)))


@dataclass(frozen=True)
class PartitionState:
    leader: int
    """-1 while there is none."""
    replicas: list[int]
    in_sync: list[int]


def partitions(address: tuple[str, int], topic: str, timeout: float = 10) -> dict[int, PartitionState]:
    """Who leads and holds each partition of an existing topic (Metadata v1); a topic that is not there has none."""
    name = topic.encode()
    request = struct.pack(">ih", 1, len(name)) + name
    reply = _Reader(exchange(address, METADATA, 1, request, timeout))
    _read_brokers(reply)
    reply.take("i")  # the controller's id
    found: dict[int, PartitionState] = {}
    for _ in range(reply.take("i")):
        reply.take("h")  # an error: there are no partitions then
        reply.string()
        reply.take("b")  # whether it is internal
        for _ in range(reply.take("i")):
            reply.take("h")  # "no leader", which the leader says as well
            number, leader = reply.take("i"), reply.take("i")
            found[number] = PartitionState(leader, reply.numbers(), reply.numbers())
    return found


def _read_brokers(reply: "_Reader") -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for _ in range(reply.take("i")):
        node_id, host, port = reply.take("i"), reply.string(), reply.take("i")
        reply.string()  # the rack
        found[node_id] = (host, port)
    return found


class _Reader:
    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._at = 0

    def take(self, kind: str) -> int:
        (number,) = struct.unpack_from(f">{kind}", self._reply, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(number)

    def string(self) -> str:
        size = max(self.take("h"), 0)  # -1 is null
        self._at += size
        return self._reply[self._at - size : self._at].decode()

    def numbers(self) -> list[int]:
        return [self.take("i") for _ in range(self.take("i"))]


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError(f"connection closed after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)

"""A few Kafka requests as plain bytes.

What is known about a broker here must not rest on the code under test, so this module shares nothing with
``holdfast.wire``; it knows only the two requests that tell whether a broker is up.
"""

import socket
import struct

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
    no_topics = struct.pack(">i", 0)
    (count,) = struct.unpack_from(">i", exchange(address, METADATA, 1, no_topics, timeout))
    return int(count)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError(f"connection closed after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)

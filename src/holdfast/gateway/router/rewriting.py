"""Replacing the brokers' addresses in Kafka's responses by the gateway's, if Kafka does not advertise those itself.

Of a Metadata response only its beginning is read and replaced, because with many topics it has megabytes. Fetch
responses are not rewritten at all: clients are offered the versions that have no addresses in them.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # it is an exception
from typing import Any, Final

from holdfast.gateway.kafka.errors import KafkaSetupError
from holdfast.gateway.router.frames import BrokenStream, Replace
from holdfast.gateway.router.ports import Brokers
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse
from holdfast.wire.apis.metadata import METADATA, MetadataResponse
from holdfast.wire.apis.produce import PRODUCE, ProduceResponse
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_response, encode_response_parts
from holdfast.wire.message import Api
from holdfast.wire.varint import decode_uvarint, encode_uvarint

FIRST_PRODUCE_WITH_ADDRESSES: Final = 10
"""KIP-951: the response names the new leaders with their addresses."""
LAST_FETCH_WITHOUT_ADDRESSES: Final = 15
"""KIP-951. Fetch v16 adds the addresses of new leaders, v17 and v18 add fields for replicas only."""
CHANGED: Final[tuple[Api, ...]] = (FIND_COORDINATOR, DESCRIBE_CLUSTER, PRODUCE)
"""The APIs whose responses `with_gateway_addresses` may change."""

_FIRST_PRODUCE_WITH_IDS: Final = 13
_PLAIN_PARTITION_BYTES: Final = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
"""In a Produce response from v10 on: three of its fields are empty."""
_CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster for controllers, which are not reached through the gateway."""

_int16 = Struct(">h")
_int32 = Struct(">i")


def with_gateway_addresses(frame: bytes, api: Api, version: int, brokers: Brokers) -> bytes:
    """A whole response with its length, for a response without its length."""
    if api is PRODUCE and _is_plain_produce(frame, version):
        return _int32.pack(len(frame)) + frame
    correlation_id, response = decode_response(api, version, frame)
    if not replace_addresses(response, brokers):
        return _int32.pack(len(frame)) + frame
    parts: list[Any] = encode_response_parts(response, version, correlation_id)
    return b"".join(parts)


def replace_addresses(response: Any, brokers: Brokers) -> bool:
    """Replaces all addresses of brokers in a decoded response. Whether there were any."""
    match response:
        case MetadataResponse():
            response.brokers = _replaced(response.brokers, brokers)
        case DescribeClusterResponse():
            if response.endpoint_type == _CONTROLLERS:
                return False
            response.brokers = _replaced(response.brokers, brokers)
        case FindCoordinatorResponse():
            coordinators: list[Any] = [response, *response.coordinators]
            for found in coordinators:
                if found.node_id >= 0 and not found.error_code and found.host:
                    found.host, found.port = _advertised(found.node_id, brokers) or ("", -1)
        case ProduceResponse():
            if not response.node_endpoints:
                return False
            response.node_endpoints = _replaced(response.node_endpoints, brokers)
        case _:
            return False
    return True


def _replaced(listed: list[Any], brokers: Brokers) -> list[Any]:
    """A broker that has no port at the gateway is left out, so that no client connects to Kafka directly."""
    kept = []
    for one in listed:
        address = _advertised(one.broker_id if hasattr(one, "broker_id") else one.node_id, brokers)
        if address is not None:
            one.host, one.port = address
            kept.append(one)
    return kept


def _advertised(node_id: int, brokers: Brokers) -> tuple[str, int] | None:
    try:
        return brokers.advertised(node_id)
    except KafkaSetupError:
        return None


def _is_plain_produce(frame: bytes, version: int) -> bool:
    """Whether a response about one topic has nothing that it could lack: no error message, no addresses.

    This is known from its size, and saves decoding nearly every Produce response.
    """
    try:
        name_bytes = 16 if version >= _FIRST_PRODUCE_WITH_IDS else frame[6]
        if frame[4] or frame[5] != 2 or name_bytes >= 128:
            return False
        position = 6 + name_bytes
        count = frame[position]
    except IndexError:
        return False
    return 0 < count < 128 and len(frame) == position + 1 + _PLAIN_PARTITION_BYTES * (count - 1) + 1 + 4 + 1


# -- the beginning of a Metadata response ------------------------------------------------------------------------------


def metadata_beginning(frame: memoryview, size: int, version: int, brokers: Brokers) -> Replace | None:
    """The brokers come first; nothing behind them is read. None if not all of them have arrived.

    Raises BrokenStream if they can never be read. `size` is the size of the whole frame.
    """
    reader = _Reader(frame, is_flexible=version >= METADATA.flexible)
    try:
        reader.skip_int32()  # the correlation id
        reader.skip_tags()
        if version >= 3:
            reader.skip_int32()  # the throttle time
        start = reader.position
        listed = [_read_broker(reader, version) for _ in range(reader.count())]
    except (StructError, IndexError):
        return None
    except (WireError, UnicodeDecodeError) as error:
        raise BrokenStream(f"malformed Metadata response: {error}") from error
    kept = [
        _broker_bytes(node_id, address, rack, is_flexible=reader.is_flexible)
        for node_id, rack in listed
        if (address := _advertised(node_id, brokers)) is not None
    ]
    array = b"".join([_count_bytes(len(kept), is_flexible=reader.is_flexible), *kept])
    length = size - (reader.position - start) + len(array)
    return Replace(reader.position, _int32.pack(length) + bytes(frame[:start]) + array)


def _read_broker(reader: _Reader, version: int) -> tuple[int, bytes]:
    """(id, encoded rack)."""
    node_id = reader.int32()
    reader.skip_string()
    reader.skip_int32()
    start = reader.position
    if version >= 1:
        reader.skip_string()
    rack = reader.taken_since(start)
    reader.skip_tags()
    return node_id, rack


def _broker_bytes(node_id: int, address: tuple[str, int], rack: bytes, *, is_flexible: bool) -> bytes:
    host, port = address[0].encode(), address[1]
    length = encode_uvarint(len(host) + 1) if is_flexible else _int16.pack(len(host))
    return b"".join((_int32.pack(node_id), length, host, _int32.pack(port), rack, b"\0" if is_flexible else b""))


def _count_bytes(count: int, *, is_flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if is_flexible else _int32.pack(count)


class _Reader:
    """Raises StructError or IndexError at the end of the data, and WireError if it is malformed."""

    def __init__(self, data: memoryview, *, is_flexible: bool) -> None:
        self._data = data
        self.is_flexible = is_flexible
        self.position = 0

    def int32(self) -> int:
        (value,) = _int32.unpack_from(self._data, self.position)
        self.position += 4
        return int(value)

    def skip_int32(self) -> None:
        self._skip(4)

    def skip_string(self) -> None:
        if self.is_flexible:
            length = self._uvarint() - 1
        else:
            (length,) = _int16.unpack_from(self._data, self.position)
            self.position += 2
        self._skip(max(0, length))

    def skip_tags(self) -> None:
        """Each takes at least two bytes, so the end of the data bounds the loop."""
        for _ in range(self._uvarint() if self.is_flexible else 0):
            self._uvarint()
            self._skip(self._uvarint())

    def count(self) -> int:
        """The number of elements of an array. Each takes some bytes, so the end of the data bounds a loop over them."""
        count = self._uvarint() - 1 if self.is_flexible else self.int32()
        if count < 0:
            raise WireError(f"{count} brokers")
        return count

    def taken_since(self, start: int) -> bytes:
        return bytes(self._data[start : self.position])

    def _uvarint(self) -> int:
        value, self.position = decode_uvarint(self._data, self.position)
        return value

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise IndexError

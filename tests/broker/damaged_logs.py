"""Topics whose closed segment is damaged, each in another field of a batch, and a reader that trusts what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.wire.batch import HEADER_SIZE, parse_header
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.records import decode_batch
from tests.broker.wire_client import WireClient, batch, fetch_request
from tests.support.eventually import eventually

SEGMENT_BYTES = 1024 * 1024
"""The least that Kafka takes."""
RECORDS = 24
VALUE_BYTES = 100_000

#: Topic → byte of a batch's header and the bit of it that is flipped.
FLIPS: Mapping[str, tuple[int, int]] = {
    "base-offset-down": (7, 0),
    "base-offset-up": (6, 4),
    "batch-length-up": (10, 0),
    "batch-length-far-up": (8, 5),
    "batch-length-down": (9, 0),
    "leader-epoch": (15, 3),
    "magic": (16, 0),
    "crc": (18, 1),
    "codec": (22, 0),
    "control": (22, 5),
    "last-offset-delta": (26, 2),
    "max-timestamp": (40, 3),
    "producer-id": (50, 3),
    "record-count": (60, 2),
    "payload": (HEADER_SIZE + 500, 2),
}


_NO_LEADER_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)  # Kafka answers so for a moment after a creation and after a start


class Outcome(NamedTuple):
    """What a reader that does not compare CRCs, as librdkafka by default, comes to."""

    offsets: list[int]
    error: str

    @property
    def has_every_record(self) -> bool:
        return self.offsets == list(range(RECORDS))

    @property
    def is_silent_gap(self) -> bool:
        return not self.error and not self.has_every_record


def value(number: int) -> bytes:
    return b"%06d" % number + bytes(VALUE_BYTES)


def fill(client: WireClient, topic: str) -> None:
    client.create_topic(topic, segment_bytes=str(SEGMENT_BYTES))
    eventually(lambda: client.produce(topic, batch(value(0))).error_code == 0, "the topic has a leader")
    for number in range(1, RECORDS):
        assert client.produce(topic, batch(value(number))).error_code == 0


def damage(data: Path, topic: str) -> Path:
    """Flips the bit in the fourth batch of the second segment, which is closed."""
    segments = sorted((data / f"{topic}-0").glob("*.log"))
    assert len(segments) > 2
    file, position = segments[1], 0
    content = bytearray(file.read_bytes())
    for _ in range(3):
        position += parse_header(content, position).size
    byte, bit = FLIPS[topic]
    content[position + byte] ^= 1 << bit
    file.write_bytes(content)
    return file


def read_trusting(client: WireClient, topic: str) -> Outcome:
    offset, seen = 0, list[int]()

    def has_leader() -> bool:
        answer = client.ask(fetch_request(topic, RECORDS), 12).responses[0].partitions[0]
        return answer.error_code not in _NO_LEADER_YET

    eventually(has_leader, "the topic has a leader")
    while True:
        answer = client.ask(fetch_request(topic, offset, max_bytes=300_000), 12).responses[0].partitions[0]
        if answer.error_code:
            return Outcome(seen, ErrorCode(answer.error_code).name)
        if offset >= answer.high_watermark:
            return Outcome(seen, "")
        before = offset
        try:
            offset = _take(bytes(answer.records), offset, seen)
        except WireError as error:
            return Outcome(seen, f"the reader's own: {error}")
        if offset == before:
            return Outcome(seen, "no progress")


def _take(data: bytes, offset: int, seen: list[int]) -> int:
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        if header.magic != 2:
            raise WireError(f"magic {header.magic}")
        if not HEADER_SIZE <= header.size <= len(data) - position:
            break
        if not header.is_control:
            records = decode_batch(data[position : position + header.size], check_crc=False)
            seen += [record.offset for record in records if record.offset >= offset]
        offset = header.last_offset + 1
        position += header.size
    return offset

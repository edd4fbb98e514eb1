"""Finding the acks in the beginning of a Produce request."""

from __future__ import annotations

import struct

import pytest

from holdfast.gateway.router.acks import HIGHEST_VERSION, MAX_KEPT_BYTES, AcksReader
from holdfast.gateway.router.frames import BrokenStream
from holdfast.wire.apis.produce import ProduceRequest
from holdfast.wire.headers import encode_request


def peek_acks(frame: memoryview, version: int) -> int | None:
    return AcksReader().peek(frame, 0, len(frame), version)


@pytest.mark.parametrize("version", range(3, HIGHEST_VERSION + 1))
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("client_id", [None, "", "client", "c" * 200])
@pytest.mark.parametrize("transactional_id", [None, "", "transaction", "t" * 300])
def test_acks_are_found_as_soon_as_they_have_arrived(
    version: int, acks: int, client_id: str | None, transactional_id: str | None
) -> None:
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000)
    frame = memoryview(encode_request(request, version, 7, client_id))[4:]
    rest = 4 + 4 if version < 9 else 4 + 1 + 1  # the timeout, no topics, no tags
    assert peek_acks(frame, version) == acks
    for end in range(8, len(frame) - rest):
        assert peek_acks(frame[:end], version) is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_have_no_transactional_id(version: int) -> None:
    frame = struct.pack(">hhih", 0, version, 7, 2) + b"me" + struct.pack(">hii", 0, 1000, 0)
    assert peek_acks(memoryview(frame), version) == 0


def test_tagged_fields_of_the_header_are_skipped() -> None:
    header = struct.pack(">hhih", 0, 9, 7, 2) + b"me" + b"\x02" + b"\x05\x03abc" + b"\x06\x00"
    assert peek_acks(memoryview(header + b"\x00" + struct.pack(">h", 0)), 9) == 0


@pytest.mark.parametrize(
    ("version", "rest"),
    [
        (3, struct.pack(">h", -2)),
        (3, struct.pack(">h", 0) + struct.pack(">h", -7)),
        (9, struct.pack(">h", 0) + b"\xff\xff\xff\xff\xff\xff"),
        (9, struct.pack(">h", 0) + b"\x00" + b"\xff\xff\xff\xff\x7f"),
    ],
)
def test_lengths_that_can_never_be_read_break_the_stream(version: int, rest: bytes) -> None:
    with pytest.raises(BrokenStream):
        peek_acks(memoryview(struct.pack(">hhi", 0, version, 7) + rest), version)


@pytest.mark.parametrize("rest", [b"\x7f\xff", b"\x00\x00\xff\xff\xff\xff\x0f", b"\x00\x00\x00\xff\xff\xff\xff\x0f"])
def test_large_lengths_wait_for_more(rest: bytes) -> None:
    assert peek_acks(memoryview(struct.pack(">hhi", 0, 9, 7) + rest), 9) is None


def test_other_requests_of_the_same_client_are_read_by_what_was_learned() -> None:
    reader = AcksReader()
    stream = b""
    expected: list[int] = []
    for version, client_id, acks in [
        (9, "a", 1),
        (9, "a", 0),
        (9, "ab", 0),
        (9, "c" * MAX_KEPT_BYTES, 1),
        (9, "a", -1),
        (3, "a", 0),
    ]:
        frame = encode_request(ProduceRequest(acks=acks), version, len(expected), client_id)[4:]
        start = len(stream)
        stream += frame
        expected.append(acks)
        view = memoryview(stream)
        assert reader.peek(view, start, len(stream), version) == acks
        for end in range(start + 8, start + 11):
            assert reader.peek(view, start, end, version) is None
        assert reader.peek(view, start, len(stream), version) == acks

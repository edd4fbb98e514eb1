"""Frames between the broker and the process of a compaction."""

import pytest

from holdfast.log.compaction_frames import Frame, FrameBuffer, pack_batches, unpack_batches

FRAMES = [Frame({"read_keys": 5}), Frame({"path": "t\udcff-0", "list": [1, -1]}, bytes(range(256))), Frame({})]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_frames_come_out_as_they_went_in_however_they_are_cut(size: int) -> None:
    data = b"".join(frame.encode() for frame in FRAMES)
    buffer = FrameBuffer()

    found = [frame for at in range(0, len(data), size) for frame in buffer.feed(data[at : at + size])]

    assert found == FRAMES


def test_what_another_program_prints_is_no_frame() -> None:
    with pytest.raises(ValueError, match="usage"):
        list(FrameBuffer().feed(b"usage: something else"))


def test_producers_of_any_number() -> None:
    batches = {(number, -number * 2**40) for number in range(10_000)}

    assert unpack_batches(pack_batches(batches)) == batches
    assert unpack_batches(pack_batches([])) == frozenset()

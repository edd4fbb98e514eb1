"""The bytes that members of a sticky group send: what we write, and what we make of anything."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.interface import NO_GENERATION
from holdfast.assignors.sticky_user_data import NOTHING, PreviousAssignment, Reader, encode

V1 = bytes.fromhex("00000001 0001 74 00000002 00000000 00000003 00000007")
V0 = V1[:-4]


def readable(previous: PreviousAssignment) -> tuple[list[tuple[bytes, list[int]]], int]:
    numbers = iter(previous.partitions.tolist())
    return [
        (topic, [next(numbers) for _ in range(length)])
        for topic, length in zip(previous.layout.topics, previous.layout.lengths, strict=True)
    ], previous.generation


def test_v1_is_the_array_of_topics_and_then_the_generation() -> None:
    assert encode({"t": [0, 3]}, 7) == V1
    assert readable(Reader().read(V1)) == ([(b"t", [0, 3])], 7)


def test_v0_is_read_as_of_no_generation() -> None:
    assert readable(Reader().read(V0)) == ([(b"t", [0, 3])], NO_GENERATION)


def test_our_user_data_begins_with_the_v0_array_for_old_leaders() -> None:
    assert encode({"t": [0, 3]}, 7).startswith(V0)


def written_order(owned: dict[str, list[int]]) -> list[str]:
    return [topic.decode() for topic, _ in readable(Reader().read(encode(owned, 1)))[0]]


def test_topics_are_written_in_the_order_of_a_java_hash_table() -> None:
    # By hash code "p" (112) is in bucket 0 of 16, "a" (97) in 1, "b" (98) and "r" (114) in 2, the later one first.
    assert written_order({topic: [0] for topic in "brap"}) == ["p", "a", "r", "b"]


def test_the_hash_table_grows_with_the_partition_after_the_thirteenth_topic() -> None:
    thirteen = "abcdefghijklp"
    # In 32 buckets "p" is no longer in the first one.
    assert written_order({topic: [0, 1] for topic in thirteen}) == list(thirteen)
    assert written_order({topic: [0] for topic in thirteen}) == ["p", *"abcdefghijkl"]


def test_the_order_that_apache_kafka_4_3_1_was_seen_to_write() -> None:
    came = [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11]
    seen = [0, 1, 2, 3, 4, 5, 10, 11, 6, 7, 12, 8, 9]
    topic = "\u0442opic-\U0001f600{}".format
    owned = {topic(number): [place, place + 1] for place, number in enumerate(came)}
    assert written_order(owned) == [topic(number) for number in seen]


def test_a_topic_of_which_it_has_nothing_is_not_written() -> None:
    assert encode({"t": [0, 3], "none": []}, 7) == V1


@pytest.mark.parametrize(
    "user_data",
    [
        None,
        b"",
        b"\x00",
        b"\x00\x00\x00",
        V1[:6],
        V0[:-1],
        pack(">i", -1) + V1[4:],
        pack(">i", 2**31 - 1) + V1[4:],
        pack(">i", 1) + pack(">h", -1) + b"t" * 40_000 + bytes(40_000),
        pack(">ihsi", 1, 1, b"t", -1) + pack(">i", 7),
        pack(">ihsi", 1, 1, b"t", 2**31 - 1) + bytes(16),
        b"not user data at all",
    ],
)
def test_what_cannot_be_read_claims_nothing(user_data: bytes | None) -> None:
    assert Reader().read(user_data) is NOTHING
    assert readable(NOTHING) == ([], NO_GENERATION)


def test_bytes_after_the_generation_are_not_looked_at() -> None:
    assert readable(Reader().read(V1 + b"more")) == ([(b"t", [0, 3])], 7)


def test_half_a_generation_is_none() -> None:
    assert readable(Reader().read(V1[:-1])) == ([(b"t", [0, 3])], NO_GENERATION)


def test_a_topic_that_is_no_text_is_read_over() -> None:
    data = pack(">ih2si", 1, 2, b"\xff\xfe", 1) + pack(">ii", 5, 7)
    assert readable(Reader().read(data)) == ([(b"\xff\xfe", [5])], 7)


assignments = st.dictionaries(st.text(max_size=5), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=4)


@given(st.lists(st.tuples(assignments, st.integers(-1, 2**31 - 1)), min_size=1, max_size=5))
def test_one_reader_reads_many_members_as_each_alone(members: list[tuple[dict[str, list[int]], int]]) -> None:
    # Texts with half a surrogate pair are no topics: UTF-8 has no bytes for them.
    reader = Reader()
    for owned, generation in members:
        data = encode(owned, generation)
        found, said = readable(reader.read(data))
        assert {topic.decode(): numbers for topic, numbers in found} == {t: had for t, had in owned.items() if had}
        assert said == generation


@given(st.lists(st.one_of(st.binary(max_size=40), st.just(V1), st.just(V0)), max_size=6))
def test_any_bytes_are_read_as_by_a_fresh_reader(members: list[bytes]) -> None:
    reader = Reader()
    for data in members:
        assert readable(reader.read(data)) == readable(Reader().read(data))


@given(st.integers(0, len(V1) - 1), st.integers(0, 255))
def test_one_changed_byte_is_always_noticed(place: int, value: int) -> None:
    reader = Reader()
    reader.read(V1)
    changed = V1[:place] + bytes([value]) + V1[place + 1 :]
    assert readable(reader.read(changed)) == readable(Reader().read(changed))

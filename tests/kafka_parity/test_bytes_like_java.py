"""The bytes that `tests/unit/assignors/test_java_bytes.py` compares with are Java's still; and Java reads ours."""

from __future__ import annotations

import pytest

from holdfast.assignors import assignor
from holdfast.membership.owned_partitions import OwnedPartitions
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from tests.support.java_bytes import ASSIGNORS, NEVER_ASSIGNED, Written, ask_java, stored, written_by_java

# The fixture says where there is no Java, and why; nothing else of it is needed.
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("java")]


def test_java_writes_what_is_stored() -> None:
    assert written_by_java() == stored()


def written_by_us(java: Written) -> bytes:
    """By one of ours that was given the same by a leader of ours, and that has not given it up yet."""
    assignment = OwnedPartitions([assignor(java.assignor)], java.rack)
    assignment.topics = frozenset(java.topics)
    if java.generation != NEVER_ASSIGNED:
        given = [TopicPartitions(topic, numbers) for topic, numbers in java.given.items()]
        assignment.on_assignment(java.assignor, java.generation, encode_assignment(Assignment(given)))
    ((_, subscription),) = assignment.protocols()
    return subscription


@pytest.mark.parametrize("name", ASSIGNORS)
def test_java_reads_in_ours_what_we_have_since_when_and_where_we_are(name: str) -> None:
    members = [java for java in stored() if java.assignor == name]

    read = ask_java([{"assignor": name, "read": written_by_us(java).hex()} for java in members])

    for java, reported in zip(members, read, strict=True):
        assert reported["topics"] == sorted(java.topics, key=lambda topic: topic.encode("utf-16-be"))
        assert reported["rack"] == java.rack
        assert reported["generation"] == java.generation
        assert reported["claimed"] == java.given

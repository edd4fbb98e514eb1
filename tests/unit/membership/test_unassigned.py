"""Whether everybody's assignments cover every partition (KIP-814, and one step further)."""

from holdfast.assignors.interface import Cluster
from holdfast.membership.unassigned import unassigned_partitions
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment

CLUSTER = Cluster({"t": 3, "u": 1, "unread": 9})


def assignment(**partitions: list[int]) -> bytes:
    entries = [TopicPartitions(topic, numbers) for topic, numbers in partitions.items()]
    return encode_assignment(Assignment(entries))


def test_an_assignment_that_covers_all_is_fine() -> None:
    assert unassigned_partitions(CLUSTER, {"t", "u"}, [assignment(t=[0, 2]), assignment(t=[1], u=[0])]) == []


def test_partitions_in_no_assignment_are_named() -> None:
    assert unassigned_partitions(CLUSTER, {"t", "u"}, [assignment(t=[0, 1])]) == [("t", 2), ("u", 0)]


def test_what_cannot_be_read_covers_nothing() -> None:
    assert unassigned_partitions(CLUSTER, {"u"}, [b"\xff"]) == [("u", 0)]


def test_a_topic_that_does_not_exist_needs_no_cover() -> None:
    assert unassigned_partitions(CLUSTER, {"missing"}, []) == []

"""Whether everybody's assignments cover every partition (KIP-814, and one step further)."""

from holdfast.assignors.interface import Cluster
from holdfast.membership.coverage import uncovered
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment

CLUSTER = Cluster({"t": 3, "u": 1, "unread": 9})


def share(**partitions: list[int]) -> bytes:
    entries = [TopicPartitions(topic, numbers) for topic, numbers in partitions.items()]
    return encode_assignment(Assignment(entries))


def test_an_assignment_that_covers_all_is_fine() -> None:
    assert uncovered(CLUSTER, {"t", "u"}, [share(t=[0, 2]), share(t=[1], u=[0])]) == []


def test_partitions_that_came_while_nobody_looked_are_named() -> None:
    assert uncovered(CLUSTER, {"t", "u"}, [share(t=[0, 1])]) == [("t", 2), ("u", 0)]


def test_what_cannot_be_read_covers_nothing() -> None:
    assert uncovered(CLUSTER, {"u"}, [b"\xff"]) == [("u", 0)]


def test_a_topic_that_does_not_exist_needs_no_cover() -> None:
    assert uncovered(CLUSTER, {"missing"}, []) == []

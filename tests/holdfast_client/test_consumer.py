"""`Consumer` on both servers: the calls people know from confluent-kafka, and what each of them does."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition

from holdfast import Consumer
from holdfast.client.errors import CommitFailed, HoldfastError
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, evenly_assigned, grow_topic, poll_until, watching
from tests.support.eventually import eventually

EACH = 50


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """A topic with four partitions and fifty records in each."""
    make_topic(server, topic)
    produce(server, topic, EACH)
    return topic


def at(topic: str, partition: int, offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition(topic, partition, offset)


def test_a_lone_consumer_reads_everything_once_in_order(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) >= 4 * EACH, "all records", one)

        assert sorted(one.records) == [(partition, offset) for partition in range(4) for offset in range(EACH)]
        for partition in range(4):
            offsets = [offset for where, offset in one.records if where == partition]
            assert offsets == sorted(offsets)
        assert one.callbacks == [("on_assign", [0, 1, 2, 3])]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_consumers_divide_a_topic_and_one_that_closes_gives_its_part_back(
    server: Server, filled: str, group: str, strategy: str
) -> None:
    settings = {"partition_assignment_strategy": strategy}
    first = Watched(server, group, **settings).subscribe(filled)
    second = Watched(server, group, **settings)
    with watching(first):
        poll_until(lambda: first.partitions == [0, 1, 2, 3], "the first has all", first)
        with watching(second):
            second.subscribe(filled)
            poll_until(evenly_assigned(4, first, second), "both have two", first, second)
            poll_until(lambda: len(first.records + second.records) >= 4 * EACH, "all records", first, second)
        poll_until(lambda: first.partitions == [0, 1, 2, 3], "the first has all again", first)

        # What was committed when partitions moved was not read again.
        assert sorted(first.records + second.records) == [(p, o) for p in range(4) for o in range(EACH)]
        if strategy == "cooperative-sticky":
            kept = set(first.partitions) - set(next(part for name, part in first.callbacks if name == "on_revoke"))
            assert len(kept) == 2, "what stays is never revoked"


def test_poll_gives_messages_one_by_one_and_none_when_there_is_nothing(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group)
    with watching(one):
        one.consumer.subscribe([filled])
        seen: list[tuple[int, int, bytes, str]] = []
        while len(seen) < 4 * EACH:
            message = one.consumer.poll(30.0)
            assert message is not None and message.error() is None
            seen.append((message.partition(), message.offset(), message.value(), message.topic()))

        assert len(set(seen)) == 4 * EACH
        assert {value for _, _, value, _ in seen} == {b"%d" % number for number in range(EACH)}
        began = time.monotonic()
        assert one.consumer.poll(0.3) is None
        assert time.monotonic() - began >= 0.29  # librdkafka counts whole milliseconds


def test_what_was_read_is_committed_by_itself_and_not_read_again(server: Server, filled: str, group: str) -> None:
    first = Watched(server, group, auto_commit_interval_ms=100).subscribe(filled)
    with watching(first):
        poll_until(lambda: len(first.records) == 4 * EACH, "all records", first)
        poll_until(
            lambda: committed(server, group, filled) == dict.fromkeys(range(4), EACH), "everything committed", first
        )

    second = Watched(server, group).subscribe(filled)
    with watching(second):
        produce(server, filled, 1, first=EACH)
        poll_until(lambda: len(second.records) >= 4, "the new records", second)
        assert sorted(second.records) == [(partition, EACH) for partition in range(4)]


def test_closing_commits_what_was_read(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, auto_commit_interval_ms=3_600_000).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        assert committed(server, group, filled) == {}

    assert committed(server, group, filled) == dict.fromkeys(range(4), EACH)


def test_but_not_if_the_application_failed_with_what_it_had_in_hand(server: Server, filled: str, group: str) -> None:
    config = {"bootstrap.servers": server.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with pytest.raises(ZeroDivisionError), Consumer(config) as consumer:
        consumer.subscribe([filled])
        eventually(lambda: consumer.consume(10, 1.0), "some records")
        raise ZeroDivisionError

    assert committed(server, group, filled) == {}


def test_commits_of_ones_own(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_commit=False).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        consumer = one.consumer

        result = consumer.commit(offsets=[at(filled, 0, 7), at(filled, 1, 8)], asynchronous=False)
        assert result is not None
        assert [(entry.partition, entry.offset, entry.error) for entry in result] == [(0, 7, None), (1, 8, None)]
        assert committed(server, group, filled) == {0: 7, 1: 8}
        found = consumer.committed([at(filled, 0), at(filled, 3)], timeout=30)
        assert [entry.offset for entry in found] == [7, OFFSET_INVALID]

        consumer.commit(asynchronous=False)
        assert committed(server, group, filled) == dict.fromkeys(range(4), EACH)

    assert committed(server, group, filled) == dict.fromkeys(range(4), EACH), "closing adds nothing"


def test_a_message_is_committed_as_processed(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_commit=False)
    with watching(one):
        one.consumer.subscribe([filled])
        message = one.consumer.poll(30.0)
        one.consumer.commit(message=message, asynchronous=False)
        assert committed(server, group, filled) == {message.partition(): message.offset() + 1}


def test_an_asynchronous_commit_is_reported_by_a_later_poll(server: Server, filled: str, group: str) -> None:
    completed = []
    main = threading.current_thread()

    def on_commit(error: HoldfastError | None, partitions: list[TopicPartition]) -> None:
        completed.append(
            (error, [(one.partition, one.offset) for one in partitions], threading.current_thread() is main)
        )

    one = Watched(server, group, enable_auto_commit=False)
    one.consumer.close()
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": group, "enable.auto.commit": False, "on_commit": on_commit}
    )
    with consumer:
        consumer.subscribe([filled])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment")
        consumer.commit(offsets=[at(filled, 2, 5)])
        eventually(lambda: consumer.poll(0.1) or completed, "the end of the commit")

    assert completed == [(None, [(2, 5)], True)]
    assert committed(server, group, filled) == {2: 5}


def test_stored_offsets_are_what_is_committed(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_offset_store=False, auto_commit_interval_ms=100).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        one.consumer.store_offsets(offsets=[at(filled, 3, 11)])
        poll_until(lambda: committed(server, group, filled) == {3: 11}, "what was stored", one)


def test_seek_position_pause_and_resume(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_commit=False).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        consumer = one.consumer
        assert [where.offset for where in consumer.position([at(filled, 0)])] == [EACH]

        one.records.clear()
        consumer.pause([at(filled, 1)])
        consumer.seek(at(filled, 0, EACH - 3))
        consumer.seek(at(filled, 1, EACH - 2))
        assert [where.offset for where in consumer.position([at(filled, 0), at(filled, 1)])] == [EACH - 3, EACH - 2]
        poll_until(lambda: len(one.records) == 3, "the last three of partition 0", one)
        assert {partition for partition, _ in one.records} == {0}, "a paused partition gives nothing"

        consumer.resume([at(filled, 1)])
        poll_until(lambda: len(one.records) == 5, "and the last two of partition 1", one)

        one.records.clear()
        consumer.seek(at(filled, 2, OFFSET_BEGINNING))
        poll_until(lambda: len(one.records) == EACH, "partition 2 from the beginning", one)
        consumer.seek(at(filled, 2, OFFSET_END))
        assert [where.offset for where in consumer.position([at(filled, 2)])] == [EACH]
        with pytest.raises(HoldfastError, match="assigned"):
            consumer.seek(at(filled, 99, 0))


def test_where_partitions_begin_and_end_can_be_asked_while_records_flow(
    server: Server, filled: str, group: str
) -> None:
    one = Watched(server, group).subscribe(filled)
    with watching(one):
        poll_until(lambda: one.records, "records", one)

        assert one.consumer.get_watermark_offsets(at(filled, 0), timeout=30) == (0, EACH)
        (first,) = one.consumer.offsets_for_times([at(filled, 0, 1)], timeout=30)
        assert first.offset == 0


def test_on_assign_may_choose_where_to_begin(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_commit=False)
    with watching(one):
        one.consumer.subscribe(
            [filled],
            on_assign=lambda consumer, partitions: consumer.assign(
                [at(filled, entry.partition, EACH - 1) for entry in partitions]
            ),
        )
        poll_until(lambda: len(one.records) >= 4, "the last record of each", one)
        assert sorted(one.records) == [(partition, EACH - 1) for partition in range(4)]


def test_a_pattern_finds_topics_and_new_ones_too(server: Server, topic: str, group: str) -> None:
    make_topic(server, f"{topic}-a", 1)
    one = Watched(server, group, metadata_max_age_ms=200, metadata_rebalance_min_interval_ms=200)
    with watching(one):
        one.subscribe(f"^{topic}-.*")
        poll_until(lambda: len(one.consumer.assignment()) == 1, "the first topic", one)
        make_topic(server, f"{topic}-b", 2)
        make_topic(server, f"x{topic}-c", 1)
        poll_until(lambda: len(one.consumer.assignment()) == 3, "the second topic", one)
        assert {entry.topic for entry in one.consumer.assignment()} == {f"{topic}-a", f"{topic}-b"}


def test_partitions_that_are_added_are_found_by_the_leader(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, metadata_max_age_ms=200, metadata_rebalance_min_interval_ms=200).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.partitions) == 4, "four partitions", one)
        grow_topic(server, filled, 6)
        poll_until(lambda: len(one.partitions) == 6, "six partitions", one)


def test_unsubscribe_gives_everything_up_and_leaves(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        one.consumer.unsubscribe()

        assert one.consumer.assignment() == []
        assert one.callbacks[-1] == ("on_revoke", [0, 1, 2, 3])
        assert committed(server, group, filled) == dict.fromkeys(range(4), EACH)

        one.subscribe(filled)
        poll_until(lambda: len(one.partitions) == 4, "a second life", one)


def test_without_a_subscription_the_assigned_partitions_are_read(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, group_instance_id="never-sent")
    with watching(one):
        one.consumer.assign([at(filled, 1, EACH - 2), at(filled, 2, OFFSET_END)])
        poll_until(lambda: len(one.records) == 2, "two records", one)
        assert one.records == [(1, EACH - 2), (1, EACH - 1)]

        one.consumer.commit(asynchronous=False)
        assert committed(server, group, filled) == {1: EACH, 2: EACH}
        one.consumer.unassign()
        assert one.consumer.assignment() == []


def test_such_a_commit_is_refused_while_the_group_has_members(server: Server, filled: str, group: str) -> None:
    member = Watched(server, group).subscribe(filled)
    outsider = Watched(server, group)
    with watching(member, outsider):
        poll_until(lambda: len(member.partitions) == 4, "a member", member)
        outsider.consumer.assign([at(filled, 0, 3)])
        with pytest.raises(CommitFailed, match="has members"):
            outsider.consumer.commit(offsets=[at(filled, 0, 3)], asynchronous=False)


def test_nothing_is_left_behind(server: Server, filled: str, group: str) -> None:
    before = set(threading.enumerate())
    one = Watched(server, group).subscribe(filled)
    with watching(one):
        poll_until(lambda: one.partitions, "partitions", one)
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) <= before
    with pytest.raises(HoldfastError, match="closed"):
        one.consumer.poll(0)
    one.consumer.close()

"""The topics on disk: what is left of them when the disk fails or the process ends in between."""

import asyncio
import errno
import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.storage.topics import NewTopic, Topic
from holdfast.log import StorageError, disk
from holdfast.log.partition_metadata import write_topic_id
from holdfast.log.reserve_file import RESERVE_BYTES
from tests.support.handler_broker import NOW_MS, HandlerBroker

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HandlerBroker]:
    made = HandlerBroker(tmp_path / "data")
    yield made
    made.die()


def with_a_past(broker: HandlerBroker, name: str) -> Topic:
    """A topic whose log was flushed, cut and compacted: all three checkpoints tell of it."""
    topic = broker.topic(name, overrides={"cleanup.policy": "compact,delete"})
    for _ in range(50):
        broker.append(topic, [NOW_MS])
    log = topic.partitions[0].log
    log.flush()
    log.delete_records_before(40)
    log.first_dirty_offset = 45
    broker.topics.write_checkpoints()
    broker.data.write_cleaner_offsets(broker.topics.logs())
    for file in CHECKPOINTS:
        assert f"{name} 0 " in (broker.directory / file).read_text()
    return topic


def beginning(broker: HandlerBroker, name: str) -> tuple[int, int, int, int]:
    """Where the topic's log starts and ends, up to where it is flushed and compacted."""
    topic = broker.topics.get(name)
    assert topic is not None
    log = topic.partitions[0].log
    return log.start_offset, log.end_offset, log.recovery_point, log.first_dirty_offset


# -- a new topic of an old name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_topic_inherits_nothing_of_a_deleted_one(broker: HandlerBroker, restarted: bool) -> None:
    discarded = with_a_past(broker, "orders")

    asyncio.run(broker.topics.delete(discarded))
    if restarted:
        broker.restart_after_kill()
    topic = broker.topic("orders", overrides={"cleanup.policy": "compact,delete"})

    assert beginning(broker, "orders") == (0, 0, 0, 0)
    # and when it has grown as long as the old one was: what is not compacted must not be taken for compacted
    for _ in range(50):
        broker.append(topic, [NOW_MS])
    broker.restart_after_kill()
    assert beginning(broker, "orders") == (0, 50, 0, 0)


def test_checkpoints_of_a_deleted_topic_are_removed_after_a_kill(broker: HandlerBroker) -> None:
    # given a deletion of which only the file of topics is written
    topic = with_a_past(broker, "orders")
    asyncio.run(broker.topics._store(iter(())))

    # when
    broker.restart_after_kill()

    # then
    for file in CHECKPOINTS:
        assert "orders" not in (broker.directory / file).read_text()
    broker.topic("orders")
    assert beginning(broker, "orders") == (0, 0, 0, 0)
    assert broker.topics.by_id(topic.id) is None


def test_a_directory_of_another_topic_is_quarantined_with_its_checkpoints(broker: HandlerBroker) -> None:
    """As when `topics.json` comes from a backup: its topic has the name, not the records."""
    with_a_past(broker, "orders")
    write_topic_id(broker.directory / "orders-0", uuid.uuid4())

    broker.restart_after_kill()

    assert beginning(broker, "orders") == (0, 0, 0, 0)
    assert len(list(broker.directory.glob("orders-0.*-stray"))) == 1


def test_checkpoints_that_are_under_way_do_not_bring_a_deleted_topic_back(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the minute's checkpoints, which have gone over the logs and wait for the disk
    discarded = with_a_past(broker, "orders")
    under_way, go_on = threading.Event(), threading.Event()
    original = broker.data.write_recovery_points

    def slow(logs: object) -> None:
        if threading.current_thread() is minute:
            under_way.set()
            go_on.wait(60)
        original(logs)  # type: ignore[arg-type]  # whatever it was called with

    monkeypatch.setattr(broker.data, "write_recovery_points", slow)
    minute = threading.Thread(target=broker.topics.write_checkpoints)
    minute.start()
    assert under_way.wait(60)

    # when
    asyncio.run(broker.topics.delete(discarded))
    go_on.set()
    minute.join()

    # then
    for file in CHECKPOINTS:
        assert "orders" not in (broker.directory / file).read_text()
    broker.topic("orders")
    assert beginning(broker, "orders") == (0, 0, 0, 0)


# -- a disk that fails -------------------------------------------------------------------------------------------------


def full_once_after(points: int) -> Callable[[str], None]:
    """A disk that takes so many changes and then is full, until something was refused for that."""
    seen: list[str] = []

    def fault(point: str) -> None:
        seen.append(point)
        if len(seen) > points and "refused" not in seen and point in ("before create", "half written", "before mkdir"):
            seen.append("refused")
            raise OSError(errno.ENOSPC, "No space left on device")

    return fault


def stored_topics(broker: HandlerBroker) -> dict[str, int]:
    entries = json.loads((broker.directory / "topics.json").read_text())["topics"]
    return {name: entry["partitions"] for name, entry in entries.items()}


def directories(broker: HandlerBroker) -> list[str]:
    return sorted(path.name for path in broker.directory.iterdir() if path.is_dir())


def test_a_topic_for_which_the_disk_has_no_room_leaves_nothing_behind(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topic("orders")
    failed = 0
    for points in range(100):
        # when the disk is full after so many changes, and has room again for the way back
        monkeypatch.setattr(disk, "fault", full_once_after(points))
        try:
            asyncio.run(broker.topics.create("wide", 3, {}))
            break
        except StorageError:
            failed += 1
        finally:
            monkeypatch.setattr(disk, "fault", None)

        # then
        assert broker.topics.get("wide") is None
        assert stored_topics(broker) == {"orders": 1}
        assert directories(broker) == ["orders-0"]

    # and in the end it is there, whole
    assert failed > 2
    broker.restart_after_kill()
    assert {topic.name: len(topic.partitions) for topic in broker.topics} == {"orders": 1, "wide": 3}


def test_partitions_for_which_the_disk_has_no_room_leave_nothing_behind(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("orders")
    failed = 0
    for points in range(100):
        monkeypatch.setattr(disk, "fault", full_once_after(points))
        try:
            asyncio.run(broker.topics.grow(topic, 3))
            break
        except StorageError:
            failed += 1
        finally:
            monkeypatch.setattr(disk, "fault", None)

        assert len(topic.partitions) == 1
        assert stored_topics(broker) == {"orders": 1}
        assert directories(broker) == ["orders-0"]

    assert failed > 2
    broker.restart_after_kill()
    assert {topic.name: len(topic.partitions) for topic in broker.topics} == {"orders": 3}


def test_a_directory_missing_because_of_a_full_disk_is_made_by_the_first_append(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a disk that has room for the list of topics and for nothing else
    def no_room_for_partitions(point: str) -> None:
        if point == "before mkdir":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "fault", no_room_for_partitions)
    asyncio.run(broker.topics.create("orders", 2, {}))
    topic = broker.topics.get("orders")
    assert topic is not None
    assert directories(broker) == []
    assert "a new partition has no directory yet" in caplog.text

    # then nothing is acknowledged without one
    with pytest.raises(StorageError, match="No space left"):
        broker.append(topic, [NOW_MS])
    monkeypatch.setattr(disk, "fault", None)
    broker.append(topic, [NOW_MS])
    assert directories(broker) == ["orders-0"]
    broker.restart_after_kill()
    assert beginning(broker, "orders")[1] == 1


def test_records_that_lie_where_a_partition_could_not_be_made_stay(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are leftovers, whatever made them."""
    # given a directory of the name, with records and without an owner
    unknown = broker.topic("unknown")
    broker.append(unknown, [NOW_MS])
    shutil.copytree(broker.directory / "unknown-0", broker.directory / "orders-1")
    (broker.directory / "orders-1" / "partition.metadata").unlink()

    # when
    monkeypatch.setattr(disk, "fault", full_once_after(3))
    with pytest.raises(StorageError):
        asyncio.run(broker.topics.create("orders", 3, {}))

    # then
    assert directories(broker) == ["orders-1", "unknown-0"]


# -- a full disk -------------------------------------------------------------------------------------------------------


def no_room_but_in_the_reserve() -> Callable[[str], None]:
    seen: list[str] = []

    def fault(point: str) -> None:
        is_in_the_reserve = seen[-3:] == ["renamed", "before create", "before write"]
        if point == "before allocate" or (point == "half written" and not is_in_the_reserve):
            raise OSError(errno.ENOSPC, "No space left on device")
        seen.append(point)

    return fault


def test_a_topic_can_be_deleted_on_a_full_disk(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given
    deleted: list[str] = []
    broker.topics.on_deleted = deleted.append
    discarded = with_a_past(broker, "orders")

    # when
    monkeypatch.setattr(disk, "fault", no_room_but_in_the_reserve())
    assert asyncio.run(broker.topics.delete(discarded))

    # then it is gone, its files are, and whatever must know was notified
    assert stored_topics(broker) == {}
    assert directories(broker) == []
    assert deleted == ["orders"]
    (reported,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported.message == "topic deleted; some of its files remain"
    assert "recovery-point-offset-checkpoint: No space left" in vars(reported)["fields"]["error"]
    # and a new one of the name is not made before the checkpoints have forgotten it
    with pytest.raises(StorageError, match="No space left"):
        asyncio.run(broker.topics.create("orders", 1, {}))
    monkeypatch.setattr(disk, "fault", None)
    broker.topic("orders")
    broker.restart_after_kill()
    assert beginning(broker, "orders") == (0, 0, 0, 0)


def test_a_topic_cannot_be_created_out_of_the_reserve(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "fault", no_room_but_in_the_reserve())
    with pytest.raises(StorageError, match="No space left"):
        asyncio.run(broker.topics.create("orders", 1, {}))

    assert broker.data.reserve.room_bytes == RESERVE_BYTES


def test_a_broker_starts_on_a_full_disk(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a running broker can be asked to delete something."""
    topic = with_a_past(broker, "orders")

    monkeypatch.setattr(disk, "fault", no_room_but_in_the_reserve())
    broker.restart_after_kill()

    again = broker.topics.by_id(topic.id)
    assert again is not None
    assert beginning(broker, "orders") == (40, 50, 50, 45)
    assert asyncio.run(broker.topics.delete(again))


def test_a_deletion_is_reported_although_partitions_cannot_be_removed(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a disk that refuses to rename the first of two directories
    deleted: list[str] = []
    broker.topics.on_deleted = deleted.append
    discarded = broker.topic("orders", 2)
    original = disk.rename

    def rename(source: Path, target: Path) -> None:
        if source.name == "orders-0":
            raise OSError(errno.EIO, "Input/output error")
        original(source, target)

    # when
    monkeypatch.setattr(disk, "rename", rename)
    assert asyncio.run(broker.topics.delete(discarded))
    monkeypatch.setattr(disk, "rename", original)

    # then
    assert deleted == ["orders"]
    assert directories(broker) == ["orders-0"]
    broker.topic("orders")
    assert beginning(broker, "orders") == (0, 0, 0, 0)
    assert len(list(broker.directory.glob("orders-0.*-stray"))) == 1


# -- many topics in one request ----------------------------------------------------------------------------------------


def syncs_of(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> int:
    """How often the disk is waited for."""
    points: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(disk, "fault", points.append)
        act()
    return sum(point in ("before fsync", "before fdatasync", "before directory sync") for point in points)


@pytest.mark.parametrize("count", [1, 100])
def test_the_disk_is_waited_for_once_however_many_topics_there_are(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    wanted = [NewTopic(f"topic-{number}", 2, {}) for number in range(count)]
    topics: list[Topic] = []

    def create() -> None:
        topics.extend(topic for topic in asyncio.run(broker.topics.create_all(wanted)) if topic is not None)

    # the list of topics: the file, and its name
    assert syncs_of(monkeypatch, create) == 2
    assert len(topics) == count
    assert syncs_of(monkeypatch, lambda: asyncio.run(broker.topics.grow_all([(one, 3) for one in topics]))) == 2
    # one of them was written to, so that the checkpoints know of it
    broker.append(topics[0], [NOW_MS])
    topics[0].partitions[0].log.flush()
    broker.topics.write_checkpoints()
    # the list of topics, the renamed directories, and two checkpoints that knew of them
    assert syncs_of(monkeypatch, lambda: asyncio.run(broker.topics.delete_all(topics))) <= 7
    assert directories(broker) == []
    broker.restart_after_kill()
    assert len(broker.topics) == 0


def test_of_several_topics_that_exist_or_are_gone_the_others_are_made_and_deleted(broker: HandlerBroker) -> None:
    present = broker.topic("present")
    wanted = [NewTopic("new", 1, {}), NewTopic("present", 1, {}), NewTopic("newer", 2, {})]

    made = asyncio.run(broker.topics.create_all(wanted))

    assert [topic and topic.name for topic in made] == ["new", None, "newer"]
    assert stored_topics(broker) == {"present": 1, "new": 1, "newer": 2}
    new, newer = made[0], made[2]
    assert new is not None
    assert newer is not None
    assert asyncio.run(broker.topics.delete(new))
    assert asyncio.run(broker.topics.delete_all([new, newer, present])) == [False, True, True]
    assert asyncio.run(broker.topics.grow_all([(present, 5)])) == [False]
    assert stored_topics(broker) == {}


def test_several_topics_that_cannot_all_be_made_are_not_made_at_all(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topic("present")
    wanted = [NewTopic("orders", 1, {}), NewTopic("payments", 1, {})]
    failed = 0
    for point in range(1, 200):
        monkeypatch.setattr(disk, "fault", full_once_after(point))
        try:
            asyncio.run(broker.topics.create_all(wanted))
            break
        except StorageError:
            failed += 1
        finally:
            monkeypatch.setattr(disk, "fault", None)

        assert len(broker.topics) == 1
        assert stored_topics(broker) == {"present": 1}
        assert directories(broker) == ["present-0"]

    assert failed > 1
    broker.restart_after_kill()
    assert {topic.name for topic in broker.topics} == {"present", "orders", "payments"}


# -- the event loop ----------------------------------------------------------------------------------------------------


def test_the_file_of_ten_thousand_topics_is_not_made_on_the_event_loop(broker: HandlerBroker) -> None:
    for number in range(10_000):
        broker.topics._publish(Topic(f"topic-{number}", uuid.uuid4().bytes, {}))

    async def on_the_loop() -> float:
        """How much of its own time the event loop's thread has spent."""
        began = time.thread_time()
        assert await broker.topics.create("one-more", 1, {}) is not None
        return time.thread_time() - began

    assert asyncio.run(on_the_loop()) < 0.02
    assert len(stored_topics(broker)) == 10_001


def test_many_topics_in_one_change_do_not_hold_the_event_loop(broker: HandlerBroker) -> None:
    longest = 0.0

    async def watched(change: Coroutine[Any, Any, Sequence[Topic | bool | None]]) -> Sequence[Topic | bool | None]:
        """What the event loop's thread itself spends in one go, independent of other load."""
        nonlocal longest
        task, longest = asyncio.create_task(change), 0.0
        while not task.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
        return await task

    topics = asyncio.run(watched(broker.topics.create_all([NewTopic(f"t-{n}", 1, {}) for n in range(500)])))
    assert longest < 0.05
    made = [topic for topic in topics if isinstance(topic, Topic)]
    assert len(made) == 500
    asyncio.run(watched(broker.topics.delete_all(made)))
    assert longest < 0.05
    assert directories(broker) == []

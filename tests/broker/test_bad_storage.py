"""Disks that are full or cannot be written: Kafka's error, no loss, and service again when there is room."""

from __future__ import annotations

import json
import resource
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.error_codes import ErrorCode
from tests.broker.expected_log import ExpectedLog
from tests.broker.serve_process import refusal
from tests.broker.wire_client import WireClient, batch, produce_request
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

LIMIT_BYTES = 64 * 1024


@contextmanager
def full_disk(broker: HoldfastBroker, limit_bytes: int = LIMIT_BYTES) -> Iterator[None]:
    """No file of the broker can grow past the limit: the write fails as it does on a full disk."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, before)


def fill_up(client: WireClient, topic: str) -> int:
    """Produces until just below the limit; returns how many records are acknowledged."""
    count = 0
    while (count + 1) * 1200 < LIMIT_BYTES:
        assert client.produce(topic, batch(b"%d" % count + bytes(1000))).error_code == 0
        count += 1
    return count


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_full_disk_is_answered_and_forgotten_when_there_is_room(flush: str) -> None:
    with HoldfastBroker({"flush": flush}) as broker, WireClient(broker.address) as client:
        client.create_topic("full")
        acknowledged = fill_up(client, "full")
        with full_disk(broker), ExpectedLog(broker).is_logged_in(1):
            answer = client.produce("full", batch(bytes(LIMIT_BYTES)))

            assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert len(client.fetch_all("full")) == acknowledged, "what is stored stays readable"

        answer = client.produce("full", batch(b"room again"))
        assert (answer.error_code, answer.base_offset) == (0, acknowledged)
        broker.restart()
        with WireClient(broker.address) as later:
            values = [record.value for record in later.fetch_all("full")]
        assert values == [b"%d" % number + bytes(1000) for number in range(acknowledged)] + [b"room again"]


def test_a_full_disk_is_logged_once_and_its_end_is_logged_once() -> None:
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.create_topic("full")
        fill_up(client, "full")
        with full_disk(broker), ExpectedLog(broker).is_logged_in(1):
            for _ in range(50):
                assert client.produce("full", batch(bytes(LIMIT_BYTES))).error_code == ErrorCode.KAFKA_STORAGE_ERROR

        def is_logged() -> bool:
            assert client.produce("full", batch(b"room again")).error_code == 0
            return "disk has room again; writes are taken refused_writes=50" in broker.log_text()

        eventually(is_logged, "the broker logs that the disk has room")
        said = broker.log_text()
        assert said.count("disk full; writes are refused") == 1
        assert "File too large" in said


def test_an_idempotent_producer_continues_after_a_full_disk_stopped_it() -> None:
    producer = {"producer_id": 4711, "producer_epoch": 0}
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.create_topic("full")
        assert client.produce("full", batch(b"first", base_sequence=0, **producer)).error_code == 0
        retried = batch(bytes(LIMIT_BYTES), base_sequence=1, **producer)
        with full_disk(broker):
            assert client.produce("full", retried).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce("full", retried).error_code == ErrorCode.KAFKA_STORAGE_ERROR

        answers = [client.produce("full", retried), client.produce("full", retried)]

        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 1), (0, 1)]
        assert len(client.fetch_all("full")) == 2


def test_acks_0_on_a_full_disk_closes_the_connection() -> None:
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.create_topic("full")
        with full_disk(broker):
            client.send(produce_request("full", batch(bytes(2 * LIMIT_BYTES)), acks=0), 9)

            assert client.is_closed_by_broker()
        with WireClient(broker.address) as later:
            assert later.fetch_all("full") == []


def test_a_topic_that_cannot_be_written_down_is_not_there_and_can_be_created_later() -> None:
    wide = CreatableTopicConfig("leader.replication.throttled.replicas", ",".join(["0:0"] * (LIMIT_BYTES // 8)))
    wanted = CreateTopicsRequest(
        [CreatableTopic("wide-1", 1, 1, configs=[wide]), CreatableTopic("wide-2", 1, 1, configs=[wide])], 30_000
    )
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.create_topic("narrow")
        with full_disk(broker, LIMIT_BYTES // 2), ExpectedLog(broker).is_logged_in(0):
            pass  # the bystander's own topic still fits
        with full_disk(broker, LIMIT_BYTES // 4):
            codes = [result.error_code for result in client.ask(wanted, 5).topics]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            names = {topic.name for topic in client.ask(MetadataRequest(None), 9).topics}
            assert not names & {"wide-1", "wide-2"}

        assert [result.error_code for result in client.ask(wanted, 5).topics] == [0, 0]
        broker.restart()
        with WireClient(broker.address) as later:
            assert {"narrow", "wide-1", "wide-2"} <= {
                topic.name for topic in later.ask(MetadataRequest(None), 9).topics
            }


def test_the_longest_topic_name_can_be_created_deleted_and_survived() -> None:
    name = "n" * 249
    with HoldfastBroker() as broker:
        with WireClient(broker.address) as client:
            client.create_topic(name)
            assert client.produce(name, batch(b"x")).error_code == 0

            (deleted,) = client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5).responses

            assert deleted.error_code == 0, deleted.error_message
        broker.restart()
        with WireClient(broker.address) as client:
            client.create_topic(name)
            assert client.fetch_all(name) == []


# -- directories that cannot be used -----------------------------------------------------------------------------------


def test_a_data_path_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    assert str(tmp_path / "file") in refusal(tmp_path / "file" / "data")


def test_a_data_path_that_cannot_be_created_is_refused() -> None:
    # Permission bits do not bind root; nobody can create a directory here.
    assert "/proc/holdfast" in refusal(Path("/proc/holdfast"))


def test_damaged_topics_are_refused_rather_than_taken_for_none(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        client.create_topic("precious")
        client.produce("precious", batch(b"record"))
    topics = tmp_path / "data" / "topics.json"
    sound = topics.read_bytes()

    topics.write_bytes(sound[: len(sound) // 2])
    assert "topics.json" in refusal(tmp_path / "data")
    topics.write_text(json.dumps({"version": 1, "topics": {"precious": {}}}))
    assert "topics.json" in refusal(tmp_path / "data")
    topics.unlink()
    assert "topics.json" in refusal(tmp_path / "data")

    topics.write_bytes(sound)
    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        assert [record.value for record in client.fetch_all("precious")] == [b"record"]


def test_a_directory_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path) as broker:
        broker.stop()
    file = tmp_path / "data" / "holdfast-format"
    file.write_text(json.dumps({"format": 99}))

    assert "written by a newer Holdfast (format 99" in refusal(tmp_path / "data")


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path):
        pass

    assert "node.id" in refusal(tmp_path / "data", "--set", f"node.id={uuid.uuid4().int % 1000 + 2}")

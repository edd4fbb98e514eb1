"""A disk that has changed what is on it: Kafka's error for those who read it, one log line, and no loss beyond it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestGroupTopic
from holdfast.wire.batch import parse_header
from holdfast.wire.error_codes import ErrorCode
from tests.broker.damaged_logs import FLIPS, damage, fill, read_trusting
from tests.broker.serve_process import refusal
from tests.broker.wire_client import NOW_MS, WireClient, batch, fetch_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture(params=["stopped", "killed"])
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ONE_OFFSETS_PARTITION = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def join(client: WireClient) -> None:
    """A group that rebalances is written to the ledger."""
    protocol = JoinGroupRequestProtocol("range", b"")
    asked = JoinGroupRequest("joined", 10_000, 10_000, protocol_type="consumer", protocols=[protocol])
    eventually(lambda: client.ask(asked, 3).error_code == 0, "a member is in the group")


def has_records(directory: Path) -> bool:
    return any(path.stat().st_size for path in directory.glob("*.log"))


def end(broker: HoldfastBroker, how: str) -> None:
    if how == "killed":
        broker.kill()
    else:
        broker.stop()


def test_a_damaged_batch_is_answered_with_kafkas_error_and_logged_once(tmp_path: Path, ending: str) -> None:
    with HoldfastBroker(directory=tmp_path) as broker:
        topics = [*FLIPS, "sound"]
        with WireClient(broker.address) as client:
            for topic in topics:
                fill(client, topic)
        end(broker, ending)
        files = {topic: damage(broker.data_dir, topic) for topic in FLIPS}
        broker.start()

        with WireClient(broker.address) as client:
            seen = {topic: read_trusting(client, topic) for topic in topics}
            if ending == "stopped":
                for _ in range(20):
                    answer = client.ask(fetch_request("payload", 13), 12).responses[0].partitions[0]
                    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
                asked = ListOffsetsTopic("crc", [ListOffsetsPartition(0, -1, NOW_MS)])
                assert client.ask(ListOffsetsRequest(-1, 0, [asked], 2000), 7).topics[0].partitions[0].error_code in (
                    0,
                    ErrorCode.CORRUPT_MESSAGE,
                )
        said = broker.log_text()

    assert seen.pop("sound").has_every_record
    for topic, outcome in seen.items():
        assert not outcome.is_silent_gap or str(files[topic]) in said, topic
        assert str(files[topic]) in said, f"{topic}: the log names the file"
        if ending == "stopped":
            assert outcome.error == "CORRUPT_MESSAGE", topic
    assert said.count(f"reads of it are refused file={files['payload']}") == (ending == "stopped")


def test_offsets_of_groups_behind_a_damaged_batch_are_loaded(tmp_path: Path, ending: str) -> None:
    def commit(client: WireClient, group: str, offset: int) -> None:
        partition = OffsetCommitRequestPartition(0, offset)
        topic = OffsetCommitRequestTopic("orders", partitions=[partition])
        answer = client.ask(OffsetCommitRequest(group, -1, "", topics=[topic]), 8)
        assert answer.topics[0].partitions[0].error_code == 0

    def committed(client: WireClient, group: str) -> int:
        asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestGroupTopic("orders", partition_indexes=[0])])
        answer = client.ask(OffsetFetchRequest(groups=[asked]), 8).groups[0]
        if answer.error_code:
            return -2
        return int(answer.topics[0].partitions[0].committed_offset)

    with HoldfastBroker(ONE_OFFSETS_PARTITION, directory=tmp_path) as broker:
        with WireClient(broker.address) as client:
            client.create_topic("orders")
            for number in range(20):
                eventually(lambda: committed(client, "warm-up") == -1, "the coordinator is there")
                commit(client, f"group-{number}", 100 + number)
        broker.stop()
        if ending == "killed":
            # What a kill leaves after the minute's checkpoint: all of it is known to have been on the disk.
            (broker.data_dir / ".kafka_cleanshutdown").unlink()
        (log,) = (broker.data_dir / "__consumer_offsets-0").glob("*.log")
        content = bytearray(log.read_bytes())
        position = 0
        for _ in range(10):
            position += parse_header(content, position).size
        content[position + 10] ^= 0x20
        log.write_bytes(content)
        broker.start()

        with WireClient(broker.address) as client:
            eventually(lambda: committed(client, "group-0") == 100, "the groups are loaded")
            found = {number: committed(client, f"group-{number}") for number in range(20)}
            commit(client, "later", 7)
        broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            eventually(lambda: committed(client, "later") == 7, "what was acknowledged behind the damage is there")
            assert committed(client, "group-19") == 119
        said = broker.log_text()

    assert {number for number, offset in found.items() if offset != 100 + number} == {10}
    assert str(log) in said
    assert "unreadable group records skipped" in said or "damaged segment" in said


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets", "__group_ledger"])
def test_records_are_not_acknowledged_behind_a_cut_end(tmp_path: Path, topic: str) -> None:
    with HoldfastBroker(ONE_OFFSETS_PARTITION, directory=tmp_path) as broker:
        with WireClient(broker.address) as client:
            client.create_topic("orders")
            for number in range(10):
                client.produce("orders", batch(b"%d" % number))
            partition = OffsetCommitRequestPartition(0, 5)
            commit = OffsetCommitRequest(
                "g", -1, "", topics=[OffsetCommitRequestTopic("orders", partitions=[partition])]
            )
            eventually(lambda: client.ask(commit, 8).topics[0].partitions[0].error_code == 0, "a commit is stored")
            join(client)
            eventually(lambda: has_records(broker.data_dir / f"{topic}-0"), f"{topic} has records")
        broker.stop()
        logs = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
        os.truncate(logs[-1], logs[-1].stat().st_size - 3)
        broker.start()

        with WireClient(broker.address) as client:
            if topic == "orders":
                assert client.produce("orders", batch(b"acknowledged")).base_offset == 10
            else:
                eventually(lambda: client.ask(commit, 8).topics[0].partitions[0].error_code == 0, "it is stored again")
                join(client)
                eventually(lambda: len(list(logs[0].parent.glob("*.log"))) > 1, "it goes on in a new segment")
        broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            if topic == "orders":
                assert [record.value for record in client.fetch("orders", 10)] == [b"acknowledged"]
                lost = client.ask(fetch_request("orders", 9), 12).responses[0].partitions[0]
                assert lost.error_code == ErrorCode.CORRUPT_MESSAGE
        assert f"file={logs[-1]}" in broker.log_text()


def test_a_changed_digit_of_the_topics_is_refused(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        client.create_topic("precious", partitions=4, retention_ms="604800000")
    topics = tmp_path / "data" / "topics.json"
    sound = topics.read_text()

    for found, changed in (
        ('"partitions": 4', '"partitions": 6'),
        ("604800000", "104800000"),
        ("precious", "qrecious"),
    ):
        assert found in sound
        topics.write_text(sound.replace(found, changed))
        assert "topics.json is damaged (its CRC does not match" in refusal(tmp_path / "data")

    # and any client that edits the file takes the CRC out
    edited = json.loads(sound)
    del edited["crc32c"]
    topics.write_text(json.dumps(edited))
    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        assert client.produce("precious", batch(b"x"), partition=3).error_code == 0


@pytest.mark.real
@pytest.mark.timeout(600)
def test_holdfast_is_at_least_as_loud_as_kafka(tmp_path: Path) -> None:
    outcomes = {}
    for name, server in (
        ("holdfast", HoldfastBroker(directory=tmp_path / "holdfast")),
        ("kafka", ApacheKafka(directory=tmp_path / "kafka")),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        with server:
            with WireClient(server.address) as client:
                for topic in FLIPS:
                    fill(client, topic)
            server.stop()
            for topic in FLIPS:
                damage(server.data_dir, topic)
            server.start()
            with WireClient(server.address) as client:
                outcomes[name] = {topic: read_trusting(client, topic) for topic in FLIPS}

    for topic in FLIPS:
        ours, theirs = outcomes["holdfast"][topic], outcomes["kafka"][topic]
        print(
            f"{topic:24} holdfast: {len(ours.offsets)} {ours.error!r:30} kafka: {len(theirs.offsets)} {theirs.error!r}"
        )
        assert ours.error == "CORRUPT_MESSAGE", topic
    # The control: it is not that nothing could be noticed, nor that Kafka notices all.
    assert any(outcome.is_silent_gap for outcome in outcomes["kafka"].values())
    assert any(outcome.error for outcome in outcomes["kafka"].values())

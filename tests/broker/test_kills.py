"""kill -9 wherever something is written: what was acknowledged is there, once; the rest is there or not; it starts.

Each test does one thing to a broker that ends itself at the first, second, third … change to the disk, until the thing
is done before the broker ends. After each end the broker is started again and asked.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.metadata import MetadataRequest
from tests.broker.crash_at_write import KillableBroker
from tests.broker.wire_client import WireClient, batch
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LARGE = bytes(600_000)
"""Two of these do not fit in a segment of a megabyte."""
SEGMENT = {"log.segment.bytes": str(1024 * 1024)}
UNLOADED = {"log.retention.check.interval.ms": "3600000"}
"""Nothing changes by itself while it is looked at."""
MAX_POINTS = 400
LAST_SEGMENT_FILES = 4
"""The log, the topic's id, leader epochs, a snapshot of the producers."""


@dataclasses.dataclass
class Ledger:
    """What clients got acknowledged, to be held against what is found after a kill."""

    records: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    partitions: dict[str, int] = dataclasses.field(default_factory=dict)
    in_flight: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """The record that a topic was sent last, if it was not acknowledged: it may be there or not."""
    data: Path = Path()

    def copy(self, data: Path) -> Ledger:
        return Ledger({topic: list(values) for topic, values in self.records.items()}, dict(self.partitions), {}, data)

    def create(self, client: WireClient, topic: str, partitions: int = 1) -> None:
        client.create_topic(topic, partitions)
        self.records[topic] = []
        self.partitions[topic] = partitions

    def produce(self, client: WireClient, topic: str, value: bytes) -> None:
        """As an idempotent producer does: the sequence says how many it has had acknowledged."""
        self.in_flight[topic] = value
        acknowledged = self.records[topic]
        stored = batch(value, producer_id=1 << 40, producer_epoch=0, base_sequence=len(acknowledged))
        answer = client.produce(topic, stored)
        assert (answer.error_code, answer.base_offset) == (0, len(acknowledged)), answer
        acknowledged.append(value)
        del self.in_flight[topic]

    def check(self, client: WireClient) -> None:
        found = partition_counts(client)
        for topic, count in self.partitions.items():
            assert found.get(topic) == count, topic
        for topic, acknowledged in self.records.items():
            values = [record.value for record in client.fetch_all(topic)]
            assert values in (acknowledged, [*acknowledged, self.in_flight.get(topic)]), (
                f"{topic}: {len(values)} records"
            )

    def go_on(self, client: WireClient) -> None:
        """Every topic takes records again, and a retry of the one in flight does not make two of it."""
        for topic in self.records:
            self.produce(client, topic, self.in_flight.get(topic, b"after the kill"))
        self.check(client)


def partition_counts(client: WireClient) -> dict[str, int]:
    return {topic.name: len(topic.partitions) for topic in client.ask(MetadataRequest(None), 9).topics}


Act = Callable[[WireClient, Ledger], None]
Check = Callable[[WireClient, bool], None]


def crash_at_every_point(
    data_path: Path,
    prepare: Act,
    act: Act,
    check: Check,
    settings: dict[str, str] | None = None,
    fewest_points: int = 5,
) -> None:
    """`check` gets whether `act` was acknowledged."""
    prepared = Ledger()
    with KillableBroker(data_path / "prepared", settings) as broker, WireClient(broker.address) as client:
        prepared.create(client, "bystander")
        prepared.produce(client, "bystander", b"before")
        prepare(client, prepared)
    for point in range(1, MAX_POINTS):
        data = data_path / f"point-{point}"
        shutil.copytree(data_path / "prepared", data)
        ledger = prepared.copy(data)
        with KillableBroker(data, settings) as broker:
            broker.arm(point)
            acknowledged = done(broker, act, ledger)
        with KillableBroker(data, {**(settings or {}), **UNLOADED}) as broker, WireClient(broker.address) as client:
            ledger.check(client)
            check(client, acknowledged)
            ledger.go_on(client)
        shutil.rmtree(data)
        if acknowledged:
            assert point > fewest_points, "it hardly wrote anything: this test shows nothing"
            return
    pytest.fail(f"not done after {MAX_POINTS} changes to the disk")


def done(broker: KillableBroker, act: Act, ledger: Ledger) -> bool:
    try:
        with WireClient(broker.address) as client:
            act(client, ledger)
    except ConnectionError:
        return False
    return True


def files_are_gone(client: WireClient, data: Path) -> bool:
    """Of deleted topics. Fails when the broker is gone."""
    partition_counts(client)
    return not list(data.glob("*-delete"))


def directories_are_there(client: WireClient, data: Path, count: int) -> bool:
    """Of new topics. Fails when the broker is gone."""
    partition_counts(client)
    return len(list(data.glob("new-*/partition.metadata"))) == count


def nothing(client: WireClient, ledger: Ledger) -> None:
    """No preparation."""


# -- topics ------------------------------------------------------------------------------------------------------------


def test_creating_a_topic(data_path: Path) -> None:
    def act(client: WireClient, ledger: Ledger) -> None:
        ledger.create(client, "new")
        ledger.produce(client, "new", b"first")

    def check(client: WireClient, acknowledged: bool) -> None:
        found = partition_counts(client).get("new")
        assert found == 1 or (found is None and not acknowledged)

    crash_at_every_point(data_path, nothing, act, check)


def test_growing_a_topic(data_path: Path) -> None:
    def prepare(client: WireClient, ledger: Ledger) -> None:
        client.create_topic("growing")

    def act(client: WireClient, ledger: Ledger) -> None:
        wanted = CreatePartitionsRequest([CreatePartitionsTopic("growing", 2, None)], 30_000)
        assert client.ask(wanted, 3).results[0].error_code == 0

    def check(client: WireClient, acknowledged: bool) -> None:
        found = partition_counts(client)["growing"]
        assert found == 2 or (found == 1 and not acknowledged)

    crash_at_every_point(data_path, prepare, act, check)


def test_deleting_a_topic(data_path: Path) -> None:
    def prepare(client: WireClient, ledger: Ledger) -> None:
        client.create_topic("discarded")
        for value in (b"cut away", b"a", b"b"):
            assert client.produce("discarded", batch(value)).error_code == 0
        cut = DeleteRecordsTopic("discarded", [DeleteRecordsPartition(0, 1)])
        assert client.ask(DeleteRecordsRequest([cut], 30_000), 2).topics[0].partitions[0].error_code == 0

    def act(client: WireClient, ledger: Ledger) -> None:
        (result,) = client.ask(DeleteTopicsRequest(topic_names=["discarded"], timeout_ms=30_000), 5).responses
        assert result.error_code == 0
        eventually(lambda: files_are_gone(client, ledger.data), "the files of the topic are removed", within_s=10)

    def check(client: WireClient, acknowledged: bool) -> None:
        if "discarded" not in partition_counts(client):
            client.create_topic("discarded")
            assert client.fetch_all("discarded") == [], "a new topic of the name must not inherit records"
            assert client.produce("discarded", batch(b"new")).base_offset == 0, "nor where the old one began"
        else:
            assert not acknowledged
            assert [record.value for record in client.fetch_all("discarded", start=1)] == [b"a", b"b"]

    crash_at_every_point(data_path, prepare, act, check)


NEW = [f"new-{number}" for number in range(3)]


def test_creating_several_topics_in_one_request(data_path: Path) -> None:
    def act(client: WireClient, ledger: Ledger) -> None:
        wanted = CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in NEW], 30_000)
        assert [result.error_code for result in client.ask(wanted, 5).topics] == [0, 0, 0]
        eventually(lambda: directories_are_there(client, ledger.data, 6), "the partitions are made", within_s=10)

    def check(client: WireClient, acknowledged: bool) -> None:
        found = [partition_counts(client).get(name) for name in NEW]
        assert found == [2, 2, 2] or (found == [None] * 3 and not acknowledged), "all of them, or none"
        for name in NEW if found[0] else ():
            assert client.produce(name, batch(b"first"), partition=1).base_offset == 0

    crash_at_every_point(data_path, nothing, act, check, fewest_points=15)


def test_growing_several_topics_in_one_request(data_path: Path) -> None:
    def prepare(client: WireClient, ledger: Ledger) -> None:
        for name in NEW:
            client.create_topic(name)

    def act(client: WireClient, ledger: Ledger) -> None:
        wanted = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None) for name in NEW], 30_000)
        assert [result.error_code for result in client.ask(wanted, 3).results] == [0, 0, 0]
        eventually(lambda: directories_are_there(client, ledger.data, 6), "the partitions are made", within_s=10)

    def check(client: WireClient, acknowledged: bool) -> None:
        found = [partition_counts(client)[name] for name in NEW]
        assert found == [2, 2, 2] or (found == [1, 1, 1] and not acknowledged), "all of them, or none"

    crash_at_every_point(data_path, prepare, act, check, fewest_points=10)


def test_deleting_several_topics_in_one_request(data_path: Path) -> None:
    def prepare(client: WireClient, ledger: Ledger) -> None:
        for name in NEW:
            client.create_topic(name)
            assert client.produce(name, batch(b"old")).error_code == 0

    def act(client: WireClient, ledger: Ledger) -> None:
        answer = client.ask(DeleteTopicsRequest(topic_names=NEW, timeout_ms=30_000), 5)
        assert [result.error_code for result in answer.responses] == [0, 0, 0]
        eventually(lambda: files_are_gone(client, ledger.data), "the files of the topics are removed", within_s=10)

    def check(client: WireClient, acknowledged: bool) -> None:
        left = [name for name in NEW if name in partition_counts(client)]
        assert left == [] or (left == NEW and not acknowledged), "all of them, or none"
        for name in NEW:
            if left:
                assert [record.value for record in client.fetch_all(name)] == [b"old"]
            else:
                client.create_topic(name)
                assert client.fetch_all(name) == [], "a new topic of the name must not inherit records"

    crash_at_every_point(data_path, prepare, act, check, fewest_points=15)


def test_changing_a_config(data_path: Path) -> None:
    def act(client: WireClient, ledger: Ledger) -> None:
        change = IncrementalAlterConfigsResource(
            TOPIC_RESOURCE, "bystander", [IncrementalAlterableConfig("retention.ms", 0, "123456789")]
        )
        assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0

    def check(client: WireClient, acknowledged: bool) -> None:
        asked = DescribeConfigsResource(TOPIC_RESOURCE, "bystander", ["retention.ms"])
        (result,) = client.ask(DescribeConfigsRequest([asked]), 4).results
        value = result.configs[0].value
        assert value == "123456789" or (value == "604800000" and not acknowledged)

    crash_at_every_point(data_path, nothing, act, check)


def test_changing_a_config_of_the_broker(data_path: Path) -> None:
    def act(client: WireClient, ledger: Ledger) -> None:
        change = IncrementalAlterConfigsResource(
            BROKER_RESOURCE, "", [IncrementalAlterableConfig("log.retention.ms", 0, "123456789")]
        )
        assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0

    def check(client: WireClient, acknowledged: bool) -> None:
        asked = DescribeConfigsResource(TOPIC_RESOURCE, "bystander", ["retention.ms"])
        (result,) = client.ask(DescribeConfigsRequest([asked]), 4).results
        value = result.configs[0].value
        assert value == "123456789" or (value == "604800000" and not acknowledged)

    crash_at_every_point(data_path, nothing, act, check)


def test_producer_ids_are_never_given_twice(data_path: Path) -> None:
    given: list[int] = []

    def take(client: WireClient) -> int:
        response = client.ask(InitProducerIdRequest(None, 1000), 4)
        assert response.error_code == 0
        return int(response.producer_id)

    def prepare(client: WireClient, ledger: Ledger) -> None:
        given.append(take(client))

    def act(client: WireClient, ledger: Ledger) -> None:
        given[1:] = []
        given.append(take(client))

    def check(client: WireClient, acknowledged: bool) -> None:
        assert take(client) not in given

    crash_at_every_point(data_path, prepare, act, check)


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", ["os", "always"])
def test_producing_across_segments(flush: str, data_path: Path) -> None:
    def act(client: WireClient, ledger: Ledger) -> None:
        for number in range(3):
            ledger.produce(client, "bystander", b"%d" % number + LARGE)

    crash_at_every_point(data_path, nothing, act, lambda client, acknowledged: None, {"flush": flush, **SEGMENT})


def test_deleting_records(data_path: Path) -> None:
    def prepare(client: WireClient, ledger: Ledger) -> None:
        client.create_topic("cut")
        assert client.produce("cut", batch(b"0", b"1", b"2", b"3")).error_code == 0
        assert client.produce("cut", batch(b"4", b"5")).error_code == 0

    def act(client: WireClient, ledger: Ledger) -> None:
        cut = DeleteRecordsTopic("cut", [DeleteRecordsPartition(0, 5)])
        result = client.ask(DeleteRecordsRequest([cut], 30_000), 2).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 5)

    def check(client: WireClient, acknowledged: bool) -> None:
        start = earliest(client, "cut")
        assert start == 5 or (start == 0 and not acknowledged)
        values = [record.value for record in client.fetch_all("cut", start=start)]
        assert values == [b"0", b"1", b"2", b"3", b"4", b"5"][start:]

    crash_at_every_point(data_path, prepare, act, check)


def earliest(client: WireClient, topic: str) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-2)])
    answer = client.ask(ListOffsetsRequest(topics=[asked]), 6).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


def only_the_last_is_left(client: WireClient, directory: Path) -> bool:
    """Fails when the broker is gone."""
    return earliest(client, "old") == 3 and len([*directory.iterdir()]) <= LAST_SEGMENT_FILES


def test_retention(data_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "20", **SEGMENT}

    def prepare(client: WireClient, ledger: Ledger) -> None:
        client.create_topic("old")
        for number in range(4):
            assert client.produce("old", batch(b"%d" % number + LARGE)).error_code == 0

    def act(client: WireClient, ledger: Ledger) -> None:
        change = IncrementalAlterConfigsResource(
            TOPIC_RESOURCE, "old", [IncrementalAlterableConfig("retention.bytes", 0, "1000")]
        )
        assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        eventually(lambda: only_the_last_is_left(client, ledger.data / "old-0"), "old segments are gone", within_s=10)

    def check(client: WireClient, acknowledged: bool) -> None:
        start = earliest(client, "old")
        values = [record.value for record in client.fetch_all("old", start=start)]
        assert values == [b"%d" % number + LARGE for number in range(start, 4)], "no hole, and the newest is there"

    crash_at_every_point(data_path, prepare, act, check, settings)


# -- stopping and starting ---------------------------------------------------------------------------------------------


def load(client: WireClient, ledger: Ledger) -> None:
    for number in range(2):
        ledger.produce(client, "bystander", b"%d" % number + LARGE)
    ledger.create(client, "second")
    ledger.produce(client, "second", b"x")


def test_a_clean_stop(data_path: Path) -> None:
    ledger = Ledger()
    with KillableBroker(data_path / "prepared", SEGMENT) as broker, WireClient(broker.address) as client:
        ledger.create(client, "bystander")
        load(client, ledger)
    for point in range(1, MAX_POINTS):
        data = data_path / f"point-{point}"
        shutil.copytree(data_path / "prepared", data)
        with KillableBroker(data, SEGMENT) as broker:
            broker.arm(point)
            exit_code = broker.stop()
        with KillableBroker(data, SEGMENT) as broker, WireClient(broker.address) as client:
            ledger.check(client)
        shutil.rmtree(data)
        if exit_code == 0:
            assert point > 20
            return
    pytest.fail("it never stopped cleanly")


@pytest.mark.parametrize("left", ["by a kill", "with a torn tail", "by a clean stop"])
def test_starting(left: str, data_path: Path) -> None:
    ledger = Ledger()
    prepared = data_path / "prepared"
    with KillableBroker(prepared, SEGMENT) as broker:
        with WireClient(broker.address) as client:
            ledger.create(client, "bystander")
            load(client, ledger)
        if left == "by a clean stop":
            assert broker.stop() == 0
    if left == "with a torn tail":
        last = sorted((prepared / "bystander-0").glob("*.log"))[-1]
        with last.open("ab") as log:
            log.write(batch(b"torn")[:-3])
    for point in range(1, MAX_POINTS):
        data = data_path / f"point-{point}"
        shutil.copytree(prepared, data)
        with KillableBroker(data, SEGMENT, end_at=point) as broker:
            started = bool(broker.address[0])
        with KillableBroker(data, SEGMENT) as broker, WireClient(broker.address) as client:
            ledger.check(client)
        shutil.rmtree(data)
        if started:
            assert point > 5
            return
    pytest.fail("it never started")


# -- controls ----------------------------------------------------------------------------------------------------------


def test_the_check_notices_a_lost_batch_and_a_lost_topic(data_path: Path) -> None:
    ledger = Ledger()
    with KillableBroker(data_path, SEGMENT) as broker, WireClient(broker.address) as client:
        ledger.create(client, "bystander")
        load(client, ledger)
    last = sorted((data_path / "bystander-0").glob("*.log"))[-1]
    with last.open("ab") as log:
        log.truncate(last.stat().st_size - 10)

    with KillableBroker(data_path, SEGMENT) as broker, WireClient(broker.address) as client:
        with pytest.raises(AssertionError, match="bystander"):
            ledger.check(client)
        client.ask(DeleteTopicsRequest(topic_names=["second"], timeout_ms=30_000), 5)
        ledger.records.pop("bystander")
        with pytest.raises(AssertionError, match="second"):
            ledger.check(client)


def test_the_check_notices_a_record_stored_twice(data_path: Path) -> None:
    ledger = Ledger()
    with KillableBroker(data_path) as broker, WireClient(broker.address) as client:
        ledger.create(client, "bystander")
        ledger.produce(client, "bystander", b"once")
        assert client.produce("bystander", batch(b"once")).error_code == 0

        with pytest.raises(AssertionError, match="bystander"):
            ledger.check(client)


# -- at random times, under load ---------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(300)
def test_twenty_kills_under_load_by_librdkafka(data_path: Path) -> None:
    from confluent_kafka import Producer

    rng = random.Random(20)
    delivered: list[bytes] = []
    stop = threading.Event()

    def produce(bootstrap: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        number = 0
        while not stop.is_set():
            if len(producer) < 2000:
                value = b"%d" % number
                producer.produce("load", value, partition=0, on_delivery=_note(delivered, value))
                number += 1
            producer.poll(0.001)
        producer.flush(60)

    with HoldfastBroker({"flush": "os", **SEGMENT}, directory=data_path) as broker:
        with WireClient(broker.address) as client:
            client.create_topic("load")
        thread = threading.Thread(target=produce, args=(broker.bootstrap,))
        thread.start()
        try:
            for _ in range(20):
                before = len(delivered)
                eventually(partial(_has_grown, delivered, before), "the producer gets on", within_s=60)
                time.sleep(rng.uniform(0.0, 0.5))
                broker.kill()
                broker.start()
        finally:
            stop.set()
            thread.join(90)
        with WireClient(broker.address) as client:
            stored = [record.value for record in client.fetch_all("load")]

    assert len(stored) == len(set(stored)), "stored twice"
    assert set(delivered) <= set(stored), "acknowledged and lost"
    assert stored == sorted(stored, key=lambda value: int(value or b"0")), "in the order of producing"


def _has_grown(delivered: list[bytes], before: int) -> bool:
    return len(delivered) > before


def _note(delivered: list[bytes], value: bytes) -> Callable[[object, object], None]:
    def on_delivery(error: object, _: object) -> None:
        if error is None:
            delivered.append(value)

    return on_delivery

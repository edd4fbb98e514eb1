"""A wrong address is reported within 15 s; a broker that is away later is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConnectionFailed
from holdfast.client.runtime import Runtime
from holdfast.client.settings import NetworkSettings
from holdfast.spark import first_contact, producing
from holdfast.spark.first_contact import reach_a_broker
from holdfast.spark.options import stream_options
from holdfast.spark.stream_reader import StreamReader
from holdfast.spark.write_options import ProducerSettings
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_harness import SparkHarness
from tests.unit.client.test_runtime import RefusingTransport, SilentTransport, VirtualClock

ADDRESSES = (Address("a.example", 9092), Address("b.example", 9092))
SERVERS = "a.example:9092"


@pytest.mark.parametrize("transport", [RefusingTransport, SilentTransport], ids=["refuses", "drops packets"])
@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 15.0), ({"default.api.timeout.ms": "40000"}, 40.0), ({"default.api.timeout.ms": "2000"}, 2.0)],
    ids=["default", "longer", "shorter"],
)
def test_the_first_contact_ends_in_time(
    transport: type[SilentTransport], given: dict[str, str], seconds: float
) -> None:
    clock = VirtualClock()
    network = ClusterClient(NetworkSettings(ADDRESSES), runtime=Runtime(clock, transport))
    start = clock.now()

    with pytest.raises(ConnectionFailed) as failed:
        reach_a_broker(network, given)

    assert seconds / 4 < clock.now() - start <= seconds
    assert all(str(address) in str(failed.value) for address in ADDRESSES)


@pytest.fixture
def own_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SparkHarness, HoldfastBroker]]:
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 1_000)
    with HoldfastBroker(QUICK) as broker:
        world = SparkHarness(broker)
        yield world, broker
        world.close()


def test_a_query_that_has_reached_a_broker_waits_longer(own_world: tuple[SparkHarness, HoldfastBroker]) -> None:
    # given a running query
    world, broker = own_world
    world.make_topic(1, each=2)
    options = stream_options(world.options({"startingOffsets": "earliest"}))
    reader = StreamReader(options)
    try:
        first = reader.latestOffset({}, ReadAllAvailable())

        # when the broker is away for longer than the first contact may take
        broker.suspend()
        back = threading.Timer(3.0, broker.resume)
        back.start()

        # then a query that starts fails, and the running one goes on
        with pytest.raises(ConnectionFailed, match=r"kafka\.bootstrap\.servers"):
            StreamReader(options).latestOffset({}, ReadAllAvailable())
        assert back.is_alive()
        assert reader.latestOffset(first, ReadAllAvailable()) == first
    finally:
        broker.resume()
        reader.stop()


# -- the sink ----------------------------------------------------------------------------------------------------------


class UnreachableClient:
    """A producer whose requests time out."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self._clock = clock

    def list_topics(self, _topic: str, timeout: float) -> None:
        self._clock.now += max(timeout, 0.1)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _timeout: float) -> None: ...


@pytest.mark.parametrize(
    ("reached", "settings", "seconds"),
    [
        (False, ProducerSettings({"bootstrap.servers": SERVERS}), 15),
        (True, ProducerSettings({"bootstrap.servers": SERVERS}), 60),
        (False, ProducerSettings({"bootstrap.servers": SERVERS}, 120.0, 30.0, 30.0), 30),
    ],
    ids=["first", "later", "set by the user"],
)
def test_a_task_waits_longer_if_another_has_reached_the_brokers(
    reached: bool, settings: ProducerSettings, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(producing, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other")
    if reached:
        first_contact.mark_reached(SERVERS)
    first_contact.mark_reached("other.example:9092")
    producer: Any = SimpleNamespace(client=UnreachableClient(clock), reports=producing._Reports(), connected=False)

    with pytest.raises(ConnectionFailed, match=rf"answered within {seconds} s \(option kafka.max.block.ms\)"):
        producing._Task(producer, settings).connect("t")

    assert clock.now == pytest.approx(seconds, abs=0.2)


def test_a_task_that_has_reached_the_brokers_says_so_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    client = SimpleNamespace(list_topics=lambda _topic, timeout: None)
    producer: Any = SimpleNamespace(client=client, reports=producing._Reports(), connected=False)
    assert not first_contact.was_reached(SERVERS)

    producing._Task(producer, ProducerSettings({"bootstrap.servers": SERVERS})).connect("t")

    assert first_contact.was_reached(SERVERS) and producer.connected


@pytest.mark.parametrize("directory", ["", "/does/not/exist"])
def test_without_a_directory_every_process_has_its_own_first_contact(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", directory)

    first_contact.mark_reached(SERVERS)

    assert not first_contact.was_reached(SERVERS)

"""Ranges read as whole batches: the same rows as librdkafka gives, and librdkafka for what only it reads."""

from __future__ import annotations

import gc
import importlib.machinery
import logging
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConfigError, HoldfastError, UnsupportedVersion
from holdfast.client.partition_fetcher import FetchedPartition, PartitionFetcher
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.spark import executor_consumers, fetching
from holdfast.spark.batch_headers import UnsupportedBatch, split_batches
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.fetch_reader import FetchReader
from holdfast.spark.fetched_batches import BatchDecoder
from holdfast.spark.fetching import read_ranges
from holdfast.spark.range_fetcher import RangeFetcher, only_of_librdkafka
from holdfast.types import TopicPartition
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.compression import Codec
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.holdfast_broker import HoldfastBroker

CLIENT = ConfluentClient()
LIBRDKAFKA = {"socket.keepalive.enable": "false"}
PATIENCE_S = 20.0


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    fetching._log_once.cache_clear()
    yield
    executor_consumers.close_all()


def read(server: Server, *ranges: OffsetRange, settings: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    kafka = {"bootstrap.servers": server.bootstrap, **(settings or {})}
    batches = read_ranges(ranges, kafka, include_headers=True, fail_on_data_loss=True)
    return [row for batch in batches for row in batch.to_pylist()]


# -- both ways ---------------------------------------------------------------------------------------------------------


def produce(server: Server, topic: str, batches: Sequence[bytes], partition: int = 0) -> None:
    settings = NetworkSettings.from_config({"bootstrap.servers": server.bootstrap})
    with ClusterClient(settings, runtime=SYSTEM) as cluster:
        leader = cluster.metadata([topic]).topic(topic).leaders[partition]
        for batch in batches:
            data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
            response = cluster.node(leader).ask(ProduceRequest(None, -1, 10_000, [data]), None, 9)
            assert response.responses[0].partition_responses[0].error_code == 0


def random_batch(chance: random.Random) -> bytes:
    template = random_record(chance, 0)
    if chance.random() < 0.2:
        return encode_batch([template._replace(value=bytes(9000 * number), offset=number) for number in range(5)])
    count = chance.choice([1, 2, 10, 300])
    records = [
        (random_record(chance, number) if chance.random() < 0.3 else template)._replace(offset=number)
        for number in range(count)
    ]
    return encode_batch(records, compression=chance.choice(list(Codec)))


def random_record(chance: random.Random, offset: int) -> Record:
    def piece() -> bytes | None:
        return chance.choice([None, b"", b"x", chance.randbytes(chance.randint(1, 300))])

    names = ["", "a", "trace-id", "größe", "x" * 100]
    headers = tuple((chance.choice(names), piece()) for _ in range(chance.choice([0, 0, 1, 4])))
    return Record(offset, 1_700_000_000_000 + chance.randrange(-100_000, 100_000), piece(), piece(), headers)


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_random_batches_give_the_rows_that_librdkafka_gives(server: Server, topic: str, timestamps: str) -> None:
    configs = {"message.timestamp.type": timestamps, "retention.ms": "-1"}
    CLIENT.create_topic(server.bootstrap, topic, 1, configs)
    chance = random.Random(timestamps)
    batches = [random_batch(chance) for _ in range(40)]
    produce(server, topic, batches)
    end = sum(int.from_bytes(batch[57:61]) for batch in batches)
    whole = OffsetRange(topic, 0, 0, end)
    middle = OffsetRange(topic, 0, end // 3, end // 2)

    for wanted in (whole, middle):
        rows = read(server, wanted)
        assert rows == read(server, wanted, settings=LIBRDKAFKA)
        assert [row["offset"] for row in rows] == list(range(wanted.start, wanted.end))


def test_small_responses_give_the_same_rows_as_large_ones(quick_holdfast: HoldfastBroker, topic: str) -> None:
    """With 2,000 bytes for a response, each has one batch, and most batches of others are cut off."""
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 1)
    chance = random.Random(3)
    batches = [random_batch(chance) for _ in range(40)]
    produce(quick_holdfast, topic, batches)
    whole = OffsetRange(topic, 0, 0, sum(int.from_bytes(batch[57:61]) for batch in batches))

    small = read(quick_holdfast, whole, settings={"max.partition.fetch.bytes": "2000", "fetch.max.bytes": "2000"})

    assert small == read(quick_holdfast, whole)


@pytest.mark.parametrize("end", [99, 100, 101, 119, 120])
def test_a_range_may_end_in_a_batch_that_is_decoded_in_two_parts(
    quick_holdfast: HoldfastBroker, topic: str, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.fetched_batches.MAX_CHUNK_RECORDS", 100)
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 1)
    batches = [encode_batch([Record(number, 0, None, b"x") for number in range(count)]) for count in (90, 30, 50)]
    produce(quick_holdfast, topic, batches)

    rows = read(quick_holdfast, OffsetRange(topic, 0, 0, end))

    assert [row["offset"] for row in rows] == list(range(end))


# -- librdkafka for the rest -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [UnsupportedBatch("message format v1"), UnsupportedVersion("Fetch")])
def test_what_is_not_supported_is_read_by_librdkafka_from_there_on(
    quick_holdfast: HoldfastBroker,
    topic: str,
    reason: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 2)
    for partition in (0, 1):
        stored = [encode_batch([Record(number, 0, None, b"x") for number in range(20)]) for _ in range(5)]
        produce(quick_holdfast, topic, stored, partition)
    real, seen = split_batches, list[Any]()

    def split(records: Any) -> Any:
        seen.append(records)
        if len(seen) == 4:
            raise reason
        return real(records)

    monkeypatch.setattr("holdfast.spark.fetch_reader.split_batches", split)
    settings = {"max.partition.fetch.bytes": "400"}
    with caplog.at_level(logging.INFO, "holdfast.spark"):
        rows = read(quick_holdfast, OffsetRange(topic, 0, 5, 95), OffsetRange(topic, 1, 0, 100), settings=settings)

    assert len(seen) == 4
    for partition, wanted in ((0, range(5, 95)), (1, range(100))):
        assert [row["offset"] for row in rows if row["partition"] == partition] == list(wanted)
    assert f"read through librdkafka, which is slower, because of {reason}" in caplog.text


def test_an_option_that_only_librdkafka_has_is_honoured(
    quick_holdfast: HoldfastBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 1)
    produce(quick_holdfast, topic, [encode_batch([Record(0, 0, None, b"x")])])
    asked: list[Any] = []
    real = PartitionFetcher.request

    def request(self: PartitionFetcher, positions: Any, deadline: float) -> None:
        asked.append(dict(positions))
        real(self, positions, deadline)

    monkeypatch.setattr(PartitionFetcher, "request", request)

    assert len(read(quick_holdfast, OffsetRange(topic, 0, 0, 1), settings=LIBRDKAFKA)) == 1
    assert asked == []
    assert len(read(quick_holdfast, OffsetRange(topic, 0, 0, 1))) == 1  # the control
    assert asked[0] == {(topic, 0): 0}


def test_settings_of_the_network_and_of_fetches_are_not_librdkafkas_alone() -> None:
    own = {
        "bootstrap.servers": "b:9092",
        "group.id": "g",
        "group.instance.id": "i",
        "security.protocol": "SASL_SSL",
        "sasl.password": "p",
        "ssl.ca.location": "/ca",
        "isolation.level": "read_committed",
        "session.timeout.ms": "6000",
        "max.partition.fetch.bytes": "1000",
        "fetch.wait.max.ms": "5",
        "check.crcs": "false",
        "client.rack": "",
    }
    assert only_of_librdkafka(own) == []
    assert only_of_librdkafka({**own, "client.rack": "a", "queued.min.messages": "5"}) == [
        "client.rack",
        "queued.min.messages",
    ]


def test_a_setting_with_a_wrong_value_is_reported_by_its_option(quick_holdfast: HoldfastBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.': fetch.wait.max.ms is 'soon'; it must be a whole number"):
        read(quick_holdfast, OffsetRange(topic, 0, 0, 1), settings={"fetch.wait.max.ms": "soon"})


def test_only_in_a_worker_of_spark_modules_are_exempt_from_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    frozen: list[bool] = []

    fetching._exempt_modules_from_collection.cache_clear()
    for name, calls in (("pytest", 0), ("pyspark.daemon", 1)):
        spec = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
        for _ in range(2):
            fetching._exempt_modules_from_collection()
        assert len(frozen) == calls
        fetching._exempt_modules_from_collection.cache_clear()


# -- answers of a broker -----------------------------------------------------------------------------------------------

Answer = Callable[[int], FetchedPartition]
"""To a fetch from this offset on."""


class ScriptedFetcher(RangeFetcher):
    """Answers each request for the partition with the next of its answers, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"})
        self._answers = list(answers)
        self._waiting: list[int] = []
        self.asked: list[int] = []

    def request(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> None:
        if not self._waiting:
            self._waiting = list(positions.values())
            self.asked += self._waiting

    def receive(self, timeout_s: float) -> list[FetchedPartition]:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            time.sleep(timeout_s)
        return [self._next()(offset) for offset in waiting]

    def _next(self) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def partitions_of(self, topic: str, timeout_s: float) -> list[int]:
        return [0]

    def bounds(self, where: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return 0, 1_000


TOPIC_PARTITION = ("t", 0)


def error(code: ErrorCode) -> Answer:
    return lambda offset: FetchedPartition(TOPIC_PARTITION, offset, code, code.name)


def batch(first: int, count: int, change: Callable[[bytearray], None] | None = None) -> Answer:
    data = bytearray(encode_batch([Record(number, 0, None, b"v") for number in range(first, first + count)]))
    if change is not None:
        change(data)
    return lambda offset: FetchedPartition(TOPIC_PARTITION, offset, ErrorCode.NONE, "", 1_000, 1_000, (), bytes(data))


def offsets(fetcher: RangeFetcher, start: int = 0, end: int = 10) -> list[int]:
    reader = FetchReader(
        fetcher, [OffsetRange(*TOPIC_PARTITION, start, end)], include_headers=False, fail_on_data_loss=True
    )
    return [row["offset"] for batch in reader.batches() for row in batch.to_pylist()]


def test_the_next_records_are_asked_for_before_these_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher = ScriptedFetcher(batch(0, 4), batch(4, 4), batch(8, 4))
    asked_at_decode: list[list[int]] = []
    real = BatchDecoder.decode

    def decode(self: Any, *args: Any) -> Any:
        asked_at_decode.append(list(fetcher.asked))
        return real(self, *args)

    monkeypatch.setattr(BatchDecoder, "decode", decode)

    assert offsets(fetcher) == list(range(10))
    assert asked_at_decode == [[0, 4], [0, 4, 8], [0, 4, 8]]  # nothing after the end of the range


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_errors_that_pass_are_tried_again(code: ErrorCode) -> None:
    """The offset is within the bounds of the partition, so OFFSET_OUT_OF_RANGE came from an outdated broker."""
    fetcher = ScriptedFetcher(batch(0, 4), error(code), batch(4, 6))
    assert offsets(fetcher) == list(range(10))
    assert fetcher.asked == [0, 4, 4]


def test_a_forbidden_topic_is_reported_with_what_to_grant() -> None:
    with pytest.raises(HoldfastError, match="t-0 cannot be read at 0: Broker: Topic authorization failed: grant READ"):
        offsets(ScriptedFetcher(error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def test_an_error_that_stays_is_reported() -> None:
    with pytest.raises(HoldfastError, match="t-0 cannot be read at 4: Broker: Unsupported compression type"):
        offsets(ScriptedFetcher(batch(0, 4), error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)))


def _flip_last(data: bytearray) -> None:
    data[-2] ^= 1


def test_a_corrupt_batch_is_reported_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HoldfastError, match="t-0 cannot be read at 4: the CRC of the batch at offset 4 does not match"):
        offsets(ScriptedFetcher(batch(0, 4), batch(4, 6, _flip_last)))

    unchecked = ScriptedFetcher(batch(0, 4), batch(4, 6, _flip_last))
    monkeypatch.setattr(unchecked, "check_crcs", False)
    assert offsets(unchecked) == list(range(10))  # the control: check.crcs=false


def test_an_answer_for_an_offset_that_is_not_wanted_any_more_is_dropped() -> None:
    late = batch(0, 10)
    fetcher = ScriptedFetcher(batch(0, 4), lambda offset: late(0), batch(4, 6))
    assert offsets(fetcher) == list(range(10))


def test_a_response_without_room_for_a_partition_is_no_end() -> None:
    def empty(offset: int) -> FetchedPartition:
        return FetchedPartition(TOPIC_PARTITION, offset, ErrorCode.NONE, "", 1_000, 1_000)

    assert offsets(ScriptedFetcher(empty, batch(0, 10))) == list(range(10))

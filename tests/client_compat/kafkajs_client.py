"""kafkajs, all of it in one node: kafkajs_client.js."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, Record, Sending, Stored
from tests.client_compat.confluent_client import wait_until_led
from tests.client_compat.errors import TOPIC_ALREADY_EXISTS
from tests.client_compat.line_records import as_sent, as_stored
from tests.support.kafka_distribution import run_script
from tests.support.line_rpc import CallFailed, LineRpc

SCRIPT = Path(__file__).with_name("kafkajs_client.js")
FETCH_WAIT_MS = 200
"""Its own default is five seconds, for which closing a consumer waits."""

ACKS = {"0": 0, "1": 1, "all": -1, None: -1}


@cache
def node() -> LineRpc:
    return LineRpc(["node", str(SCRIPT), run_script("kafkajs-ensure")])


class KafkajsReader:
    def __init__(self, number: int) -> None:
        self._number = number

    def poll(self, timeout_s: float) -> list[Stored]:
        polled = node().call("poll", reader=self._number, timeout_ms=int(timeout_s * 1000))
        return [as_stored(record) for record in polled]

    def seek(self, offset: int) -> None:
        node().call("seek", reader=self._number, offset=offset)


class KafkajsClient:
    name = "kafkajs"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        """All in one batch. It has no limit of its own on the size of a request."""
        node().call(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            records=[as_sent(record) for record in records],
            acks=ACKS[sending.acks],
            idempotent=bool(sending.idempotent),
            compression={None: "None", "none": "None", "gzip": "GZIP"}[sending.compression],
        )

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[KafkajsReader]:
        wait_ms = FETCH_WAIT_MS if fetch_wait_ms is None else fetch_wait_ms
        number = node().call(
            "open", bootstrap=bootstrap, topic=topic, partition=partition, start=start, fetch_wait_ms=wait_ms
        )
        try:
            yield KafkajsReader(number)
        finally:
            node().call("close", reader=number)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Past the last record it is the end of the partition: kafkajs knows no "none"."""
        found: int = node().call(
            "offset_for_time", bootstrap=bootstrap, topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )
        return found

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        low, high = node().call("watermarks", bootstrap=bootstrap, topic=topic, partition=partition)
        return low, high

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        """It seeks to offsets only; the beginning is looked up."""
        read = []
        with self.reader(bootstrap, topic) as reader:
            for step in steps:
                reader.seek(self.watermarks(bootstrap, topic)[0] if step == BEGINNING else step)
                read.append(reader.poll(DEADLINE_S)[0])
        return read

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        node().call("begin_transaction", bootstrap=bootstrap, transactional_id=transactional_id)

    def topics(self, bootstrap: str) -> dict[str, int]:
        found: dict[str, int] = node().call("topics", bootstrap=bootstrap)
        return found

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        created = node().call(
            "create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions, configs=dict(configs or {})
        )
        if not created:
            raise CallFailed(TOPIC_ALREADY_EXISTS, "createTopics says false, which it says of nothing else")
        wait_until_led(bootstrap, topic, partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        node().call("delete_topic", bootstrap=bootstrap, topic=topic)

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        node().call("grow_topic", bootstrap=bootstrap, topic=topic, partitions=partitions)

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        found: dict[str, str | None] = node().call("topic_configs", bootstrap=bootstrap, topic=topic)
        return found

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """By AlterConfigs, which puts every other config back to its default."""
        node().call("set_topic_config", bootstrap=bootstrap, topic=topic, name=name, value=value)

"""Records with keys: each key once, then some of them repeatedly.

Record n of the first ones has key n; every later round has keys that differ from each other. A key is always in the
same partition, as with a producer that partitions by key.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

_FLUSH_S: Final = 120
_TICK_S: Final = 0.05


def produce_keyed(
    bootstrap: str, topic: str, partitions: int, keys: int, rounds: int, touched: int, value_bytes: int
) -> int:
    """Returns the number of records in the topic."""
    producer = _producer(bootstrap)
    chance = random.Random(7)
    for number in range(keys):
        _send(producer, topic, partitions, number, value_bytes)
    for _ in range(rounds):
        for number in chance.sample(range(keys), touched):
            _send(producer, topic, partitions, number, value_bytes)
    if producer.flush(_FLUSH_S):
        raise RuntimeError("not all records were acknowledged")
    return keys + rounds * touched


@contextmanager
def trickle(bootstrap: str, topic: str, partitions: int, keys: int, each_tick: int, value_bytes: int) -> Iterator[None]:
    """Repeats some keys every twentieth of a second while the block runs."""
    over = threading.Event()

    def send() -> None:
        producer, chance = _producer(bootstrap), random.Random(11)
        while not over.wait(_TICK_S):
            for number in chance.sample(range(keys), each_tick):
                _send(producer, topic, partitions, number, value_bytes)
        producer.flush(_FLUSH_S)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 500_000, "log_level": 0})


def _send(producer: Producer, topic: str, partitions: int, number: int, value_bytes: int) -> None:
    value = b"%0*d" % (value_bytes, number % 1000)
    while True:
        try:
            producer.produce(topic, value, b"key-%08d" % number, partition=number % partitions, on_delivery=_delivered)
        except BufferError:
            producer.poll(0.1)
            continue
        producer.poll(0)
        return


def _delivered(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001 - the client's signature
    if error is not None:
        raise KafkaException(error)

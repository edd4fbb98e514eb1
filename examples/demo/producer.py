"""A steady load: numbered orders of some thousand customers, to all partitions in turn."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.demo.processes import TIMEOUT_S, wait_for

PARTITIONS: Final = 12
CUSTOMERS: Final = 24_000
"""All orders of a customer are in one partition."""
EACH_TICK: Final = 10
"""Orders to each partition."""
TICK_S: Final = 0.2


class Orders:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(TIMEOUT_S)
        # Records never time out: a busy broker stores them later.
        config: dict[str, bool | int] = {"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 0}
        # Errors only. A Kafka broker that has just started refuses the first request for a producer id.
        config["log_level"] = 3
        self._producer = Producer({"bootstrap.servers": bootstrap, **config})
        self._number = 0

    def history(self) -> None:
        """One order of each customer, before the scenario starts."""
        self._send(CUSTOMERS // PARTITIONS)
        self._flush()

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._flow, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        self._flush()

    def _flow(self, over: threading.Event) -> None:
        due = time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            self._send(EACH_TICK)
            self._producer.poll(0)
            due += TICK_S

    def _flush(self) -> None:
        """Records that are stored after the count would be counted as lost."""
        wait_for(lambda: self._producer.flush(1) == 0, f"the records of {self._topic} to be written")

    def _send(self, each: int) -> None:
        for _ in range(each):
            for partition in range(PARTITIONS):
                customer = partition + PARTITIONS * (self._number % (CUSTOMERS // PARTITIONS))
                order = json.dumps({"order": self._number, "amount": self._number % 100})
                self._producer.produce(self._topic, key=f"customer-{customer}", value=order, partition=partition)
            self._number += 1

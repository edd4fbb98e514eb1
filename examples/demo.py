"""What `make demo` shows: a broker without a JVM, a producer, and readers that share its partitions by hand.

The broker is a process of its own (`holdfast serve`), the clients are confluent-kafka as anybody would use it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "orders"
PARTITIONS = 6
RECORDS = 60_000
READERS = 3


def start_broker(data: str) -> tuple[subprocess.Popen[str], str]:
    """A broker on a free port; its first line says where."""
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", "--data", data]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    line = broker.stdout.readline().strip()
    if not line:
        sys.exit("the broker did not start; what it said is above")
    print(f"  {line}")
    return broker, line.rpartition(" ")[2]


def produce(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(10)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 20})
    started = time.perf_counter()
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, key=f"customer-{number % 997}", value=f"order {number}")
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(30)
    seconds = time.perf_counter() - started
    print(f"  {RECORDS:,} records acknowledged in {seconds:.2f} s ({RECORDS / seconds:,.0f} records/s)")


def read(address: str, partitions: list[int]) -> Counter[int]:
    """Everything in these partitions, from the beginning; explicit partitions, no group."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1] for p in partitions}
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
    seen: Counter[int] = Counter()
    deadline = time.monotonic() + 30
    while any(seen[p] < ends[p] for p in partitions) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error() is None:
                seen[message.partition()] += 1
    consumer.close()
    return seen


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as data:
        print("1. a broker")
        broker, address = start_broker(data)
        try:
            print("2. a producer")
            produce(address)
            print(f"3. {READERS} readers of {PARTITIONS // READERS} partitions each")
            total = 0
            for reader in range(READERS):
                mine = list(range(reader, PARTITIONS, READERS))
                seen = read(address, mine)
                total += seen.total()
                shares = ", ".join(f"partition {p}: {seen[p]:,}" for p in mine)
                print(f"  reader {reader + 1} saw {seen.total():>7,} records ({shares})")
        finally:
            broker.terminate()
            code = broker.wait(10)
        print(f"4. {total:,} of {RECORDS:,} records seen; the broker stopped with exit code {code}")
        return 0 if total == RECORDS and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

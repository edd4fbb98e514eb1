"""What `make demo` shows: a broker without a JVM, a group of three that shares a topic, and a restart nobody notices.

The broker is a process of its own (`holdfast serve`), the clients are confluent-kafka as anybody would use it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 6
RECORDS = 60_000


class Member:
    """A consumer of the group in a thread of its own, with a seat: a group.instance.id."""

    def __init__(self, address: str, instance_id: str, seen: int = 0) -> None:
        self.instance_id = instance_id
        self.owned: set[int] = set()
        self.seen = seen
        self.revocations = 0
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "group.instance.id": instance_id,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = {partition.partition for partition in partitions}

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        if not self._stop.is_set():
            self.revocations += 1
            self.owned = set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.seen += sum(message.error() is None for message in self._consumer.consume(1_000, timeout=0.1))
        self._consumer.close()

    def stop(self) -> None:
        """As a deploy does it. A member with an instance id keeps its seat."""
        self._stop.set()
        self._thread.join(30)


def start_broker(data: str) -> tuple[subprocess.Popen[str], str]:
    """A broker on a free port; its first line says where."""
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", "--data", data]
    command += ["--set", "group.initial.rebalance.delay.ms=1000", "--log-level", "warning"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    line = broker.stdout.readline().strip()
    if not line:
        sys.exit("the broker did not start; what it said is above")
    print(f"   {line}")
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
    print(f"   {RECORDS:,} records acknowledged in {seconds:.2f} s ({RECORDS / seconds:,.0f} records/s)")


def wait_until(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited 30 s in vain for this: {what}")
        time.sleep(0.05)


def show(members: list[Member]) -> None:
    for member in members:
        partitions = ", ".join(map(str, sorted(member.owned)))
        counts = f"{member.seen:,} records; {member.revocations} revocations"
        print(f"   {member.instance_id}: partitions {partitions}; {counts}")


def ledger(address: str) -> list[dict[str, object]]:
    """What the group's coordinator tells of the group, from the beginning."""
    topic = "__group_ledger"
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.assign([TopicPartition(topic, 0, 0)])
    events = [json.loads(message.value()) for message in consumer.consume(end, timeout=10)]
    consumer.close()
    return [event for event in events if event["group_id"] == GROUP]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as data:
        print("1. a broker, without a JVM")
        broker, address = start_broker(data)
        try:
            print("2. a producer")
            produce(address)
            print("3. three members of one group, each with a seat of its own")
            members = [Member(address, f"{GROUP}-{number}") for number in range(3)]
            wait_until(lambda: sum(len(m.owned) for m in members) == PARTITIONS, "all partitions are shared out")
            wait_until(lambda: sum(member.seen for member in members) == RECORDS, "all records are seen")
            show(members)
            print(f"4. {GROUP}-1 is redeployed")
            members[1].stop()
            held = members[1].owned
            members[1] = Member(address, f"{GROUP}-1", seen=members[1].seen)
            wait_until(lambda: members[1].owned == held, "it has its partitions again")
            show(members)
            print("5. what the ledger says about it")
            for event in ledger(address):
                who = event.get("instance_id") or event.get("member_id") or ""
                print(f"   generation {event['generation']}: {event['kind']} ({event['cause']}) {who}")
            for member in members:
                member.stop()
        finally:
            broker.terminate()
            code = broker.wait(10)
        quiet = not any(member.revocations for member in members)
        total = sum(member.seen for member in members)
        verdict = "nobody was disturbed" if quiet else "somebody was disturbed"
        print(f"6. {total:,} of {RECORDS:,} records seen, {verdict}; the broker stopped with exit code {code}")
        return 0 if total == RECORDS and quiet and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

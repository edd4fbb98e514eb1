"""The broker goes and comes back; no client loses a record that was acknowledged."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.client_compat.client import DEADLINE_S, Client, Record, read, read_from, values
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

BEFORE = [Record(key=b"k", value=b"before-%d" % number) for number in range(100)]
AFTER = [Record(key=b"k", value=b"after-%d" % number) for number in range(100)]


def stop(server: Server) -> None:
    server.stop()


def kill(server: Server) -> None:
    server.kill()


@pytest.mark.parametrize("end", [stop, kill])
def test_every_client_reads_across_a_restart(
    disposable_server: Server, clients: list[Client], topic: str, end: Callable[[Server], None]
) -> None:
    topics = {client.name: f"{topic}-{client.name}" for client in clients}
    bootstrap = disposable_server.bootstrap
    for client in clients:
        client.produce(bootstrap, topics[client.name], BEFORE)

    with ExitStack() as stack, ThreadPoolExecutor(len(clients)) as pool:
        readers = {
            client.name: stack.enter_context(client.reader(bootstrap, topics[client.name])) for client in clients
        }
        seen = {name: values(read_from(reader, len(BEFORE))) for name, reader in readers.items()}
        assert seen == {name: [record.value for record in BEFORE] for name in topics}

        end(disposable_server)
        disposable_server.start()
        for client in clients:
            client.produce(bootstrap, topics[client.name], AFTER)

        reading = {name: pool.submit(read_from, reader, len(AFTER)) for name, reader in readers.items()}
        seen = {name: values(future.result()) for name, future in reading.items()}
        assert seen == {name: [record.value for record in AFTER] for name in topics}

    for client in clients:
        stored = read(client, bootstrap, topics[client.name], len(BEFORE) + len(AFTER))
        assert values(stored) == [record.value for record in BEFORE + AFTER]
        assert [record.offset for record in stored] == list(range(len(stored)))


@pytest.mark.parametrize("end", [stop, kill])
def test_an_idempotent_producer_outlives_the_broker(
    disposable_server: Server, topic: str, end: Callable[[Server], None]
) -> None:
    """What it knows of the broker and the broker of it must still fit: every record once, and in order."""
    delivered = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message.offset())

    def produce(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=on_delivery)

    producer = Producer({"bootstrap.servers": disposable_server.bootstrap, "enable.idempotence": True})
    produce(first=0, count=5000)
    eventually(lambda: producer.poll(0.01) and delivered, "the first acknowledgement")

    end(disposable_server)
    produce(first=5000, count=5000)
    disposable_server.start()

    assert producer.flush(DEADLINE_S) == 0
    assert delivered == list(range(10_000))
    stored = read(ConfluentClient(), disposable_server.bootstrap, topic, 10_000)
    assert values(stored) == [b"%d" % number for number in range(10_000)]
    assert ConfluentClient().watermarks(disposable_server.bootstrap, topic) == (0, 10_000)

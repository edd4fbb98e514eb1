"""All clients at once, on one topic."""

from concurrent.futures import ThreadPoolExecutor

from tests.client_compat.client import Client, Record, read
from tests.client_compat.servers import Server

RECORDS_EACH = 300


def test_all_clients_write_and_read_one_partition_at_the_same_time(
    server: Server, clients: list[Client], topic: str
) -> None:
    def write(client: Client) -> None:
        records = [Record(key=client.name.encode(), value=b"%d" % number) for number in range(RECORDS_EACH)]
        for first in range(0, RECORDS_EACH, 100):
            client.produce(server.bootstrap, topic, records[first : first + 100])

    def follow(client: Client) -> list[tuple[int, bytes | None, bytes | None]]:
        stored = read(client, server.bootstrap, topic, 1 + RECORDS_EACH * len(clients))
        return [(record.offset, record.key, record.value) for record in stored]

    clients[0].produce(server.bootstrap, topic, [Record(key=b"first", value=b"now the topic exists")])
    with ThreadPoolExecutor(2 * len(clients)) as pool:
        following = {client.name: pool.submit(follow, client) for client in clients}
        for writing in [pool.submit(write, client) for client in clients]:
            writing.result()
        seen = {name: reading.result() for name, reading in following.items()}

    everything = follow(clients[0])
    assert [offset for offset, _, _ in everything] == list(range(1 + RECORDS_EACH * len(clients)))
    for name, stored in seen.items():
        assert stored == everything, name
        own = [value for _, key, value in everything if key == name.encode()]
        assert own == [b"%d" % number for number in range(RECORDS_EACH)], name

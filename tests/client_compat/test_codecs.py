"""Whatever one client compresses, every other can read; and it lies on disk as it was sent."""

import pytest

from tests.client_compat.client import Client, Record, Sending, read
from tests.client_compat.servers import Server, stored_codec

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The codec in the attributes of a record batch."""

# Long enough to be worth compressing, and with blocks that repeat; keyed, so that kcat sends them as one batch.
RECORDS = [Record(key=b"%d" % number, value=b"compress me, " * 50 + b"%d" % number) for number in range(40)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_this_one_compressed(
    server: Server, client: Client, clients: list[Client], topic: str, codec: str
) -> None:
    client.produce(server.bootstrap, topic, RECORDS, sending=Sending(compression=codec))

    assert stored_codec(server, topic) == CODECS[codec]
    for reader in clients:
        stored = read(reader, server.bootstrap, topic, len(RECORDS))
        assert [Record(record.value, record.key) for record in stored] == RECORDS, reader.name
        assert [record.offset for record in stored] == list(range(len(RECORDS))), reader.name

"""kcat: librdkafka from the shell."""

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, END, Headers, Record, Sending, Stored
from tests.support.kafka_distribution import REPOSITORY

# Control characters that no text of a test holds: kcat has no way to escape them.
_BETWEEN_KEY_AND_VALUE = "\x1f"
_BETWEEN_RECORDS = "\x1e"

# One line of numbers (a length of -1 is a null), then key and value as they are, then the headers up to the line end.
_FORMAT = r"%o %T %K %S\n%k%s%h\n"

# Without it kcat ends when its only broker is away for a moment, instead of trying again as librdkafka does.
_STAY = "-E"

# kcat's own patience with metadata, offsets and the like is five seconds, which a busy machine may take from it.
PATIENCE = ("-m", "30")

_INSTALL_TIMEOUT_S = 300


class KcatUnavailable(Exception):
    """kcat is not on this machine; the message is one line that says why."""


@cache
def kcat_path() -> str:
    script = REPOSITORY / "scripts" / "kcat-ensure"
    done = subprocess.run([script], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise KcatUnavailable(f"scripts/kcat-ensure: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run kcat to its end and return what it printed; it must end with exit code 0."""
    done = subprocess.run(
        [kcat_path(), "-b", bootstrap, *PATIENCE, *arguments],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"kcat ended with exit code {done.returncode}: {done.stderr.decode()}"
    return done.stdout


class KcatReader:
    """Reads the output of a running kcat as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._descriptor = process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def poll(self, timeout_s: float) -> list[Stored]:
        deadline = time.monotonic() + timeout_s
        while not (records := self._whole_records()):
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                return []
            chunk = os.read(self._descriptor, 1 << 20)
            assert chunk, "kcat ended"
            self._buffer += chunk
        return records

    def _whole_records(self) -> list[Stored]:
        records, rest = parse(self._buffer)
        self._buffer = rest
        return records


class KcatClient:
    name = "kcat"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        """Headers are the same for all records of one kcat, and timestamps cannot be given."""
        (headers,) = {record.headers for record in records}
        assert all(record.timestamp_ms is None for record in records)
        produce = ["-P", _STAY, "-t", topic, "-p", str(partition), *_settings(sending)]
        for name, value in headers:
            produce += ["-H", name if value is None else f"{name}={value.decode()}"]
        if all(record.key is None for record in records):
            self._produce_files(bootstrap, produce, records)
        else:
            self._produce_pairs(bootstrap, produce, records)

    def _produce_files(self, bootstrap: str, produce: list[str], records: Sequence[Record]) -> None:
        """One file per record: the only way to send any bytes."""
        with tempfile.TemporaryDirectory(prefix="kcat-") as directory:
            paths = []
            for index, record in enumerate(records):
                paths.append(Path(directory) / str(index))
                paths[-1].write_bytes(record.value or b"")
            nulls = ["-Z"] if all(record.value is None for record in records) else []
            kcat(bootstrap, *produce, *nulls, *map(str, paths))

    def _produce_pairs(self, bootstrap: str, produce: list[str], records: Sequence[Record]) -> None:
        pairs = [(record.key or b"") + _BETWEEN_KEY_AND_VALUE.encode() + (record.value or b"") for record in records]
        nulls = ["-Z"] if any(record.key is None or record.value is None for record in records) else []
        kcat(
            bootstrap,
            *produce,
            *nulls,
            *("-K", _BETWEEN_KEY_AND_VALUE, "-D", _BETWEEN_RECORDS),
            stdin=_BETWEEN_RECORDS.encode().join(pairs),
        )

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[KcatReader]:
        offset = {BEGINNING: "beginning", END: "end"}.get(start, str(start))
        command = [kcat_path(), "-b", bootstrap, *PATIENCE, "-C", _STAY, "-t", topic, "-p", str(partition)]
        command += ["-o", offset, "-q", "-u", "-f", _FORMAT]
        if fetch_wait_ms is not None:
            command += ["-X", f"fetch.wait.max.ms={fetch_wait_ms}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                yield KcatReader(process)
            finally:
                process.kill()

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """kcat prints ``topic [partition] offset N``; N is -1 past the last record."""
        printed = kcat(bootstrap, "-Q", "-t", f"{topic}:{partition}:{timestamp_ms}").decode()
        offset = int(printed.split()[-1])
        return offset if offset >= 0 else None


def parse(output: bytes) -> tuple[list[Stored], bytes]:
    """The whole records in what kcat printed so far, and the rest."""
    records: list[Stored] = []
    while True:
        numbers, newline, body = output.partition(b"\n")
        if not newline:
            return records, output
        offset, timestamp_ms, key_size, value_size = map(int, numbers.split())
        key_end = max(key_size, 0)
        value_end = key_end + max(value_size, 0)
        headers, newline, rest = body[value_end:].partition(b"\n")
        if not newline:
            return records, output
        key = body[:key_end] if key_size >= 0 else None
        value = body[key_end:value_end] if value_size >= 0 else None
        records.append(Stored(offset, timestamp_ms, value, key, _parse_headers(headers)))
        output = rest


def _parse_headers(printed: bytes) -> Headers:
    """``a=1,b=NULL``: enough for headers without a comma, an equals sign, or the word NULL."""
    if not printed:
        return ()
    pairs = (pair.split("=", 1) for pair in printed.decode().split(","))
    return tuple((name, None if value == "NULL" else value.encode()) for name, value in pairs)


def _settings(sending: Sending) -> list[str]:
    settings: list[str] = []
    if sending.compression is not None:
        settings += ["-z", sending.compression]
    if sending.acks is not None:
        settings += ["-X", f"acks={sending.acks}"]
    if sending.idempotent is not None:
        settings += ["-X", f"enable.idempotence={str(sending.idempotent).lower()}"]
    if sending.max_request_bytes is not None:
        settings += ["-X", f"message.max.bytes={sending.max_request_bytes}"]
    return settings

"""`holdfast produce`: write a record for each line of a file or of stdin."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, client_settings, open_admin
from holdfast.cli.errors import CommandFailed, UsageError, missing_permission, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.output import print_json
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import name_and_value, whole_number
from holdfast.cli.progress import Progress
from holdfast.cli.record_format import unescaped
from holdfast.cli.signals import GracefulStop

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands

_MAX_REPORTED: Final = 5
"""Failures that are printed one by one; the others are counted."""
_FULL_WAIT_S: Final = 0.1


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "produce",
        run,
        "write a record for each line of a file or of stdin",
        [
            "echo 'hello' | holdfast produce --bootstrap-server 127.0.0.1:9092 --topic orders",
            "holdfast produce --bootstrap-server 127.0.0.1:9092 --topic orders --key-separator : --header from=import "
            "orders.txt",
        ],
        needs="WRITE on the topic",
        packages=("confluent_kafka",),
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="the file to read (default: stdin)")
    parser.add_argument("--topic", metavar="TOPIC", required=True, help="the topic to write to")
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator,
        help="separates the key from the value in a line, e.g. : or \\t",
    )
    parser.add_argument(
        "--header",
        metavar="NAME=VALUE",
        dest="headers",
        action="append",
        default=[],
        type=_header,
        help="a header of every record; may be repeated",
    )
    parser.add_argument(
        "--partition", metavar="N", type=whole_number(), help="the partition (default: by the key, or any)"
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="sets",
        action="append",
        default=[],
        type=name_and_value,
        help="a producer setting, e.g. compression.type=zstd; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    settings = client_settings(options)
    with _lines(options.file) as (lines, size):
        _check_topic(options)
        with GracefulStop(interrupting=True) as stopping, Progress("records", size) as progress:
            sending = LineProducer(options, _producer(options, settings), progress)
            # Only an exception interrupts a read from a terminal; the lines that were read are still sent.
            with contextlib.suppress(KeyboardInterrupt):
                for line in lines:
                    sending.send(line)
                stopping.stop_interrupting()
            with contextlib.suppress(KeyboardInterrupt):  # the second Ctrl-C; the counts are still printed
                sending.finish()
    if options.json:
        print_json({"topic": options.topic, "produced": sending.stored, "failed": sending.failed})
    else:
        failed = f", {sending.failed:,} failed" if sending.failed else ""
        some = "record" if sending.stored == 1 else "records"
        print(f"{sending.stored:,} {some} to {options.topic}{failed}", file=sys.stderr)
    if stopping.exit_code is not None:
        return stopping.exit_code
    return EXIT_FAILED if sending.failed else EXIT_OK


class LineProducer:
    """Produces lines as records, and counts the results."""

    def __init__(self, options: argparse.Namespace, producer: Any, progress: Progress) -> None:
        from confluent_kafka import KafkaException

        self.stored = 0
        self.failed = 0
        self._options = options
        self._producer = producer
        self._progress = progress
        self._refusal: type[Exception] = KafkaException
        self._number = 0
        self._fixed: dict[str, Any] = {"headers": [(name, _bytes(value)) for name, value in options.headers]}
        if options.partition is not None:
            self._fixed["partition"] = options.partition

    def send(self, line: bytes) -> None:
        self._number += 1
        number = self._number
        key, value = self._split(line.removesuffix(b"\n"))
        if value is None:
            self._fail(f"line {number} has no {self._options.key_separator.decode()!r}")
            return

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.stored += 1
            else:
                self._fail(f"line {number} was not stored: {self._why(error)}")

        try:
            self._produce(key=key, value=value, on_delivery=delivered)
        except self._refusal as refusal:  # most likely longer than message.max.bytes; the next line may be shorter
            self._fail(f"line {number} was not stored: {refusal.args[0].str()}")
        self._progress.step(len(line), number)

    def finish(self) -> None:
        """Wait until every record is stored or has failed, which librdkafka decides by `message.timeout.ms`."""
        while self._producer.flush(_FULL_WAIT_S):
            pass
        self._progress.clear()
        if self.failed > _MAX_REPORTED:
            print_to_stderr(self._options.prog, f"and {self.failed - _MAX_REPORTED:,} more")

    def _why(self, error: Any) -> str:
        refused = error.name() == "TOPIC_AUTHORIZATION_FAILED"
        return f"{error.str()}: {missing_permission(self._options)}" if refused else str(error.str())

    def _split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        separator = self._options.key_separator
        if separator is None:
            return None, line
        key, found, value = line.partition(separator)
        return (key, value) if found else (None, None)

    def _produce(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(self._options.topic, **record, **self._fixed)
            except BufferError:
                self._producer.poll(_FULL_WAIT_S)
            else:
                self._producer.poll(0)
                return

    def _fail(self, sentence: str) -> None:
        self.failed += 1
        if self.failed <= _MAX_REPORTED:
            self._progress.clear()
            print_to_stderr(self._options.prog, sentence)


def _producer(options: argparse.Namespace, settings: dict[str, Any]) -> Any:
    from confluent_kafka import KafkaException, Producer

    wait_ms = int(options.timeout * 1000)
    config = {
        "log_level": 0,
        "message.timeout.ms": wait_ms,
        # If the broker does not create the topic, this error is reported before the timeout, which would not say why.
        "topic.metadata.propagation.max.ms": min(5_000, max(1, wait_ms // 2)),
    }
    theirs = {name: value for name, value in settings.items() if name != "default.api.timeout.ms"}
    try:
        return Producer(config | theirs | dict(options.sets))
    except (KafkaException, ValueError, TypeError) as error:
        raise UsageError(f"librdkafka refuses the settings: {error}") from error


def _check_topic(options: argparse.Namespace) -> None:
    """Reports a problem with the broker or the topic before anything is read."""
    from holdfast.client.errors import TopicError
    from holdfast.wire.error_codes import ErrorCode

    with open_admin(options) as admin:
        try:
            (topic,) = admin.describe_topics([options.topic])
        except TopicError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            print_to_stderr(
                options.prog,
                f"topic {options.topic!r} does not exist; the broker creates it if auto.create.topics.enable is true",
            )
            return
    if options.partition is not None and options.partition >= len(topic.partitions):
        raise CommandFailed(
            f"topic {options.topic!r} has partitions 0 to {len(topic.partitions) - 1}, and no {options.partition}"
        )


@contextlib.contextmanager
def _lines(path: Path | None) -> Iterator[tuple[IO[bytes], int | None]]:
    """The input, and its size if it has one."""
    if path is None:
        yield sys.stdin.buffer, None
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with file:
        status = os.fstat(file.fileno())
        yield file, status.st_size if stat.S_ISREG(status.st_mode) else None


def _header(text: str) -> tuple[str, str]:
    name, value = name_and_value(text)
    try:
        name.encode()
    except UnicodeEncodeError:  # a value is bytes, but a name is text, and librdkafka would crash
        raise argparse.ArgumentTypeError(f"the name in {text!r} is not UTF-8") from None
    return name, value


def _separator(text: str) -> bytes:
    found = _bytes(unescaped(text))
    if not found:
        raise argparse.ArgumentTypeError("it cannot be empty")
    return found


def _bytes(text: str) -> bytes:
    """The bytes that the shell passed, also if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")

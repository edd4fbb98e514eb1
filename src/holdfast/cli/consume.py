"""`holdfast consume`: print records, as a member of a group or standalone."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import TIMEOUT_S, add_connection_options, client_settings, open_admin
from holdfast.cli.errors import CommandFailed, UsageError, missing_permission, print_to_stderr
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import name_and_value, seconds, whole_number
from holdfast.cli.record_format import FIELDS, Write, record_json, template, template_option
from holdfast.cli.signals import GracefulStop
from holdfast.cli.stdio import warnings_to_stderr
from holdfast.extras import CLIENT

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.topic_admin import TopicDescription

_BATCH_SIZE: Final = 500
_POLL_TIMEOUT_S: Final = 0.1
_LIVENESS_TIMEOUT_S: Final = 5.0
"""How long a broker that has sent nothing may take to answer a request for metadata."""
_QUIET: Final = {"log_level": 0}
"""librdkafka would write every failed connection to stderr; errors that matter are returned by the consumer."""

Read = Callable[[int, float], list[Any]]


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "consume",
        run,
        "print records",
        [
            "holdfast consume --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning --timeout 5",
            "holdfast consume --bootstrap-server 127.0.0.1:9092 --topic orders --group billing "
            "--instance-id billing-0 --json",
            "holdfast consume --bootstrap-server 127.0.0.1:9092 --topic orders --format '{partition} {key} {value}\\n'",
        ],
        "With --group, the command joins the group, reads the partitions that are assigned to it and commits the\n"
        "records that it has printed. Ctrl-C commits and exits.",
        needs="READ on the topic, and with --group on the group",
        packages=CLIENT,
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="the topic; may be repeated")
    parser.add_argument("--group", metavar="GROUP", help="join this group and commit offsets")
    parser.add_argument("--instance-id", metavar="ID", help="with --group: join as a static member (group.instance.id)")
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="start at the first record; with --group only for partitions without a committed offset",
    )
    parser.add_argument("--max-messages", metavar="N", type=whole_number(1), help="exit after N records")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help="exit when no record has arrived for this long (default: never)",
    )
    _add_output_options(parser)
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="sets",
        action="append",
        default=[],
        type=name_and_value,
        help="a consumer setting, e.g. isolation.level=read_uncommitted; may be repeated",
    )
    add_connection_options(parser, timeout=False)


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--format",
        metavar="TEMPLATE",
        type=template_option,
        default="{value}\n",
        help=f"how to print a record, with {{{'}, {'.join(FIELDS)}}}, \\n and \\t (default: '{{value}}\\n')",
    )
    how.add_argument("--json", action="store_true", help="print a line of JSON for each record")


def run(options: argparse.Namespace) -> int:
    if options.instance_id is not None and options.group is None:
        raise UsageError("--instance-id needs --group: it is the instance id of a static member")
    write: Write = _json_line if options.json else template(options.format)
    reading = _as_member if options.group is not None else _standalone
    topics = _topics(options, TIMEOUT_S)
    with GracefulStop() as stopping, reading(options, topics) as (read, is_ready):
        is_idle = _print_records(options, stopping, read, is_ready, write)
    if is_idle:
        _topics(options, _LIVENESS_TIMEOUT_S)  # no records because the broker is down is a failure
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print_records(
    options: argparse.Namespace, stopping: GracefulStop, read: Read, is_ready: Callable[[], bool], write: Write
) -> bool:
    """Whether it ended because no more records arrived."""
    left: int | None = options.max_messages
    last_at = seen_at = time.monotonic()
    while stopping.exit_code is None and left != 0:
        records = read(_BATCH_SIZE if left is None else min(left, _BATCH_SIZE), _POLL_TIMEOUT_S)
        good = [record for record in records if not _is_error(options, record)]
        for record in good:
            sys.stdout.buffer.write(write(record))
        sys.stdout.buffer.flush()  # the next read, or the close, commits these records
        if left is not None:
            left -= len(good)
        now = time.monotonic()
        if is_ready():
            seen_at = now
            last_at = now if good else last_at
        else:
            last_at = now
        if options.timeout is None:
            continue
        if now - last_at >= options.timeout:
            return True
        if now - seen_at >= options.timeout:
            # A group may take a while to form; if the broker is down it never does, and that is a failure.
            _topics(options, _LIVENESS_TIMEOUT_S)
            seen_at = time.monotonic()
    return False


def _is_error(options: argparse.Namespace, record: Any) -> bool:
    error = record.error()
    if error is None:
        return False
    if error.fatal():
        raise CommandFailed(error.str())
    if error.name() == "TOPIC_AUTHORIZATION_FAILED":
        # No record of this topic will ever arrive.
        raise CommandFailed(f"topic {record.topic()!r}: {error.str()}: {missing_permission(options)}")
    if error.name() != "GROUP_AUTHORIZATION_FAILED":
        # librdkafka looks up the coordinator of its group even if the group is not used. A standalone reader does not
        # need it, and a member gets the error from the membership protocol.
        print_to_stderr(options.prog, error.str())
    return True


def _json_line(record: Any) -> bytes:
    return json.dumps(record_json(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# -- sources of records ------------------------------------------------------------------------------------------------


@contextmanager
def _as_member(
    options: argparse.Namespace, _topics: Sequence[TopicDescription]
) -> Iterator[tuple[Read, Callable[[], bool]]]:
    from holdfast import Consumer

    config = {"auto.offset.reset": "earliest" if options.from_beginning else "latest"} | _QUIET
    config |= client_settings(options) | dict(options.sets) | {"group.id": options.group}
    if options.instance_id is not None:
        config["group.instance.id"] = options.instance_id
    # An exception that leaves the block commits nothing: records that were not printed must be read again.
    with warnings_to_stderr(options.prog), Consumer(config) as consumer:
        consumer.subscribe(options.topic)
        yield consumer.consume, lambda: consumer.generation() >= 0


@contextmanager
def _standalone(
    options: argparse.Namespace, topics: Sequence[TopicDescription]
) -> Iterator[tuple[Read, Callable[[], bool]]]:
    """All partitions that exist now, from offsets that are known before the first record is read."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = client_settings(options)
    settings.pop("default.api.timeout.ms", None)
    config = {"group.id": "unused", "enable.auto.commit": False, "enable.auto.offset.store": False} | _QUIET
    try:
        consumer = Consumer(config | settings | dict(options.sets))
    except (KafkaException, ValueError, TypeError) as error:
        raise UsageError(f"librdkafka refuses the settings: {error}") from error
    try:
        starts = [
            (topic.name, one.number, one.earliest if options.from_beginning else one.latest)
            for topic in topics
            for one in topic.partitions
        ]
        # A partition without a leader has no offsets, and nothing to read.
        consumer.assign([TopicPartition(name, number, at) for name, number, at in starts if at is not None])

        yield consumer.consume, lambda: True
    finally:
        consumer.close()


def _topics(options: argparse.Namespace, timeout_s: float) -> Sequence[TopicDescription]:
    """The topics as they are now. Raises an error that names the problem with the broker or the topic."""
    names = [name for name in options.topic if not name.startswith("^")]
    if options.group is None and len(names) < len(options.topic):
        raise UsageError("a pattern of topics needs --group")
    with open_admin(options, timeout_s) as admin:
        if not names:
            admin.list_topics()  # checks that the broker can be reached; the pattern is resolved later
        return admin.describe_topics(names)

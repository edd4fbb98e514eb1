"""`holdfast consume`: records to stdout, as a member of a group or by itself."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.client_log import saying_warnings
from holdfast.cli.connection import TIMEOUT_S, add_connection_options, client_settings, open_admin
from holdfast.cli.errors import CommandFailed, UsageError, lacking, say
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import name_and_value, seconds, whole_number
from holdfast.cli.record_text import FIELDS, Write, record_json, template, template_option
from holdfast.cli.stopping import Stopping
from holdfast.extras import CLIENT

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.topic_admin import TopicDescription

_AT_ONCE: Final = 500
_LOOK_EVERY_S: Final = 0.1
_STILL_THERE_S: Final = 5.0
"""How long a broker that has sent nothing may take to say that it is there."""
_QUIET: Final = {"log_level": 0}
"""librdkafka would write every failed connection to stderr; what matters comes as an error."""

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
        "With --group it is a member of the group: it shares the partitions with the other members and commits\n"
        "what it has printed. Ctrl-C ends it in good order.",
        needs="READ on the topic, and with --group on the group",
        packages=CLIENT,
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="may be repeated")
    parser.add_argument("--group", metavar="GROUP", help="be a member of this group, and commit")
    parser.add_argument("--instance-id", metavar="ID", help="with --group: be a static member, with this seat")
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="from the first record on; with --group only where the group has no offset",
    )
    parser.add_argument("--max-messages", metavar="N", type=whole_number(1), help="end after so many")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="end when none has come for so long (default: never)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--format",
        metavar="TEMPLATE",
        type=template_option,
        default="{value}\n",
        help=f"what to print for each, with {{{'}, {'.join(FIELDS)}}}, \\n and \\t (default: '{{value}}\\n')",
    )
    how.add_argument("--json", action="store_true", help="print a line of JSON for each record")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="sets",
        action="append",
        default=[],
        type=name_and_value,
        help="a setting of the consumer, e.g. isolation.level=read_uncommitted; may be repeated",
    )
    add_connection_options(parser, timeout=False)


def run(options: argparse.Namespace) -> int:
    if options.instance_id is not None and options.group is None:
        raise UsageError("--instance-id is a seat in a group: give --group as well")
    write: Write = _json_line if options.json else template(options.format)
    reading = _as_member if options.group is not None else _alone
    topics = _topics(options, TIMEOUT_S)
    with Stopping() as stopping, reading(options, topics) as (read, is_ready):
        is_idle = _print_records(options, stopping, read, is_ready, write)
    if is_idle:
        _topics(options, _STILL_THERE_S)  # nothing comes from a broker that is gone, and that is a failure
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print_records(
    options: argparse.Namespace, stopping: Stopping, read: Read, is_ready: Callable[[], bool], write: Write
) -> bool:
    """Whether it ended because no more came."""
    left: int | None = options.max_messages
    last_at = seen_at = time.monotonic()
    while stopping.exit_code is None and left != 0:
        records = read(_AT_ONCE if left is None else min(left, _AT_ONCE), _LOOK_EVERY_S)
        good = [record for record in records if not _complained(options, record)]
        for record in good:
            sys.stdout.buffer.write(write(record))
        sys.stdout.buffer.flush()  # what is read next, or closed, commits this
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
            # A group takes its time to form; one whose broker is gone never does, and that is a failure.
            _topics(options, _STILL_THERE_S)
            seen_at = time.monotonic()
    return False


def _complained(options: argparse.Namespace, record: Any) -> bool:
    error = record.error()
    if error is None:
        return False
    if error.fatal():
        raise CommandFailed(error.str())
    if error.name() == "TOPIC_AUTHORIZATION_FAILED":
        # Nothing comes of this topic, however long one waits.
        raise CommandFailed(f"topic {record.topic()!r}: {error.str()}: {lacking(options)}")
    if error.name() != "GROUP_AUTHORIZATION_FAILED":
        # That one is librdkafka's, which looks for the coordinator of its group. Who reads alone has no use for it,
        # and a member hears from its membership what it lacks.
        say(options.prog, error.str())
    return True


def _json_line(record: Any) -> bytes:
    return json.dumps(record_json(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# -- where they come from ----------------------------------------------------------------------------------------------


@contextmanager
def _as_member(
    options: argparse.Namespace, _topics: Sequence[TopicDescription]
) -> Iterator[tuple[Read, Callable[[], bool]]]:
    from holdfast import Consumer

    config = {"auto.offset.reset": "earliest" if options.from_beginning else "latest"} | _QUIET
    config |= client_settings(options) | dict(options.sets) | {"group.id": options.group}
    if options.instance_id is not None:
        config["group.instance.id"] = options.instance_id
    # An exception that leaves the block commits nothing: what was not printed must come again.
    with saying_warnings(options.prog), Consumer(config) as consumer:
        consumer.subscribe(options.topic)
        yield consumer.consume, lambda: consumer.generation() >= 0


@contextmanager
def _alone(
    options: argparse.Namespace, topics: Sequence[TopicDescription]
) -> Iterator[tuple[Read, Callable[[], bool]]]:
    """Every partition that there is now, from an offset that is known before the first record is read."""
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
        # A partition that no broker leads has no offsets, and nothing to read.
        consumer.assign([TopicPartition(name, number, at) for name, number, at in starts if at is not None])

        yield consumer.consume, lambda: True
    finally:
        consumer.close()


def _topics(options: argparse.Namespace, timeout_s: float) -> Sequence[TopicDescription]:
    """The topics as they are now. Whatever is wrong with broker or topic is said here, in one sentence."""
    names = [name for name in options.topic if not name.startswith("^")]
    if options.group is None and len(names) < len(options.topic):
        raise UsageError("a pattern of topics needs --group")
    with open_admin(options, timeout_s) as admin:
        if not names:
            admin.list_topics()  # whether the broker can be reached; which topics a pattern means is seen later
        return admin.describe_topics(names)

"""`holdfast topics create`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import name_and_value, whole_number
from holdfast.cli.results import print_results

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.errors import HoldfastError


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "create",
        run,
        "create topics",
        [
            "holdfast topics create --bootstrap-server 127.0.0.1:9092 --topic orders --partitions 6",
            "holdfast topics create --bootstrap-server 127.0.0.1:9092 --topic prices --config cleanup.policy=compact "
            "--if-not-exists",
        ],
        needs="CREATE on the topic or the cluster",
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="its name; may be repeated")
    parser.add_argument(
        "--partitions", metavar="N", type=whole_number(1), help="number of partitions (default: the broker's)"
    )
    parser.add_argument(
        "--replication-factor", metavar="N", type=whole_number(1), help="replicas (default: the broker's)"
    )
    parser.add_argument(
        "--config",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=name_and_value,
        help="a topic config, e.g. retention.ms=3600000; may be repeated",
    )
    parser.add_argument("--if-not-exists", action="store_true", help="ignore topics that exist already")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    from holdfast.client.topic_admin import NewTopic

    wanted = [
        NewTopic(name, options.partitions, options.replication_factor, dict(options.config))
        for name in dict.fromkeys(options.topic)
    ]
    with open_admin(options) as admin:
        results = admin.create_topics(wanted)
    if options.if_not_exists:
        results = {name: None if _exists(error) else error for name, error in results.items()}
        return print_results(options, "topic", "there", results)
    return print_results(options, "topic", "created", results)


def _exists(error: HoldfastError | None) -> bool:
    from holdfast.wire.error_codes import ErrorCode

    return error is not None and error.code is ErrorCode.TOPIC_ALREADY_EXISTS

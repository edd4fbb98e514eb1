"""`holdfast topics delete`: topics with their records, by name or by prefix."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import CommandFailed, UsageError
from holdfast.cli.parsing import add_command as add
from holdfast.cli.progress import Progress
from holdfast.cli.results import print_results

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.errors import HoldfastError

_BATCH_SIZE: Final = 50
"""Topics per request: few enough that the progress bar moves."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "delete",
        run,
        "delete topics with all their records",
        [
            "holdfast topics delete --bootstrap-server 127.0.0.1:9092 --topic orders",
            "holdfast topics delete --bootstrap-server 127.0.0.1:9092 --prefix test-",
        ],
        needs="DELETE on the topic",
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="its name; may be repeated")
    parser.add_argument(
        "--prefix", metavar="PREFIX", help="all topics whose name starts with PREFIX, except internal ones"
    )
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    if not options.topic and not options.prefix:
        raise UsageError("name the topics: --topic or --prefix")
    results: dict[str, HoldfastError | None] = {}
    with open_admin(options) as admin:
        wanted = _topics_to_delete(options, admin)
        with Progress("topics deleted", len(wanted)) as progress:
            for start in range(0, len(wanted), _BATCH_SIZE):
                part = wanted[start : start + _BATCH_SIZE]
                results |= admin.delete_topics(part)
                progress.step(len(part))
    if options.if_exists:
        results = {name: None if _missing(error) else error for name, error in results.items()}
    return print_results(options, "topic", "deleted" if not options.if_exists else "gone", results)


def _topics_to_delete(options: argparse.Namespace, admin: Admin) -> list[str]:
    wanted = dict.fromkeys(options.topic)
    if options.prefix:
        found = [one.name for one in admin.list_topics() if not one.internal and one.name.startswith(options.prefix)]
        if not (found or wanted or options.if_exists):
            raise CommandFailed(f"there is no topic whose name begins with {options.prefix!r}")
        wanted |= dict.fromkeys(found)
    return list(wanted)


def _missing(error: HoldfastError | None) -> bool:
    from holdfast.wire.error_codes import ErrorCode

    return error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

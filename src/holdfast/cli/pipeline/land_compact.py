"""`holdfast pipeline land-compact`: small files of a table into larger ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json
from holdfast.cli.parsing import CommaList, seconds, whole_number
from holdfast.cli.parsing import add_command as add
from holdfast.cli.pipeline.query_options import add_path_options, location
from holdfast.cli.pipeline.spark_session import add_spark_options, session
from holdfast.extras import SPARK

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands

_MIB = 1024 * 1024


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "land-compact",
        run,
        "merge the small files of landed topics",
        ["holdfast pipeline land-compact --path lake", "holdfast pipeline land-compact --path lake --topic orders"],
        "Merges the files of past dates, and deletes files that are not in the table after the grace period.\n"
        "Writers and readers may run at the same time.",
        packages=SPARK,
    )
    add_path_options(parser, "table")
    parser.add_argument("--topic", metavar="TOPIC", action=CommaList, help="the topic; may be repeated (default: all)")
    parser.add_argument(
        "--before", metavar="DATE", type=_date, help="merge only dates before this one (default: today, UTC)"
    )
    parser.add_argument(
        "--target-mib",
        metavar="N",
        type=whole_number(1),
        default=128,
        help="maximum size of a merged file (default: 128)",
    )
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=seconds,
        default=86_400.0,
        help="how long replaced files are kept for current readers, rounded up to hours (default: 86400, a day)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    location(options, "table")  # before Spark is started, so that a mistake is reported at once
    with session(options) as spark:
        from holdfast.spark.pipelines import compact

        done = compact(
            spark,
            options.path,
            options.topic,
            before=options.before,
            target_bytes=options.target_mib * _MIB,
            grace_s=options.grace,
            storage_options=dict(options.storage_options),
        )
    if options.json:
        print_json(asdict(done))
    else:
        print(
            f"{done.merged_files:,} files became {done.into_files:,}; {done.deleted_files:,} files that are not in the "
            "table were deleted"
        )
    return EXIT_OK


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date like 2026-11-16") from error

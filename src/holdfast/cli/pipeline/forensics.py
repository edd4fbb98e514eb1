"""`holdfast pipeline forensics`: what the rebalances of groups cost, and which of them were avoidable."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, client_settings
from holdfast.cli.errors import CommandFailed, UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import Cell, print_json, print_table, printable
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import seconds, whole_number
from holdfast.cli.pipeline.spark_session import add_spark_options, session
from holdfast.cli.times import format_time, since_option
from holdfast.extras import PLOT, SPARK, check_installed

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.spark.pipelines.forensics.report import Report
    from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

COLUMNS: Final = (
    "GROUP",
    "REBALANCES",
    "UNASSIGNED-MS",
    "PARTITION-MS",
    "MOVED",
    "FLAPPING",
    "WENT-BACK",
    "TWO-OWNERS",
    "STATIC-SAVES",
    "REGISTRATION-SAVES",
    "STANDBY-SAVES",
    "SINCE",
)
_MAX_ON_SCREEN: Final = 20
_SHORT: Final = 40


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "forensics",
        run,
        "report what rebalances cost, and which of them were avoidable",
        [
            "holdfast pipeline forensics --bootstrap-server 127.0.0.1:9092 --out report",
            "holdfast pipeline forensics --bootstrap-server 127.0.0.1:9092 --group orders --since 1d --out report",
        ],
        "Reads __group_ledger and __consumer_offsets of Holdfast, or __consumer_offsets of Apache Kafka, and joins no\n"
        "group. Writes tables (Delta), a page with a timeline of owners (HTML) and figures (JSON).",
        packages=SPARK,
    )
    parser.add_argument(
        "--out", metavar="DIRECTORY", required=True, help="directory for the report; an earlier report is replaced"
    )
    parser.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="only this group; may be repeated"
    )
    parser.add_argument(
        "--since", metavar="WHEN", type=since_option, help="only since then: 2h (ago), or 2026-05-31T08:30:00Z"
    )
    parser.add_argument("--until", metavar="WHEN", type=since_option, help="only until then")
    parser.add_argument(
        "--source",
        choices=("auto", "ledger", "offsets"),
        default="auto",
        help="the topics to read (default: auto, those of the two that exist)",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE.png",
        help="also draw the timeline of the group, of several the one with the highest cost (needs the extra `plot`)",
    )
    _add_thresholds(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_spark_options(parser)
    add_connection_options(parser, timeout=False)


def _add_thresholds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("thresholds")
    group.add_argument(
        "--flap-times",
        metavar="N",
        type=whole_number(1),
        default=3,
        help="a member is flapping if it left more often than this",
    )
    group.add_argument(
        "--flap-within", metavar="SECONDS", type=seconds, default=600.0, help="within this time (3 in 600)"
    )
    group.add_argument(
        "--scale-up-within",
        metavar="SECONDS",
        type=seconds,
        default=60.0,
        help="members that joined within this time of each other could have been registered together (60)",
    )
    group.add_argument(
        "--takeover-ms",
        metavar="MS",
        type=whole_number(1),
        default=10_000,
        help="standby.takeover.ms of a hypothetical standby (10000)",
    )


def run(options: argparse.Namespace) -> int:
    source = {f"kafka.{name}": value for name, value in client_settings(options).items()}
    _check(options, source)
    with session(options) as spark:
        from holdfast.spark.pipelines import forensics

        report = forensics(
            spark, options.out, source, options.group, source=options.source, thresholds=_thresholds(options)
        )
    if options.json:
        print_json(report.to_json())
    else:
        _print(report)
    if options.picture is not None:
        _draw(report, Path(options.picture), is_printed=not options.json)
    return EXIT_OK


def _draw(report: Report, path: Path, *, is_printed: bool) -> None:
    if not report.shown:
        return  # the report has a note about it
    group_id = report.shown[0]["group_id"]
    try:
        path.write_bytes(report.png(group_id))
    except OSError as error:
        raise CommandFailed(
            f"the picture could not be written to {path} ({error.strerror}); the report is there"
        ) from error
    if is_printed:
        print(f"the timeline of {printable(group_id[:_SHORT])} is in {path}")


def _check(options: argparse.Namespace, source: Mapping[str, Any]) -> None:
    """Before Spark is started, so that a mistake is reported at once."""
    from holdfast.spark.pipelines.forensics.job import check

    check(options.out, source, options.source, _thresholds(options))
    if options.picture is not None:
        check_installed("--picture", PLOT)
        _check_picture(Path(options.picture))


def _check_picture(path: Path) -> None:
    if path.suffix.lower() != ".png":
        raise UsageError(f"--picture {path}: the picture is a PNG; give a file name that ends in .png")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"--picture {path}: give a file in a directory that exists and is writable")


def _thresholds(options: argparse.Namespace) -> ForensicsThresholds:
    from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

    return ForensicsThresholds(
        since_ms=options.since,
        until_ms=options.until,
        flap_times=options.flap_times,
        flap_within_ms=int(options.flap_within * 1000),
        scale_up_within_ms=int(options.scale_up_within * 1000),
        takeover_ms=options.takeover_ms,
    )


def _print(report: Report) -> None:
    from holdfast.spark.pipelines.forensics.inferred_causes import summary

    print_table(COLUMNS, [_row(row) for row in report.shown[:_MAX_ON_SCREEN]])
    for row in report.shown[:_MAX_ON_SCREEN]:
        if row["causes"]:
            causes = ", ".join(f"{count} × {summary(code)}" for code, count in row["causes"].items())
            print(f"{printable(row['group_id'][:_SHORT])}: {printable(causes)}")
    left = report.groups - _MAX_ON_SCREEN
    if left > 0:
        print(f"and {left:,} more groups")
    for note in report.notes:
        print(printable(note))
    print(f"tables, timeline.html and report.json are in {report.path}")


def _row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    from holdfast.spark.pipelines.forensics.records import clamp_to_dates

    least = "≥" if row["is_lower_bound"] else ""
    unassigned: Cell = f"≥{row['unassigned_ms']}" if least else row["unassigned_ms"]
    partition: Cell = f"≥{row['partition_ms']}" if least else row["partition_ms"]
    return (
        row["group_id"][:_SHORT],
        row["rebalances"],
        unassigned,
        partition,
        row["moved"],
        row["flapping"],
        row["went_back"],
        row["two_owners"],
        row["static_rebalances"],
        row["registration_rebalances"],
        row["standby_rebalances"],
        format_time(clamp_to_dates(row["history_begins_ms"])),
    )

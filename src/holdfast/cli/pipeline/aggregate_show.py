"""`holdfast pipeline aggregate-show`: print the totals of a state."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.errors import CommandFailed
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json_line, print_table
from holdfast.cli.parsing import CommaList, whole_number
from holdfast.cli.parsing import add_command as add
from holdfast.cli.pipeline.query_options import add_path_options, location
from holdfast.extras import CLIENT

if TYPE_CHECKING:
    import pyarrow

    from holdfast.cli.parsing import Commands
    from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
    from holdfast.spark.pipelines.aggregate.state_store import StateStore
    from holdfast.spark.pipelines.aggregate.version import Version

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CELL_WIDTH: Final = 60
"""Longer values are cut in the table; --json prints them in full."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "aggregate-show",
        run,
        "show the totals that `pipeline aggregate` keeps",
        [
            "holdfast pipeline aggregate-show --path totals",
            "holdfast pipeline aggregate-show --path totals --key anna --json",
        ],
        "The highest counts come first. The command needs no Spark, and the pipeline may run at the same time.",
        packages=(*CLIENT, "pyarrow"),
    )
    add_path_options(parser, "state")
    parser.add_argument("--topic", metavar="TOPIC", action=CommaList, help="the topic; may be repeated (default: all)")
    parser.add_argument("--key", metavar="KEY", help="only this key")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number(1), default=20, help="maximum number of rows (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each row")


def run(options: argparse.Namespace) -> int:
    try:
        store, settings, versions = _state(options)
        rows = _rows(options, store, settings, versions)
        shown = heapq.nlargest(options.limit, rows, key=lambda row: row["count"])
    except OSError as error:
        raise CommandFailed(f"{options.path} cannot be read: {error.strerror}") from error
    if options.json:
        for row in shown:
            print_json_line({name: _text(value) for name, value in row.items()})
    elif shown:
        names = list(shown[0])
        head = [name.upper().replace("_", "-") for name in names]
        print_table(head, ([_cell(row[name]) for name in names] for row in shown))
    if not options.json:
        _note_dropped_windows(versions)
    return EXIT_OK


def _note_dropped_windows(versions: Sequence[Version]) -> None:
    cutoffs_us = sorted({one.dropped_before_us for one in versions if one.dropped_before_us is not None})
    if cutoffs_us:
        first, last = (_format_us(cutoffs_us[at]) for at in (0, -1))
        by_partition = "" if first == last else f" to {last}, by partition"
        print(f"dropped: windows before {first}{by_partition}")


def _state(options: argparse.Namespace) -> tuple[StateStore, AggregateSettings, list[Version]]:
    from holdfast.spark.pipelines.aggregate.state_store import StateStore
    from holdfast.spark.pipelines.aggregate.totals_reader import versions_of

    store = StateStore(location(options, "state"))
    return store, *versions_of(store, options.topic)


def _rows(
    options: argparse.Namespace, store: StateStore, settings: AggregateSettings, versions: Sequence[Version]
) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    from holdfast.spark.pipelines.aggregate.totals_reader import totals_of

    for version in versions:
        rows = totals_of(store, settings, version)
        if options.key is not None:
            kind = rows.schema.field("key").type
            rows = rows.filter(pc.equal(rows["key"], pc.cast(options.key.encode(), kind)))
        if rows.num_rows > options.limit:
            rows = rows.take(pc.select_k_unstable(rows, options.limit, [("count", "descending")]))
        yield from _with_times(rows)


def _with_times(rows: pyarrow.Table) -> Iterator[dict[str, Any]]:
    """Times as text: Arrow would convert them to `datetime`, which cannot hold every timestamp that producers write."""
    import pyarrow as pa

    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
    for row in rows.to_pylist():
        yield row | {name: _format_us(row[name]) for name in times if row[name] is not None}


def _format_us(at_us: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat()
    except OverflowError:
        return f"{at_us // 1000} ms since 1970"


def _text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _cell(value: Any) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    text = str(_text(value))
    return text if len(text) <= _MAX_CELL_WIDTH else f"{text[: _MAX_CELL_WIDTH - 1]}…"

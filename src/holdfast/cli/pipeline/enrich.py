"""`holdfast pipeline enrich`: totals of keys that follow their partition."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.client_log import saying_warnings
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json_line
from holdfast.cli.parsing import add_command as add
from holdfast.cli.pipeline.query import add_query_options, checked_source, trigger, until_it_ends
from holdfast.cli.pipeline.spark import session
from holdfast.cli.stopping import Stopping
from holdfast.extras import SPARK

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.spark.pipelines.enrich.query import Batch


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "enrich",
        run,
        "keep count, sum and last value of each key",
        [
            "holdfast pipeline enrich --bootstrap-server 127.0.0.1:9092 --topic orders --group totals "
            "--instance-id totals-1 --path totals",
            "holdfast pipeline enrich --bootstrap-server 127.0.0.1:9092 --topic orders --group totals --path totals "
            "--amount \"try_cast(get_json_object(CAST(value AS STRING), '$.amount') AS BIGINT)\" --window '1 hour' "
            "--once",
        ],
        "Several of them share the topics through the group. The totals belong to the partition: whoever owns it next\n"
        "goes on with them, and each record counts once, whoever is killed. With an instance id a restart loads none\n"
        "of them. Ctrl-C or SIGTERM ends it when the batch in hand is counted.",
        packages=SPARK,
    )
    counting = parser.add_argument_group("what is counted (expressions of Spark over the columns of the source)")
    counting.add_argument("--key", metavar="EXPRESSION", default="key", help="by what (default: key)")
    counting.add_argument(
        "--amount", metavar="EXPRESSION", help="what is summed up, a BIGINT or a DOUBLE (default: none)"
    )
    counting.add_argument(
        "--last", metavar="EXPRESSION", default="value", help="of what the last one is kept (default: value)"
    )
    counting.add_argument("--no-last", action="store_true", help="keep no last value")
    counting.add_argument("--window", metavar="LENGTH", help="apart for windows of this length, like '10 minutes'")
    counting.add_argument(
        "--keep-windows",
        metavar="LENGTH",
        help="drop windows that ended so long before their partition's newest record, like '7 days' (default: never)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIRECTORY",
        help="what this machine knows of the state (default: with an instance id below ~/.cache; else none is kept)",
    )
    add_query_options(parser, "state", "count")


def run(options: argparse.Namespace) -> int:
    from holdfast.spark.pipelines.enrich.settings import keep_us, window_us

    source = checked_source(options, "state")
    window_us(options.window)
    keep_us(options.keep_windows, options.window)
    with Stopping() as stopping, saying_warnings(options.prog), session(options) as spark:
        from holdfast.spark.pipelines import Enrich

        def on_batch(batch: Batch) -> None:
            _print(options, batch)

        query = Enrich(
            spark,
            options.path,
            source,
            key=options.key,
            amount=options.amount,
            last=None if options.no_last else options.last,
            window=options.window,
            keep_windows=options.keep_windows,
            cache=options.cache,
            checkpoint=options.checkpoint,
            on_batch=on_batch,
        )
        query.start(**trigger(options))
        until_it_ends(query, stopping)
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print(options: argparse.Namespace, batch: Batch) -> None:
    enriched = batch.enriched
    if options.json:
        print_json_line(
            {
                "batch": batch.number,
                "records": enriched.records,
                "keys": enriched.keys,
                "partitions": enriched.partitions,
                "loaded_bytes": enriched.loaded_bytes,
                "written_bytes": enriched.written_bytes,
                "state_bytes": enriched.state_bytes,
                "already_counted": enriched.already,
                "lost": sum(one.end - one.start for one in enriched.lost),
                "seconds": round(batch.seconds, 3),
            }
        )
        return
    already = f"; {enriched.already:,} were counted already" if enriched.already else ""
    print(
        f"batch {batch.number}: {enriched.records:,} records of {enriched.partitions} partitions changed "
        f"{enriched.keys:,} totals, {enriched.loaded_bytes:,} bytes of state loaded, {batch.seconds:.1f} s{already}",
        flush=True,
    )

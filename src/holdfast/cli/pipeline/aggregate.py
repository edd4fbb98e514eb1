"""`holdfast pipeline aggregate`: totals by key that belong to the partition."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json_line
from holdfast.cli.parsing import add_command as add
from holdfast.cli.pipeline.query_options import add_query_options, run_until_stopped, trigger, validated_source_options
from holdfast.cli.pipeline.spark_session import session
from holdfast.cli.signals import GracefulStop
from holdfast.cli.stdio import warnings_to_stderr
from holdfast.extras import SPARK

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.spark.pipelines.aggregate.aggregate_query import AggregateBatch


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "aggregate",
        run,
        "keep count, sum and last value of each key",
        [
            "holdfast pipeline aggregate --bootstrap-server 127.0.0.1:9092 --topic orders --group totals "
            "--instance-id totals-1 --path totals",
            "holdfast pipeline aggregate --bootstrap-server 127.0.0.1:9092 --topic orders --group totals --path totals "
            "--amount \"try_cast(get_json_object(CAST(value AS STRING), '$.amount') AS BIGINT)\" --window '1 hour' "
            "--once",
        ],
        "Several processes can divide the topics among them through the group. The totals belong to the partition:\n"
        "its next owner continues with them, and each record counts once, even if processes are killed. With an\n"
        "instance id, a restart loads no state. Ctrl-C or SIGTERM exits after the current batch.",
        packages=SPARK,
    )
    counting = parser.add_argument_group("aggregation (Spark expressions over the columns of the source)")
    counting.add_argument("--key", metavar="EXPRESSION", default="key", help="the key (default: key)")
    counting.add_argument(
        "--amount", metavar="EXPRESSION", help="the value to sum, a BIGINT or a DOUBLE (default: none)"
    )
    counting.add_argument(
        "--last", metavar="EXPRESSION", default="value", help="the value whose latest one is kept (default: value)"
    )
    counting.add_argument("--no-last", action="store_true", help="keep no last value")
    counting.add_argument(
        "--window", metavar="LENGTH", help="separate totals for windows of this length, like '10 minutes'"
    )
    counting.add_argument(
        "--keep-windows",
        metavar="LENGTH",
        help="drop windows that ended this long before their partition's newest record, like '7 days' (default: never)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIRECTORY",
        help="local copy of the state (default: with --instance-id, below ~/.cache; otherwise temporary)",
    )
    add_query_options(parser, "state", "count")


def run(options: argparse.Namespace) -> int:
    from holdfast.spark.pipelines.aggregate.aggregate_settings import keep_us, window_us

    source = validated_source_options(options, "state")
    window_us(options.window)
    keep_us(options.keep_windows, options.window)
    with GracefulStop() as stopping, warnings_to_stderr(options.prog), session(options) as spark:
        from holdfast.spark.pipelines import Aggregate

        def on_batch(batch: AggregateBatch) -> None:
            _print(options, batch)

        query = Aggregate(
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
            storage_options=dict(options.storage_options),
            on_batch=on_batch,
        )
        query.start(**trigger(options))
        run_until_stopped(query, stopping)
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print(options: argparse.Namespace, batch: AggregateBatch) -> None:
    result = batch.aggregated
    if options.json:
        print_json_line(
            {
                "batch": batch.number,
                "records": result.records,
                "keys": result.keys,
                "partitions": result.partitions,
                "loaded_bytes": result.loaded_bytes,
                "written_bytes": result.written_bytes,
                "state_bytes": result.state_bytes,
                "already_counted": result.already,
                "lost": sum(one.end - one.start for one in result.lost),
                "seconds": round(batch.seconds, 3),
            }
        )
        return
    already = f"; {result.already:,} were counted already" if result.already else ""
    print(
        f"batch {batch.number}: {result.records:,} records of {result.partitions} partitions changed "
        f"{result.keys:,} totals, {result.loaded_bytes:,} bytes of state loaded, {batch.seconds:.1f} s{already}",
        flush=True,
    )

"""`holdfast pipeline land`: topics to Parquet, each record once."""

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
    from holdfast.spark.pipelines.land.query import Batch


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "land",
        run,
        "land topics as Parquet files, each record once",
        [
            "holdfast pipeline land --bootstrap-server 127.0.0.1:9092 --topic orders --group lake --instance-id lake-1 "
            "--path lake",
            "holdfast pipeline land --bootstrap-server 127.0.0.1:9092 --topic orders,returns --group lake --path lake "
            "--once",
        ],
        "Several of them share the topics through the group and write to the same table; each record stands in it\n"
        "once, whoever is killed. Ctrl-C or SIGTERM ends it when the batch in hand is landed.",
        packages=SPARK,
    )
    add_query_options(parser, "table", "land")


def run(options: argparse.Namespace) -> int:
    source = checked_source(options, "table")
    with Stopping() as stopping, saying_warnings(options.prog), session(options) as spark:
        from holdfast.spark.pipelines import Land

        def on_batch(batch: Batch) -> None:
            _print(options, batch)

        query = Land(spark, options.path, source, checkpoint=options.checkpoint, on_batch=on_batch)
        query.start(**trigger(options))
        until_it_ends(query, stopping)
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print(options: argparse.Namespace, batch: Batch) -> None:
    landed = batch.landed
    if options.json:
        print_json_line(
            {
                "batch": batch.number,
                "rows": landed.rows,
                "partitions": landed.partitions,
                "files": landed.files,
                "already_landed": landed.already,
                "lost": sum(one.end - one.start for one in landed.lost),
                "seconds": round(batch.seconds, 3),
            }
        )
        return
    already = f"; {landed.already:,} were there already" if landed.already else ""
    print(
        f"batch {batch.number}: {landed.rows:,} records of {landed.partitions} partitions in {landed.files} files, "
        f"{batch.seconds:.1f} s{already}",
        flush=True,
    )

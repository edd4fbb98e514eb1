"""`holdfast pipeline land`: topics to a Delta table, each record once."""

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
    from holdfast.spark.pipelines.land.land_query import LandBatch


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "land",
        run,
        "write topics to a Delta table, each record once",
        [
            "holdfast pipeline land --bootstrap-server 127.0.0.1:9092 --topic orders --group lake --instance-id lake-1 "
            "--path lake",
            "holdfast pipeline land --bootstrap-server 127.0.0.1:9092 --topic orders,returns --group lake --path lake "
            "--once",
            "holdfast pipeline land --bootstrap-server 127.0.0.1:9092 --topic orders --group lake "
            "--path s3://bucket/lake --storage AWS_ENDPOINT_URL=https://minio.example:9000",
        ],
        "Several processes can divide the topics among them through the group and write to the same table; it has\n"
        "each record once, even if processes are killed. Ctrl-C or SIGTERM exits after the current batch.",
        packages=SPARK,
    )
    add_query_options(parser, "table", "land")


def run(options: argparse.Namespace) -> int:
    source = validated_source_options(options, "table")
    with GracefulStop() as stopping, warnings_to_stderr(options.prog), session(options) as spark:
        from holdfast.spark.pipelines import Land

        def on_batch(batch: LandBatch) -> None:
            _print(options, batch)

        query = Land(
            spark,
            options.path,
            source,
            checkpoint=options.checkpoint,
            storage_options=dict(options.storage_options),
            on_batch=on_batch,
        )
        query.start(**trigger(options))
        run_until_stopped(query, stopping)
    return EXIT_OK if stopping.exit_code is None else stopping.exit_code


def _print(options: argparse.Namespace, batch: LandBatch) -> None:
    landed = batch.landed
    if options.json:
        print_json_line(
            {
                "batch": batch.number,
                "rows": landed.rows,
                "partitions": landed.partitions,
                "files": landed.files,
                "already_landed": landed.already,
                "conflicts": landed.conflicts,
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

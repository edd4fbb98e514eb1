"""Options and life cycle that the commands with a streaming query have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, client_settings
from holdfast.cli.parsing import CommaList, name_and_value, seconds, whole_number
from holdfast.cli.pipeline.spark_session import add_spark_options

if TYPE_CHECKING:
    from holdfast.cli.signals import GracefulStop
    from holdfast.spark.pipelines.location import Location
    from holdfast.spark.pipelines.pipeline_query import PipelineQuery

_WAIT_S: Final = 1


def add_query_options(parser: argparse.ArgumentParser, kept: str, doing: str) -> None:
    """`kept` names the content of the directory, and `doing` is the verb for the topics."""
    parser.add_argument("--topic", metavar="TOPIC", action=CommaList, required=True, help="the topic; may be repeated")
    parser.add_argument("--group", metavar="GROUP", required=True, help="the group to join")
    parser.add_argument("--instance-id", metavar="ID", help="join as a static member (group.instance.id)")
    add_path_options(parser, kept)
    parser.add_argument(
        "--checkpoint",
        metavar="DIRECTORY",
        help=f"Spark's checkpoint (default: with --instance-id, a directory of that name in the {kept}, or below "
        f"~/.cache if the {kept} is in S3; otherwise temporary)",
    )
    parser.add_argument("--once", action="store_true", help=f"{doing} the records that are available now, and exit")
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, help="interval between batches (default: without a pause)"
    )
    parser.add_argument(
        "--from-latest", action="store_true", help="start at the end of partitions without a committed offset"
    )
    parser.add_argument("--max-offsets", metavar="N", type=whole_number(1), help="maximum number of records in a batch")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each batch")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        dest="source_options",
        action="append",
        default=[],
        type=name_and_value,
        help="a source option, e.g. failOnDataLoss=false or kafka.session.timeout.ms=120000; may be repeated",
    )
    add_spark_options(parser)
    add_connection_options(parser, timeout=False)


def add_path_options(parser: argparse.ArgumentParser, kept: str) -> None:
    parser.add_argument(
        "--path",
        metavar="PATH",
        required=True,
        help=f"the {kept}: a directory, on a cluster a shared one, or s3://bucket/{kept}",
    )
    parser.add_argument(
        "--storage",
        metavar="NAME=VALUE",
        dest="storage_options",
        action="append",
        default=[],
        type=name_and_value,
        help="an option of S3, e.g. AWS_ENDPOINT_URL=https://…, instead of the environment variable of that name; may "
        "be repeated",
    )


def location(options: argparse.Namespace, kept: str) -> Location:
    from holdfast.spark.pipelines.location import Location

    return Location.parse(options.path, kept, dict(options.storage_options))


def run_until_stopped(query: PipelineQuery[Any], stopping: GracefulStop) -> None:
    while stopping.exit_code is None:
        if query.wait(_WAIT_S):
            return
    query.stop()


def validated_source_options(options: argparse.Namespace, kept: str) -> dict[str, Any]:
    """The source options, validated. Called before Spark is started, so that a mistake is reported at once."""
    from holdfast.spark.options import stream_options

    source = source_options(options)
    stream_options({name: str(value) for name, value in source.items()})
    location(options, kept)
    return source


def source_options(options: argparse.Namespace) -> dict[str, Any]:
    source: dict[str, Any] = {f"kafka.{name}": value for name, value in client_settings(options).items()}
    source |= {"kafka.group.id": options.group, "subscribe": ",".join(options.topic)}
    if options.instance_id is not None:
        source["kafka.group.instance.id"] = options.instance_id
    if options.from_latest:
        source["startingOffsets"] = "latest"
    if options.max_offsets is not None:
        source["maxOffsetsPerTrigger"] = options.max_offsets
    return source | dict(options.source_options)


def trigger(options: argparse.Namespace) -> dict[str, Any]:
    if options.once:
        return {"availableNow": True}
    return {} if options.every is None else {"processingTime": f"{options.every:g} seconds"}

"""What the commands that run a streaming query have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection import add_connection_options, client_settings
from holdfast.cli.parsing import CommaList, name_and_value, seconds, whole_number
from holdfast.cli.pipeline.spark import add_spark_options

if TYPE_CHECKING:
    from holdfast.cli.stopping import Stopping
    from holdfast.spark.pipelines.query import PipelineQuery

_LOOK_EVERY_S: Final = 1


def add_query_options(parser: argparse.ArgumentParser, kept: str, doing: str) -> None:
    """`kept` is what is in the directory, and `doing` what is done to the topics."""
    parser.add_argument("--topic", metavar="TOPIC", action=CommaList, required=True, help="may be repeated")
    parser.add_argument("--group", metavar="GROUP", required=True, help="be a member of this group")
    parser.add_argument("--instance-id", metavar="ID", help="be a static member, with this seat")
    parser.add_argument("--path", metavar="DIRECTORY", required=True, help=f"the {kept}; on a cluster, shared by all")
    parser.add_argument(
        "--checkpoint",
        metavar="DIRECTORY",
        help=f"Spark's (default: with an instance id in the {kept}, by that name; else none is kept)",
    )
    parser.add_argument("--once", action="store_true", help=f"{doing} what the topics hold now, and end")
    parser.add_argument("--every", metavar="SECONDS", type=seconds, help="begin a batch that often (default: always)")
    parser.add_argument(
        "--from-latest", action="store_true", help="where the group has no offset, begin at the end of the topics"
    )
    parser.add_argument("--max-offsets", metavar="N", type=whole_number(1), help="at most so many records in a batch")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each batch")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        dest="source_options",
        action="append",
        default=[],
        type=name_and_value,
        help="an option of the source, e.g. failOnDataLoss=false or kafka.session.timeout.ms=120000; may be repeated",
    )
    add_spark_options(parser)
    add_connection_options(parser, timeout=False)


def until_it_ends(query: PipelineQuery[Any], stopping: Stopping) -> None:
    while stopping.exit_code is None:
        if query.wait(_LOOK_EVERY_S):
            return
    query.stop()


def checked_source(options: argparse.Namespace, kept: str) -> dict[str, Any]:
    """The options of the source. To be called before Spark is started: what is wrong is told at once."""
    from holdfast.spark.options import stream_options
    from holdfast.spark.pipelines.disk import shared_path

    source = source_options(options)
    stream_options({name: str(value) for name, value in source.items()})
    shared_path(options.path, kept)
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

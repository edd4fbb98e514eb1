"""`holdfast topics describe`: partitions with their leaders and offsets, and configs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table, printable
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.parsing import Commands
    from holdfast.client.topic_admin import TopicDescription


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "describe",
        run,
        "show partitions, leaders, offsets and configs of topics",
        ["holdfast topics describe --bootstrap-server 127.0.0.1:9092 --topic orders"],
        needs="DESCRIBE on the topic",
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="its name; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        topics = admin.describe_topics(options.topic)
    if options.json:
        print_json([_json(topic) for topic in topics])
        return EXIT_OK
    for number, topic in enumerate(topics):
        if number:
            print()
        _print(topic)
    return EXIT_OK


def _print(topic: TopicDescription) -> None:
    configs = ", ".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    print(
        f"{printable(topic.name)}: {len(topic.partitions)} partitions, replication factor {topic.replication_factor}, "
        f"id {printable(topic.topic_id)}"
    )
    if configs:
        print(f"configs: {printable(configs)}")
    rows = [
        (one.number, one.leader, _brokers(one.replicas), _brokers(one.in_sync), one.earliest, one.latest)
        for one in topic.partitions
    ]
    print_table(("PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "LOG-START-OFFSET", "LOG-END-OFFSET"), rows)


def _brokers(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))


def _json(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": topic.replication_factor,
        "configs": dict(topic.configs),
        "partitions": [
            {
                "partition": one.number,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "log_start_offset": one.earliest,
                "log_end_offset": one.latest,
            }
            for one in topic.partitions
        ],
    }

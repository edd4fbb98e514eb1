"""Kafka's own readers read our `__consumer_offsets`: its dump tool the files, its console consumer the live topic."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.group_records import partition_for
from tests.broker.group_members import (
    RANGE,
    Protocols,
    WireMember,
    assign_evenly,
    delete_group,
    form,
    wait_for_state,
)
from tests.broker.wire_client import WireClient
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import kafka_distribution, kafka_tool

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
GROUPS_FORMATTER = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
PARTITIONS = 2
NONE = 0

LIVING, DELETED = "living", "deleted"
LIFE_MS = 600_000
"""Nobody heartbeats for the members while Kafka's tools start and read; a group that lost them would write of it."""

Printed = dict[str, Any]


class LastingMember(WireMember):
    def join_request(self, protocols: Protocols = RANGE, **fields: object) -> JoinGroupRequest:
        return super().join_request(protocols, session_timeout_ms=LIFE_MS, rebalance_timeout_ms=LIFE_MS, **fields)


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    """A broker on which a group lives, with a restarted static member and an offset, and another was deleted."""
    settings = {"offsets.topic.num.partitions": str(PARTITIONS)}
    with HoldfastBroker(settings) as started:
        with WireClient(started.address) as client:
            client.create_topic("orders", partitions=2)
        for group in (LIVING, DELETED):
            static, dynamic = LastingMember(started.address, group, "a"), LastingMember(started.address, group)
            form(static, dynamic)
            assign_evenly(static, dynamic)
            assert dynamic.commit(41, "märk") == NONE
            restarted = LastingMember(started.address, group, "a")
            restarted.join()
            assert restarted.commit(42, "märk") == NONE
            if group == DELETED:
                assert [entry.error_code for entry in dynamic.leave().members] == [NONE]
                assert [entry.error_code for entry in restarted.leave().members] == [NONE]
                wait_for_state(dynamic, group, "Empty")
                assert delete_group(dynamic, group) == NONE
        yield started


# -- the files ---------------------------------------------------------------------------------------------------------


def dumped(broker: HoldfastBroker, group: str) -> list[str]:
    """What the tool says of each record in the group's partition."""
    directory: Path = broker.data_dir / f"__consumer_offsets-{partition_for(group, PARTITIONS)}"
    text = kafka_tool(DUMP, "--offsets-decoder", "--files", str(directory / f"{0:020d}.log"))
    return [line.partition(" key: ")[2] for line in text.splitlines() if line.startswith("| offset: ")]


def test_the_dump_tool_reads_our_files(broker: HoldfastBroker) -> None:
    lines = dumped(broker, LIVING)

    # then the last of each kind says what holds
    key = json.dumps({"type": "1", "data": {"group": LIVING, "topic": "orders", "partition": 0}}, separators=(",", ":"))
    offset = json.loads([line for line in lines if line.startswith(key)][-1].partition(" payload: ")[2])
    assert (offset["data"]["offset"], offset["data"]["metadata"]) == (42, "märk")
    key = json.dumps({"type": "2", "data": {"group": LIVING}}, separators=(",", ":"))
    group = json.loads([line for line in lines if line.startswith(key)][-1].partition(" payload: ")[2])["data"]
    assert (group["protocolType"], group["protocol"], group["generation"]) == ("consumer", "range", 2)
    assert [member.get("groupInstanceId") for member in group["members"]].count("a") == 1
    assert [member["subscription"]["topics"] for member in group["members"]] == [["orders"], ["orders"]]
    assignments = [member["assignment"]["assignedPartitions"] for member in group["members"]]
    assert sorted(assignment["partitions"] for (assignment,) in assignments) == [[0], [1]]

    # and what is ours is named unknown, not an error
    assert any("Unknown record type 10000" in line for line in lines)


def test_the_dump_tool_sees_what_was_deleted(broker: HoldfastBroker) -> None:
    lines = dumped(broker, DELETED)

    ends = [line for line in lines if line.endswith("payload: <DELETE>")]
    assert any(f'"group":"{DELETED}","topic":"orders"' in line for line in ends)
    assert any(line.startswith('{"type":"2","data":{"group":"deleted"}}') for line in ends)
    assert any("Unknown record type 10001" in line for line in lines)


# -- the running broker ------------------------------------------------------------------------------------------------


def consumed(broker: HoldfastBroker, formatter: str, output: Path) -> list[Printed]:
    """What the formatter prints, up to the last records of both groups."""
    config = output.with_suffix(".properties")
    config.write_text("exclude.internal.topics=false\nauto.offset.reset=earliest\n")
    command = kafka_distribution().command(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets", "--from-beginning"),
        *("--formatter", formatter, "--command-config", str(config)),
        jvm_options=("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Dlog.level=WARN"),
    )
    process = start_child(command, output)

    def is_complete() -> bool:
        found = printed(output)
        # Of either kind it has two; those of the other group may come before or after.
        return len(of(found, LIVING)) == 2 and None in of(found, DELETED)

    try:
        eventually(is_complete, "the last records of both groups", within_s=120)
    finally:
        end_child(process, signal.SIGTERM, patience_s=30)
    assert not re.search("ERROR|WARN|Exception", output.read_text()), output.read_text()
    return printed(output)


def printed(output: Path) -> list[Printed]:
    """The formatters put one JSON object behind the other."""
    text = output.read_text()
    found: list[Printed] = []
    position = text.find('{"key"')
    while position >= 0:
        try:
            entry, position = json.JSONDecoder().raw_decode(text, position)
        except json.JSONDecodeError:
            break  # the rest is still being written
        found.append(entry)
        position = text.find('{"key"', position)
    return found


def of(found: list[Printed], group: str) -> list[Any]:
    """The values of the group's records, in order."""
    return [entry["value"] and entry["value"]["data"] for entry in found if entry["key"]["data"]["group"] == group]


def test_the_console_consumer_prints_our_offsets(broker: HoldfastBroker, tmp_path: Path) -> None:
    found = consumed(broker, OFFSETS_FORMATTER, tmp_path / "offsets")

    assert [value["offset"] for value in of(found, LIVING)] == [41, 42]
    assert [value and value["offset"] for value in of(found, DELETED)] == [41, 42, None]
    assert {entry["key"]["type"] for entry in found} == {1}


def test_the_console_consumer_prints_our_groups(broker: HoldfastBroker, tmp_path: Path) -> None:
    found = consumed(broker, GROUPS_FORMATTER, tmp_path / "groups")

    assigned, restarted = of(found, LIVING)
    assert (assigned["generation"], restarted["generation"]) == (2, 2)
    assert [member["groupInstanceId"] for member in restarted["members"]] == ["a", None]
    assert assigned["leader"] != restarted["leader"] == restarted["members"][0]["memberId"]
    assert [value and value["generation"] for value in of(found, DELETED)] == [2, 2, 3, None]
    # and ours are passed over in silence
    assert {entry["key"]["type"] for entry in found} == {2}

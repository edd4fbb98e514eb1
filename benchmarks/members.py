"""Thousands of static members. `benchmarks/members.c` makes them join; this module prepares and removes them."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import Final

from benchmarks.load import program
from benchmarks.measure import per_million
from benchmarks.proc import allow_files
from benchmarks.servers import Server
from benchmarks.wire import Wire, expect_none
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)

SESSION_MS: Final = 300_000
"""Longer than any round, so that no session expires while a member waits for its turn."""
TOPIC: Final = "orders"
PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "range"
SUBSCRIPTION: Final = encode_subscription(Subscription([TOPIC]))
ASSIGNMENT: Final = encode_assignment(Assignment([TopicPartitions(TOPIC, [0])]))

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
_DESCRIBE_VERSION: Final = 5
_LEAVE_VERSION: Final = 5
PATIENCE_SECONDS: Final = 60
"""For the connections, and then for the group. Kafka's own clients time out after half of it."""
CONNECT_SECONDS: Final = 60


def join_all(
    server: Server, group: str, count: int, heartbeat_ms: int, patience_seconds: int = PATIENCE_SECONDS
) -> dict[str, float]:
    """Makes `count` static members join and waits until the group is stable. The members stay in the group."""
    with Wire(server) as wire:
        wire.wait_for_group(group)
    allow_files(count)
    numbers = (server.address[1], server.pid, group, count, SESSION_MS, heartbeat_ms, patience_seconds)
    done = subprocess.run(
        [program("members"), *map(str, numbers)],
        input=struct.pack(">H", len(SUBSCRIPTION)) + SUBSCRIPTION + ASSIGNMENT,
        capture_output=True,
        timeout=CONNECT_SECONDS + 2 * patience_seconds,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the members failed: {done.stderr.decode().strip()}; {_last_state(server, group)}")
    said = json.loads(done.stdout)
    server_cpu = said["server_cpu_seconds"]
    described = describe(server, group)
    if described.group_state != "Stable" or len(described.members) != count:
        raise RuntimeError(f"{len(described.members)} of {count} members, and the group is {described.group_state}")
    return {
        "members": count,
        "seconds": said["seconds"],
        "generations": said["generation"],
        "requests": said["joins"] + said["syncs"] + said["heartbeats"],
        "server_cpu_s": server_cpu,
        "client_cpu_s": said["cpu_seconds"],
        "server_cpu_per_million": per_million(server_cpu, count),
    }


def describe(server: Server, group: str) -> DescribedGroup:
    with Wire(server) as wire:
        described: DescribedGroup = wire.ask(DescribeGroupsRequest([group]), _DESCRIBE_VERSION).groups[0]
    expect_none(described.error_code, "DescribeGroups")
    return described


def _last_state(server: Server, group: str) -> str:
    """The server's description of a group that did not become stable, for the failure report."""
    try:
        described = describe(server, group)
    except (OSError, RuntimeError) as reason:
        return f"the server does not describe the group: {reason}"
    return f"the server describes the group as {described.group_state} with {len(described.members)} members"


def remove_all(server: Server, group: str) -> None:
    """Removes static members as an admin does, in one LeaveGroup."""
    entries = [MemberIdentity("", member.group_instance_id) for member in describe(server, group).members]
    with Wire(server) as wire:
        response = wire.ask(LeaveGroupRequest(group, members=entries), _LEAVE_VERSION)
    expect_none(response.error_code, "LeaveGroup")


def join_alone(wire: Wire, group: str) -> tuple[str, int]:
    """The only member of a group: its member id and generation."""
    offered = [JoinGroupRequestProtocol(PROTOCOL, SUBSCRIPTION)]
    joined = wire.ask(
        JoinGroupRequest(group, SESSION_MS, SESSION_MS, "", f"instance-of-{group}", PROTOCOL_TYPE, offered),
        JOIN_VERSION,
    )
    expect_none(joined.error_code, "JoinGroup")
    synced = wire.ask(
        SyncGroupRequest(
            group,
            joined.generation_id,
            joined.member_id,
            f"instance-of-{group}",
            PROTOCOL_TYPE,
            PROTOCOL,
            [SyncGroupRequestAssignment(joined.member_id, ASSIGNMENT)],
        ),
        SYNC_VERSION,
    )
    expect_none(synced.error_code, "SyncGroup")
    return joined.member_id, joined.generation_id

"""A group as rows of a table and as JSON. The first columns are kafka-consumer-groups' own, so that habits and scripts
hold; ours come after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.moments import moment
from holdfast.cli.output import Cell

if TYPE_CHECKING:
    from holdfast.client.descriptions import GroupDescription, MemberDescription, PartitionLag
    from holdfast.client.history import LastRebalance

OFFSET_COLUMNS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
    "INSTANCE-ID",
)
MEMBER_COLUMNS: Final = (
    "GROUP",
    "CONSUMER-ID",
    "INSTANCE-ID",
    "HOST",
    "CLIENT-ID",
    "#PARTITIONS",
    "ASSIGNMENT",
)
STATE_COLUMNS: Final = (
    "GROUP",
    "COORDINATOR (ID)",
    "ASSIGNMENT-STRATEGY",
    "STATE",
    "#MEMBERS",
    "GENERATION",
    "LAST-REBALANCE",
    "CAUSE",
)

# -- tables ------------------------------------------------------------------------------------------------------------


def offset_rows(group: GroupDescription, lags: Sequence[PartitionLag]) -> list[Sequence[Cell]]:
    """One for every partition and owner of it, and one for every member that has nothing."""
    rows: list[Sequence[Cell]] = []
    for one in lags:
        offsets = (group.group_id, one.topic, one.partition, one.committed, one.end, one.lag)
        rows += [(*offsets, *_who(owner)) for owner in one.owners or (None,)]
    idle = [member for member in group.members if not any(member.partitions.values())]
    return rows + [(group.group_id, None, None, None, None, None, *_who(member)) for member in idle]


def _who(member: MemberDescription | None) -> tuple[Cell, Cell, Cell, Cell]:
    if member is None:
        return None, None, None, None
    return member.member_id, member.host, member.client_id, member.group_instance_id


def member_rows(group: GroupDescription) -> list[Sequence[Cell]]:
    return [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            sum(len(numbers) for numbers in member.partitions.values()),
            assignment_text(member),
        )
        for member in group.members
    ]


def assignment_text(member: MemberDescription) -> str:
    """As kafka-consumer-groups writes it: topic(0,1), other(2)."""
    return ", ".join(
        f"{topic}({','.join(map(str, sorted(numbers)))})" for topic, numbers in sorted(member.partitions.items())
    )


def state_row(group: GroupDescription, last: LastRebalance | None) -> Sequence[Cell]:
    node = group.coordinator
    return (
        group.group_id,
        f"{node.host}:{node.port} ({node.node_id})" if node is not None else None,
        group.protocol,
        group.state,
        len(group.members),
        None if last is None else last.generation,
        None if last is None or last.at_ms is None else moment(last.at_ms),
        None if last is None else cause_text(last),
    )


def cause_text(last: LastRebalance) -> str | None:
    if last.cause is None:
        return None
    who = f" ({last.member})" if last.member else ""
    return f"{last.cause}{who}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def group_json(group: GroupDescription) -> dict[str, Any]:
    node = group.coordinator
    return {
        "group_id": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": None if node is None else {"node_id": node.node_id, "host": node.host, "port": node.port},
        "member_count": len(group.members),
    }


def members_json(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        _who_json(member)
        | {
            "topics": sorted(member.topics),
            "partitions": {topic: sorted(numbers) for topic, numbers in sorted(member.partitions.items())},
        }
        for member in group.members
    ]


def offsets_json(lags: Sequence[PartitionLag]) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "current_offset": one.committed,
            "log_end_offset": one.end,
            "lag": one.lag,
            "owners": [_who_json(owner) for owner in one.owners],
        }
        for one in lags
    ]


def state_json(last: LastRebalance | None) -> dict[str, Any]:
    if last is None:
        return {"generation": None, "last_rebalance": None}
    rebalance = {
        "at_ms": last.at_ms,
        "cause": last.cause,
        "member": last.member,
        "reason": last.reason,
        "stood_still_ms": last.stood_still_ms,
    }
    return {"generation": last.generation, "last_rebalance": None if last.at_ms is None else rebalance}


def _who_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
    }

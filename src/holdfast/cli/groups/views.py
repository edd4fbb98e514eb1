"""A group as rows of a table and as JSON. The first columns are those of kafka-consumer-groups, so that scripts keep
working; Holdfast's follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.groups.roles import arrived_count, not_yet_members, roles, standby_count
from holdfast.cli.output import Cell
from holdfast.cli.times import format_time
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE

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
    "ROLE",
    "ASSIGNMENT",
)
STATE_COLUMNS: Final = (
    "GROUP",
    "COORDINATOR (ID)",
    "ASSIGNMENT-STRATEGY",
    "STATE",
    "#MEMBERS",
    "GENERATION",
    "EPOCH",
    "STANDBYS",
    "EXPECTED",
    "TARGET",
    "LAST-REBALANCE",
    "CAUSE",
)

# -- tables ------------------------------------------------------------------------------------------------------------


def offset_rows(group: GroupDescription, lags: Sequence[PartitionLag]) -> list[Sequence[Cell]]:
    """A row for each partition and owner, and one for each member without partitions."""
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
    """A row for each member, and one for each registered member that has not joined yet."""
    has = roles(group)
    rows: list[Sequence[Cell]] = [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            partition_count(group, member),
            has.get(member.member_id),
            assignment_text(member),
        )
        for member in group.members
    ]
    return rows + [
        (group.group_id, None, name, None, None, None, role, None) for name, role in not_yet_members(group).items()
    ]


def partition_count(group: GroupDescription, member: MemberDescription) -> int | None:
    """None in a group of another protocol type, such as Kafka Connect's, whose members are not assigned partitions."""
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        return None
    return sum(len(numbers) for numbers in member.partitions.values())


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
        _generation(group, last),
        *_extension_cells(group),
        None if last is None or last.at_ms is None else format_time(last.at_ms),
        None if last is None else cause_text(last),
    )


def _generation(group: GroupDescription, last: LastRebalance | None) -> int | None:
    if group.extensions is not None:
        return group.extensions.generation
    return None if last is None else last.generation


def _extension_cells(group: GroupDescription) -> tuple[Cell, Cell, Cell, Cell]:
    found = group.extensions
    if found is None:
        return None, None, None, None
    count = len(found.expected)
    awaited: Cell = f"{count} ({arrived_count(group)} arrived)" if count else 0
    return found.epoch, standby_count(group), awaited, found.target_size


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
    has = roles(group)
    return [
        _who_json(member)
        | {
            "role": has.get(member.member_id),
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


def expected_json(group: GroupDescription) -> list[dict[str, Any]] | None:
    """None if the server is not Holdfast."""
    if group.extensions is None:
        return None
    return [
        {"instance_id": one.instance_id, "deadline_ms": one.deadline_ms, "arrived": one.arrived}
        for one in group.extensions.expected
    ]


def state_json(group: GroupDescription, last: LastRebalance | None) -> dict[str, Any]:
    found = group.extensions
    return {
        "generation": _generation(group, last),
        "epoch": None if found is None else found.epoch,
        "leader": None if found is None else found.leader or None,
        "settled": None if found is None else found.settled,
        "standbys": None if found is None else standby_count(group),
        "expected": expected_json(group),
        "target_size": None if found is None else found.target_size,
        "standby_takeover_ms": None if found is None else found.standby_takeover_ms,
        "vacancies": None if found is None else found.vacancies,
        "last_rebalance": None if last is None or last.at_ms is None else _rebalance_json(last),
    }


def _rebalance_json(last: LastRebalance) -> dict[str, Any]:
    return {
        "at_ms": last.at_ms,
        "cause": last.cause,
        "cause_code": last.cause_code,
        "member": last.member,
        "reason": last.reason,
        "unassigned_ms": last.unassigned_ms,
    }


def _who_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
    }

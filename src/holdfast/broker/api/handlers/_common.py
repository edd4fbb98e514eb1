"""Helpers of several handlers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.broker.api.replies import PartialError
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.storage.topics import OFFSETS_TOPIC
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.wire.error_codes import ErrorCode


def check_leader_epoch(current_leader_epoch: int) -> ErrorCode:
    """KIP-320: a client that knows a later leader epoch, or only an earlier one, must refresh its metadata."""
    if current_leader_epoch == -1:
        return ErrorCode.NONE
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if current_leader_epoch == LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH


def reject_internal_topic(name: str, what: str) -> None:
    """Clients may not create, grow or delete the topics of group records and group events: the partition of a group
    depends on the number of partitions, and the event log has one. (In Kafka only the tools reject it.)"""
    if name in (OFFSETS_TOPIC, LEDGER_TOPIC):
        raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{what} of internal topic {name} is prohibited.")


def check_assignment(broker_ids: Sequence[int], node_id: int) -> None:
    """Validates the replicas that a client requests for a partition. With one broker, only one list is valid."""

    def refused(reason: str) -> PartialError:
        return PartialError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")

    if not broker_ids:
        raise refused("an empty replica list.")
    # The error that Kafka finds first in sorted order; not sorted here, because a client may name half a million.
    lowest = min(broker_ids)
    if lowest == node_id:
        if broker_ids.count(node_id) > 1:
            raise refused(f"the broker {node_id} more than once.")
        lowest = min((broker_id for broker_id in broker_ids if broker_id != node_id), default=node_id)
    if lowest != node_id:
        raise refused(f"broker {lowest}, but no such broker is registered.")

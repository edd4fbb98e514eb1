"""What several handlers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import Refused
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.security.acls import OPERATIONS, Operation, ResourceType
from holdfast.broker.topics import OFFSETS_TOPIC
from holdfast.coordinator.ledger import LEDGER_TOPIC
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.security.user_desk import Access


def _all_of(kind: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS[kind])


ALL_TOPIC_OPERATIONS: Final = _all_of(ResourceType.TOPIC)
"""Bit n stands for Kafka's AclOperation n: what a client is told it may do where nothing is forbidden."""
ALL_GROUP_OPERATIONS: Final = _all_of(ResourceType.GROUP)
ALL_CLUSTER_OPERATIONS: Final = _all_of(ResourceType.CLUSTER)


def topic_operations(access: Access | None, name: str) -> int:
    return ALL_TOPIC_OPERATIONS if access is None else access.operations(ResourceType.TOPIC, name)


def group_operations(access: Access | None, name: str) -> int:
    return ALL_GROUP_OPERATIONS if access is None else access.operations(ResourceType.GROUP, name)


def cluster_operations(access: Access | None) -> int:
    """As Kafka: whoever may not describe the cluster hears of nothing that it may do to it."""
    if access is None:
        return ALL_CLUSTER_OPERATIONS
    return access.operations(ResourceType.CLUSTER) if access.cluster(Operation.DESCRIBE) else 0


def check_leader_epoch(current_leader_epoch: int) -> ErrorCode:
    """KIP-320: a client that knows a later leader than us, or only an earlier one, must look at the metadata again."""
    if current_leader_epoch == -1:
        return ErrorCode.NONE
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if current_leader_epoch == LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH


def refuse_the_journal(name: str, what: str) -> None:
    """No client makes, grows or deletes the topic that keeps the groups' facts, nor the ledger: which partition has
    those of a group follows from their number, and the ledger has one. (Kafka leaves it to its tools to say so.)"""
    if name in (OFFSETS_TOPIC, LEDGER_TOPIC):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{what} of internal topic {name} is prohibited.")


def check_assignment(broker_ids: Sequence[int], node_id: int) -> None:
    """A partition's replicas as the client wants them: with one broker there is one good answer."""

    def refused(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")

    if not broker_ids:
        raise refused("an empty replica list.")
    # What Kafka finds first when it goes through them in order; not sorted, because a client may name half a million.
    lowest = min(broker_ids)
    if lowest == node_id:
        if broker_ids.count(node_id) > 1:
            raise refused(f"the broker {node_id} more than once.")
        lowest = min((broker_id for broker_id in broker_ids if broker_id != node_id), default=node_id)
    if lowest != node_id:
        raise refused(f"broker {lowest}, but no such broker is registered.")

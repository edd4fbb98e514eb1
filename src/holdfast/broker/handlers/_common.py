"""What several handlers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.broker.dispatch import Refused
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.wire.error_codes import ErrorCode

ALL_TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""Bit n stands for Kafka's AclOperation n. Nothing is forbidden, so these are all that a topic knows: read, write,
create, delete, alter, describe, describe configs, alter configs."""

ALL_GROUP_OPERATIONS: Final = 0b1101_0100_1000
"""Read, delete, describe, describe configs, alter configs."""

ALL_CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, describe configs, alter configs, idempotent write."""


def check_leader_epoch(current_leader_epoch: int) -> ErrorCode:
    """KIP-320: a client that knows a later leader than us, or only an earlier one, must look at the metadata again."""
    if current_leader_epoch == -1:
        return ErrorCode.NONE
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if current_leader_epoch == LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH


def check_assignment(broker_ids: Sequence[int], node_id: int) -> None:
    """A partition's replicas as the client wants them: with one broker there is one good answer."""

    def refused(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")

    if not broker_ids:
        raise refused("an empty replica list.")
    previous = None
    for broker_id in sorted(broker_ids):
        if broker_id != node_id:
            raise refused(f"broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise refused(f"the broker {broker_id} more than once.")
        previous = broker_id

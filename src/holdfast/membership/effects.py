"""The effects that a membership requests from its driver: requests to send, and work of the application.

The driver takes the effects after each call, performs them in order, and reports the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.membership.failures import Failure
from holdfast.membership.requests import CoordinatorNode
from holdfast.types import TopicPartition
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.message import Api


class Channel(Enum):
    """The connection on which a request is sent. A broker responds to one connection in order, so a pending join would
    block the heartbeats and commits behind it. They have a separate channel."""

    BOOTSTRAP = "any broker"
    JOIN = "joins and syncs"
    COORDINATOR = "everything else"


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request, then call `response_received` or `request_failed` with its id."""

    request_id: int
    channel: Channel
    api: Api
    build: Callable[[int], Any]
    """Builds the message for the version that both sides support."""
    timeout_ms: int
    max_version: int
    """The highest version to use, even if both sides support a higher one."""


@dataclass(frozen=True, slots=True)
class ConnectCoordinator:
    """Connect to the coordinator, then call `coordinator_connected` or `coordinator_unreachable`."""

    coordinator: CoordinatorNode


@dataclass(frozen=True, slots=True)
class CloseChannels:
    """Close these channels, and call `request_failed` for the requests in flight on them."""

    channels: tuple[Channel, ...]


@dataclass(frozen=True, slots=True)
class JoinPrepare:
    """Revoke partitions before a join, then call `join_prepared` with the attempt."""

    attempt: int
    lost: bool
    """The generation is lost. Other members may already own the partitions, so nothing can be committed."""


@dataclass(frozen=True, slots=True)
class LeaderElected:
    """Assign, then call `assignment_ready`, `assignment_failed` or `report_assignment_failure`."""

    generation_id: int
    protocol: str
    members: list[JoinGroupResponseMember] = field(repr=False)
    skip_assignment: bool
    """KIP-814: the assignment is unchanged. Monitor the topics of all members from now on."""


@dataclass(frozen=True, slots=True)
class JoinComplete:
    """The assignment of this member in this generation."""

    generation_id: int
    member_id: str
    protocol: str
    is_leader: bool
    assignment: bytes = field(repr=False)
    epoch: int | None = None
    """The assignment epoch, if the coordinator has one."""
    is_resync: bool = False
    """The leader's own assignment after a resync. The group has not rebalanced, and the assignment has only grown."""


@dataclass(frozen=True, slots=True)
class AssignmentFailed:
    """The leader of the generation could not assign, and this member rejoins."""

    generation_id: int
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class CommitCompleted:
    """A commit has ended. Without a `failure`, all partitions except those in `errors` are committed."""

    commit_id: int
    failure: Failure | None
    errors: dict[TopicPartition, Failure]


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """The coordinator has removed this member, or cannot be reached. No request is in flight."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The membership has ended."""

    failure: Failure


MembershipEvent = JoinPrepare | LeaderElected | JoinComplete | LeftGroup | Failed
"""The effects that are for the application."""
Effect = (
    SendRequest
    | ConnectCoordinator
    | CloseChannels
    | JoinPrepare
    | LeaderElected
    | JoinComplete
    | AssignmentFailed
    | CommitCompleted
    | LeftGroup
    | Failed
)

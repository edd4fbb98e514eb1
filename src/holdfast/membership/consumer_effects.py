"""The effects that a consumer coordinator requests from its driver.

The effects of the first kind have a result. Those of the second run the application's code. Those of the third are
commands for the membership; the driver hands them to the thread that owns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.assignors.interface import Cluster
from holdfast.membership.failures import Failure
from holdfast.membership.machine import Membership
from holdfast.types import TopicPartition
from holdfast.wire.apis.describe_groups import DescribedGroup

# -- with a result -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolveTopics:
    """The topics that the subscription's patterns match now: a frozenset of names."""


@dataclass(frozen=True, slots=True)
class FetchCluster:
    """These topics in the form for assignors: a `Cluster`."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class FetchStartOffsets:
    """The start offsets of these partitions, or None to try again at the next poll."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """The coordinator's description of the group, and the topics at that time: a `GroupView`, or None if no broker
    answers."""

    topics: frozenset[str] = frozenset()
    """No topics are fetched if this is empty."""
    if_unanswered: str = ""
    """The warning to log then."""


@dataclass(frozen=True, slots=True)
class GroupView:
    group: DescribedGroup
    cluster: Cluster


# -- in the application ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeforeRejoin:
    """This member rejoins and keeps these partitions."""

    staying: frozenset[TopicPartition]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class BeforeRevoke:
    """The last chance to commit."""

    partitions: Sequence[TopicPartition]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Every further call of the application fails with this."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class RaiseFailure:
    """As `RecordFailure`, and the current call fails, too."""

    failure: Failure
    cause: Exception | None = None


@dataclass(frozen=True, slots=True)
class LogWarning:
    message: str


# -- for the membership ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinPrepared:
    attempt: int
    protocols: Sequence[tuple[str, bytes]] = field(repr=False)

    def __call__(self, membership: Membership, now: int) -> None:
        membership.join_prepared(self.attempt, self.protocols, now)


@dataclass(frozen=True, slots=True)
class AssignmentReady:
    generation_id: int
    assignments: Mapping[str, bytes] = field(repr=False)

    def __call__(self, membership: Membership, now: int) -> None:
        membership.assignment_ready(self.generation_id, self.assignments, now)


@dataclass(frozen=True, slots=True)
class AssignorFailed:
    generation_id: int
    message: str

    def __call__(self, membership: Membership, _now: int) -> None:
        membership.assignment_failed(self.generation_id, self.message)


@dataclass(frozen=True, slots=True)
class ReportAssignorFailure:
    generation_id: int
    fault: int
    message: str

    def __call__(self, membership: Membership, now: int) -> None:
        membership.report_assignment_failure(self.generation_id, self.fault, self.message, now)


@dataclass(frozen=True, slots=True)
class Rejoin:
    reason: str

    def __call__(self, membership: Membership, now: int) -> None:
        membership.rejoin(self.reason, now)


@dataclass(frozen=True, slots=True)
class Resync:
    generation_id: int
    epoch: int
    assignments: Mapping[str, bytes] = field(repr=False)
    reason: str

    def __call__(self, membership: Membership, now: int) -> None:
        membership.resync(self.generation_id, self.epoch, self.assignments, self.reason, now)


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Send a Metadata request without waiting. The driver passes the response to `check_metadata` at a later poll."""

    topics: frozenset[str] | None
    """None requests all topics."""


MembershipCommand = JoinPrepared | AssignmentReady | AssignorFailed | ReportAssignorFailure | Rejoin | Resync
Query = ResolveTopics | FetchCluster | FetchStartOffsets | DescribeGroup
Callback = BeforeRejoin | BeforeRevoke | PartitionsRevoked | PartitionsLost | PartitionsAssigned
ConsumerEffect = Query | Callback | MembershipCommand | RequestMetadata | RecordFailure | RaiseFailure | LogWarning

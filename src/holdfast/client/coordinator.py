"""Questions to the coordinator of a group, for whoever can wait for the answer: offsets, descriptions, removals.

The coordinator may move, load or restart meanwhile; then it is looked for and asked again until the deadline (a point
of `time.monotonic()`). Driven by the thread that drives the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.connection import Connection
from holdfast.client.errors import ConnectionFailed, GroupError, HoldfastError, UnsupportedVersion, error_code
from holdfast.client.network import Network
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribedGroup, DescribeGroupsRequest
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_ELSEWHERE: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
HIGHEST_WITH_TOPIC_NAMES: Final = 9
"""OffsetFetch v10 names topics by id."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1


def has_extensions(connection: Connection) -> bool:
    """Whether the broker is a Holdfast that knows the private APIs and tagged fields. No other is ever sent one."""
    return connection.supports(ADD_MEMBERS_TO_GROUP)


class GroupCoordinator:
    """The coordinator of one group, wherever it is."""

    def __init__(self, network: Network, group_id: str) -> None:
        self.group_id = group_id
        self._network = network
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hang_up()

    def ask(
        self,
        api: Api,
        build: Callable[[int], Any],
        error_of: Callable[[Any], int],
        deadline: float,
        highest: int | None = None,
        *,
        needs: str | None = None,
    ) -> Any:
        """The answer. One that says to ask again is not an answer, until the deadline has come. `needs` says what is
        asked of a Holdfast, where no other server can: then no other is asked."""
        while True:
            response: Any = None
            try:
                connection = self._connected(deadline)
                if needs is not None and not has_extensions(connection):
                    raise UnsupportedVersion(
                        f"{needs}, which the broker at {connection.address} does not have",
                        code=ErrorCode.UNSUPPORTED_VERSION,
                        fatal=False,  # whoever asked goes on with what the broker has
                    )
                version = connection.version_of(api, highest)
                until = min(deadline, time.monotonic() + self._network.settings.request_timeout_s)
                response = connection.ask(build(version), until, version)
            except ConnectionFailed as failure:
                self.hang_up()
                trouble: HoldfastError = failure
            else:
                code = error_of(response)
                if code not in ASK_AGAIN:
                    return response
                trouble = GroupError(f"the coordinator of group {self.group_id!r} is not ready", code=error_code(code))
                if code in _ELSEWHERE:
                    self.hang_up()
            if self._network.closed or time.monotonic() + self._network.settings.retry_backoff_s >= deadline:
                raise trouble
            self._network.pause(self._network.settings.retry_backoff_s)

    def hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self, deadline: float) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._network.coordinator(self.group_id, deadline)
        return self._connection

    # -- what consumers and operators ask ------------------------------------------------------------------------------

    def fetch_offsets(
        self, partitions: Collection[TopicPartition] | None, deadline: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, of these partitions or of all. Partitions without an offset are left out."""
        response = self.ask(
            OFFSET_FETCH, _fetch_request(self.group_id, partitions), _fetch_error, deadline, HIGHEST_WITH_TOPIC_NAMES
        )
        self._refuse(_fetch_error(response))
        return dict(_committed(response))

    def describe(self, deadline: float) -> DescribedGroup:
        """With what Holdfast knows of it beyond Kafka, if it is a Holdfast."""

        def build(_version: int) -> DescribeGroupsRequest:
            extensions = self._connection is not None and has_extensions(self._connection)
            return DescribeGroupsRequest([self.group_id], include_extensions=extensions)

        response = self.ask(DESCRIBE_GROUPS, build, lambda answer: int(answer.groups[0].error_code), deadline)
        described: DescribedGroup = response.groups[0]
        self._refuse(described.error_code)
        return described

    def _refuse(self, code: int) -> None:
        if code:
            known = error_code(code)
            raise GroupError(f"the coordinator of group {self.group_id!r} answers {known.name}", code=known)


def _fetch_request(group_id: str, partitions: Collection[TopicPartition] | None) -> Callable[[int], OffsetFetchRequest]:
    wanted: dict[str, list[int]] | None = None
    if partitions is not None:
        wanted = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)

    def build(version: int) -> OffsetFetchRequest:
        # An offset that an open transaction may still change is not settled (KIP-447); v7 can insist on settled ones.
        if version >= 8:
            entries = None
            if wanted is not None:
                entries = [OffsetFetchRequestGroupTopic(name, partition_indexes=of) for name, of in wanted.items()]
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=entries)], require_stable=True)
        topics = None if wanted is None else [OffsetFetchRequestTopic(name, of) for name, of in wanted.items()]
        return OffsetFetchRequest(group_id, topics, require_stable=version >= 7)

    return build


def _fetch_error(response: OffsetFetchResponse) -> int:
    group = response.groups[0] if response.groups else response
    if group.error_code:
        return group.error_code
    return next((entry.error_code for topic in group.topics for entry in topic.partitions if entry.error_code), 0)


def _committed(response: OffsetFetchResponse) -> Mapping[TopicPartition, CommittedOffset]:
    group = response.groups[0] if response.groups else response
    return {
        (topic.name, entry.partition_index): CommittedOffset(
            entry.committed_offset, entry.metadata, entry.committed_leader_epoch
        )
        for topic in group.topics
        for entry in topic.partitions
        if entry.committed_offset >= 0
    }

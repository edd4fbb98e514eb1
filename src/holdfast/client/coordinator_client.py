"""Blocking requests to the coordinator of a group: offsets, descriptions, removals.

The coordinator may move, load or restart meanwhile. The client then finds it again and repeats the request until the
deadline (a time of the client's clock). Use it only in the thread that uses the cluster client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.client.errors import ConnectionFailed, GroupError, HoldfastError, UnsupportedVersion, error_code
from holdfast.types import TopicPartition
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

RETRIED_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_MOVED_ERRORS: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
MAX_VERSION_WITH_TOPIC_NAMES: Final = 9
"""OffsetFetch v10 names topics by id."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1


def has_extensions(connection: Connection) -> bool:
    """Whether the broker supports Holdfast's own APIs and tagged fields. They are never sent to other brokers."""
    return connection.supports(ADD_MEMBERS_TO_GROUP)


class CoordinatorClient:
    """The coordinator of one group."""

    def __init__(self, network: ClusterClient, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = network
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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
        """The response. Retriable errors are retried until the deadline. `needs` names a feature that only Holdfast
        has; then the request is not sent to another server."""
        while True:
            response: Any = None
            try:
                connection = self._connected(deadline)
                if needs is not None and not has_extensions(connection):
                    raise UnsupportedVersion(
                        f"{needs}, which the broker at {connection.address} does not have",
                        code=ErrorCode.UNSUPPORTED_VERSION,
                        fatal=False,  # the caller continues without it
                    )
                version = connection.version_of(api, highest)
                until = min(deadline, self._cluster.clock.now() + self._cluster.settings.request_timeout_s)
                response = connection.ask(build(version), until, version)
            except ConnectionFailed as failure:
                self.close()
                trouble: HoldfastError = failure
            else:
                code = error_of(response)
                if code not in RETRIED_ERRORS:
                    return response
                trouble = GroupError(f"the coordinator of group {self.group_id!r} is not ready", code=error_code(code))
                if code in _MOVED_ERRORS:
                    self.close()
            if self._cluster.closed or not self._cluster.pause_before_retry(deadline):
                raise trouble

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self, deadline: float) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._cluster.coordinator(self.group_id, deadline)
        return self._connection

    # -- offsets and descriptions --------------------------------------------------------------------------------------

    def fetch_offsets(
        self, partitions: Collection[TopicPartition] | None, deadline: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of these partitions, or of all. Partitions without an offset are omitted."""
        response = self.ask(
            OFFSET_FETCH,
            _fetch_request(self.group_id, partitions),
            _fetch_error,
            deadline,
            MAX_VERSION_WITH_TOPIC_NAMES,
        )
        self._raise_for(_fetch_error(response))
        return dict(_committed(response))

    def describe(self, deadline: float) -> DescribedGroup:
        """Includes Holdfast's additional fields if the broker is Holdfast."""

        def build(_version: int) -> DescribeGroupsRequest:
            extensions = self._connection is not None and has_extensions(self._connection)
            return DescribeGroupsRequest([self.group_id], include_extensions=extensions)

        response = self.ask(DESCRIBE_GROUPS, build, lambda answer: int(answer.groups[0].error_code), deadline)
        described: DescribedGroup = response.groups[0]
        self._raise_for(described.error_code)
        return described

    def _raise_for(self, code: int) -> None:
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
        # KIP-447: from v7 on, the request can require stable offsets, which no open transaction can change.
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

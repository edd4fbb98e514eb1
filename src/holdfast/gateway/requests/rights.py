"""The rights of clients on groups, by Kafka's own authorizer.

The gateway asks Kafka on the client's own upstream connection, so with its principal, in requests that change nothing:
Kafka checks the right before it looks for the group. A decision is kept for a minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import Final, NamedTuple

from holdfast.broker.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.authorization.authorizer import AclQuery, ClientPermissions
from holdfast.broker.config.schema import ConfigResourceType
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.ports import RoutedClient
from holdfast.gateway.state.codes import error_name
from holdfast.wire.apis.describe_cluster import DescribeClusterRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.apis.offset_delete import OffsetDeleteRequest
from holdfast.wire.error_codes import ErrorCode

Right = tuple[Operation, ResourceType, str]
"""An operation on a resource, with its name."""

KEPT_SECONDS: Final = 60.0
KEPT_WHILE_SLOW_SECONDS: Final = 3_600.0
SLOW_SECONDS: Final = 0.5
"""While Kafka needs longer for a question, older decisions are valid as well. A question would block the connection of
the client, and with it the heartbeats of a member."""
MAX_KEPT: Final = 20_000
NAMES_PER_REQUEST: Final = 1_000

_DENIED: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_ALLOWED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors of requests that have passed the authorizer."""
_NOBODY: Final = "holdfast-gateway-rights"
"""A member id that no group has."""


class _Decision(NamedTuple):
    is_allowed: bool
    at: float


class KafkaAuthorizer:
    """Knows only the decisions that were fetched; `fetch` comes before the check of each request."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._decisions: dict[tuple[str, Right], _Decision] = {}
        self._asking_since: dict[object, float] = {}
        """The questions that Kafka has not answered yet, oldest first."""

    # -- as the checks of group requests use it ------------------------------------------------------------------------

    def permissions_of(self, principal: str, host: str) -> ClientPermissions:
        return ClientPermissions(self, principal, host)

    def is_allowed(self, query: AclQuery) -> bool:
        principal, _, operation, kind, name = query
        found = self._decisions.get((principal, (operation, kind, name)))
        return found is not None and found.is_allowed

    is_allowed_unlogged = is_allowed

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:  # noqa: ARG002
        return False

    # -- asking Kafka --------------------------------------------------------------------------------------------------

    def missing(self, client: RoutedClient, wanted: Iterable[Right]) -> list[Right]:
        """The rights that have to be fetched."""
        decisions, principal, now = self._decisions, client.session.principal, self._now()
        oldest = next(iter(self._asking_since.values()), now)
        kept = KEPT_SECONDS if now - oldest < SLOW_SECONDS else KEPT_WHILE_SLOW_SECONDS
        return [one for one in wanted if (found := decisions.get((principal, one))) is None or found.at + kept < now]

    async def fetch(self, client: RoutedClient, wanted: Collection[Right]) -> None:
        """Raises KafkaUnreachable, unless there are older decisions about all of the rights."""
        principal, question = client.session.principal, object()
        self._asking_since[question] = self._now()
        try:
            await self._fetch(client, wanted)
        except KafkaUnreachable:
            if not all((principal, one) in self._decisions for one in wanted):
                raise
        finally:
            del self._asking_since[question]

    async def _fetch(self, client: RoutedClient, wanted: Collection[Right]) -> None:
        principal = client.session.principal
        names: defaultdict[tuple[Operation, ResourceType], list[str]] = defaultdict(list)
        for operation, kind, name in dict.fromkeys(wanted):
            names[operation, kind].append(name)
        for (operation, kind), of_kind in names.items():
            ask = _QUESTIONS[operation, kind]
            for start in range(0, len(of_kind), NAMES_PER_REQUEST):
                for name, is_allowed in (await ask(client, of_kind[start : start + NAMES_PER_REQUEST])).items():
                    self._keep((principal, (operation, kind, name)), is_allowed)

    def _keep(self, key: tuple[str, Right], is_allowed: bool) -> None:
        decisions = self._decisions
        decisions.pop(key, None)  # so that the order is that of the answers
        decisions[key] = _Decision(is_allowed, self._now())
        while len(decisions) > MAX_KEPT:
            del decisions[next(iter(decisions))]


def _passed(code: int) -> bool:
    """Whether the authorizer has allowed a request with this error. Raises KafkaUnreachable if nobody can tell."""
    if code in _ALLOWED:
        return True
    if code in _DENIED:
        return False
    raise KafkaUnreachable(f"Kafka answers {error_name(code)} to a question for the rights of a client")


# -- one question for each right ---------------------------------------------------------------------------------------

Question = Callable[[RoutedClient, list[str]], Awaitable[Mapping[str, bool]]]


async def _describe_groups(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
    response = await client.ask(DescribeGroupsRequest(groups=names), 4)
    return {group.group_id: _passed(group.error_code) for group in response.groups}


async def _read_groups(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
    """A heartbeat of an unknown member has no effect."""
    return {name: _passed((await client.ask(HeartbeatRequest(name, -1, _NOBODY), 3)).error_code) for name in names}


async def _delete_groups(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
    """OffsetDelete, which needs the same right, without any offsets."""
    return {name: (await client.ask(OffsetDeleteRequest(group_id=name), 0)).error_code not in _DENIED for name in names}


async def _describe_group_configs(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
    resources = [DescribeConfigsResource(ConfigResourceType.GROUP, name, []) for name in names]
    response = await client.ask(DescribeConfigsRequest(resources=resources), 4)
    return {result.resource_name: result.error_code == ErrorCode.NONE for result in response.results}


async def _alter_group_configs(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
    resources = [IncrementalAlterConfigsResource(ConfigResourceType.GROUP, name, []) for name in names]
    response = await client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1)
    return {result.resource_name: result.error_code == ErrorCode.NONE for result in response.responses}


def _topics(operation: Operation) -> Question:
    async def ask(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response = await client.ask(request, 9)
        return {
            topic.name: _passed(topic.error_code)
            and (
                # A topic that does not exist: its commit gets another error.
                topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                or bool(topic.topic_authorized_operations & 1 << operation)
            )
            for topic in response.topics
        }

    return ask


async def _describe_cluster(client: RoutedClient, names: list[str]) -> Mapping[str, bool]:  # noqa: ARG001
    response = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    return {CLUSTER_NAME: bool(response.cluster_authorized_operations & 1 << Operation.DESCRIBE)}


_QUESTIONS: Final[Mapping[tuple[Operation, ResourceType], Question]] = {
    (Operation.DESCRIBE, ResourceType.GROUP): _describe_groups,
    (Operation.READ, ResourceType.GROUP): _read_groups,
    (Operation.DELETE, ResourceType.GROUP): _delete_groups,
    (Operation.DESCRIBE_CONFIGS, ResourceType.GROUP): _describe_group_configs,
    (Operation.ALTER_CONFIGS, ResourceType.GROUP): _alter_group_configs,
    (Operation.READ, ResourceType.TOPIC): _topics(Operation.READ),
    (Operation.DESCRIBE, ResourceType.TOPIC): _topics(Operation.DESCRIBE),
    (Operation.DESCRIBE, ResourceType.CLUSTER): _describe_cluster,
}

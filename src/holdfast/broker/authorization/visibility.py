"""What a response may contain, for requests that are answered in part rather than rejected.

Metadata and similar responses contain many topics, with the operations that the client may perform on each. Their
handlers use the `Visibility` that the check of the API has chosen.
"""

from __future__ import annotations

from typing import Final, Protocol

from holdfast.broker.authorization.acls import OPERATIONS, Operation, ResourceType
from holdfast.broker.authorization.authorizer import ClientPermissions


class Visibility(Protocol):
    @property
    def is_complete(self) -> bool:
        """Every client sees the same."""

    def lists_topic(self, name: str) -> bool:
        """Whether a list of all topics contains it. An omission is not a denial and is not logged."""

    def may_describe_topic(self, name: str) -> bool: ...

    def may_read_topic(self, name: str) -> bool: ...

    def may_create_topic(self, name: str) -> bool: ...

    def topic_operations(self, name: str) -> int:
        """Bit n is Kafka's AclOperation n."""

    def group_operations(self, name: str) -> int: ...

    def cluster_operations(self) -> int: ...


def _all_of(kind: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS[kind])


class CompleteVisibility:
    """For a broker without an authorizer."""

    is_complete: Final = True
    _topic: Final = _all_of(ResourceType.TOPIC)
    _group: Final = _all_of(ResourceType.GROUP)
    _cluster: Final = _all_of(ResourceType.CLUSTER)

    def lists_topic(self, name: str) -> bool:  # noqa: ARG002  # the protocol's
        return True

    may_describe_topic = may_read_topic = may_create_topic = lists_topic

    def topic_operations(self, name: str) -> int:  # noqa: ARG002
        return self._topic

    def group_operations(self, name: str) -> int:  # noqa: ARG002
        return self._group

    def cluster_operations(self) -> int:
        return self._cluster


EVERYTHING: Final[Visibility] = CompleteVisibility()


class PermittedVisibility:
    """As far as the ACLs allow."""

    is_complete: Final = False

    def __init__(self, permissions: ClientPermissions) -> None:
        self._permissions = permissions

    def lists_topic(self, name: str) -> bool:
        return self._permissions.can_see(ResourceType.TOPIC, name)

    def may_describe_topic(self, name: str) -> bool:
        return self._permissions.topic(Operation.DESCRIBE, name)

    def may_read_topic(self, name: str) -> bool:
        return self._permissions.topic(Operation.READ, name)

    def may_create_topic(self, name: str) -> bool:
        return self._permissions.cluster(Operation.CREATE) or self._permissions.topic(Operation.CREATE, name)

    def topic_operations(self, name: str) -> int:
        return self._permissions.operations(ResourceType.TOPIC, name)

    def group_operations(self, name: str) -> int:
        return self._permissions.operations(ResourceType.GROUP, name)

    def cluster_operations(self) -> int:
        """As in Kafka: nothing for a client that may not describe the cluster."""
        allowed = self._permissions.cluster(Operation.DESCRIBE)
        return self._permissions.operations(ResourceType.CLUSTER) if allowed else 0

"""Requests that every client may send. The content of the response depends on the client's permissions."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.checks.base import AuthorizedRequest, check
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from holdfast.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from holdfast.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from holdfast.wire.apis.metadata import METADATA


@check(METADATA)
def metadata(authorized: AuthorizedRequest) -> Any:
    """DESCRIBE on each topic; CREATE on the topic or the cluster to create a missing one."""
    return authorized.proceed_with_visibility()


@check(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(authorized: AuthorizedRequest) -> Any:
    """DESCRIBE on each topic."""
    return authorized.proceed_with_visibility()


@check(DESCRIBE_PRODUCERS)
def describe_producers(authorized: AuthorizedRequest) -> Any:
    """READ on each topic. As in Kafka, the handler checks it after the topic's name and before its existence."""
    return authorized.proceed_with_visibility()


@check(DESCRIBE_CLUSTER)
def describe_cluster(authorized: AuthorizedRequest) -> Any:
    """Every client must know where to connect. The authorized operations require DESCRIBE on the cluster."""
    return authorized.proceed_with_visibility()

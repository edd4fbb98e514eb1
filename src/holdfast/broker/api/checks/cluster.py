"""Requests about the cluster as a whole: log directories, replicas, leaders, features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.broker.api.checks.base import CLUSTER_DENIED, MESSAGES, AuthorizedRequest, check
from holdfast.broker.api.handlers import elect_leaders as elect_leaders_handler
from holdfast.broker.authorization.acls import Operation
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from holdfast.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
from holdfast.wire.apis.describe_quorum import DESCRIBE_QUORUM, DescribeQuorumResponse
from holdfast.wire.apis.elect_leaders import ELECT_LEADERS
from holdfast.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesResponse
from holdfast.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from holdfast.wire.apis.update_features import UPDATE_FEATURES, UpdateFeaturesResponse

MESSAGE = MESSAGES[CLUSTER_DENIED]

# -- describe ----------------------------------------------------------------------------------------------------------


@check(DESCRIBE_LOG_DIRS)
def describe_log_dirs(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE):
        return authorized.proceed()
    return DescribeLogDirsResponse(error_code=CLUSTER_DENIED)  # below v3 there is no field for it, as in Kafka


@check(DESCRIBE_QUORUM)
def describe_quorum(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE):
        return authorized.proceed()
    return DescribeQuorumResponse(error_code=CLUSTER_DENIED, error_message=MESSAGE)


@check(LIST_CONFIG_RESOURCES)
def list_config_resources(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE_CONFIGS):
        return authorized.proceed()
    return ListConfigResourcesResponse(error_code=CLUSTER_DENIED)


@check(LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE):
        return authorized.proceed()
    return _repeated(authorized.request.topics or [])


def _repeated(wanted: Sequence[ListPartitionReassignmentsTopics]) -> Work[ListPartitionReassignmentsResponse]:
    """As in Kafka: the partitions of the request, with the error."""
    response = ListPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=MESSAGE)
    for topic in wanted:
        answered = OngoingTopicReassignment(topic.name)
        response.topics.append(answered)
        for index in topic.partition_indexes:
            answered.partitions.append(OngoingPartitionReassignment(index))
            yield
        yield
    return response


# -- alter -------------------------------------------------------------------------------------------------------------


@check(ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    return _not_altered(authorized.request.topics)


def _not_altered(wanted: Sequence[ReassignableTopic]) -> Work[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=MESSAGE)
    for topic in wanted:
        answered = ReassignableTopicResponse(topic.name)
        response.responses.append(answered)
        for one in topic.partitions:
            answered.partitions.append(ReassignablePartitionResponse(one.partition_index, CLUSTER_DENIED, MESSAGE))
            yield
        yield
    return response


@check(ELECT_LEADERS)
def elect_leaders(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    wanted, version = authorized.request.topic_partitions or [], authorized.version
    return elect_leaders_handler.refused(wanted, CLUSTER_DENIED, MESSAGE, version)


@check(UPDATE_FEATURES)
def update_features(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    return UpdateFeaturesResponse(error_code=CLUSTER_DENIED, error_message=MESSAGE)

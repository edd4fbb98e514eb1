"""Who may see and change what belongs to the cluster as a whole: directories, replicas, leaders, features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.broker.guards._guarding import CLUSTER_REFUSED, MESSAGES, Asking, guards
from holdfast.broker.handlers import elect_leaders as elect_leaders_handler
from holdfast.broker.security.acls import Operation
from holdfast.broker.slices import Work
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

MESSAGE = MESSAGES[CLUSTER_REFUSED]

# -- looking -----------------------------------------------------------------------------------------------------------


@guards(DESCRIBE_LOG_DIRS)
def describe_log_dirs(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE):
        return asking.go_on()
    return DescribeLogDirsResponse(error_code=CLUSTER_REFUSED)  # below v3 there is no room for it, as in Kafka


@guards(DESCRIBE_QUORUM)
def describe_quorum(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE):
        return asking.go_on()
    return DescribeQuorumResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGE)


@guards(LIST_CONFIG_RESOURCES)
def list_config_resources(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE_CONFIGS):
        return asking.go_on()
    return ListConfigResourcesResponse(error_code=CLUSTER_REFUSED)


@guards(LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE):
        return asking.go_on()
    return _repeated(asking.request.topics or [])


def _repeated(wanted: Sequence[ListPartitionReassignmentsTopics]) -> Work[ListPartitionReassignmentsResponse]:
    """As Kafka: with the error, what was asked for."""
    response = ListPartitionReassignmentsResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGE)
    for topic in wanted:
        answered = OngoingTopicReassignment(topic.name)
        response.topics.append(answered)
        for index in topic.partition_indexes:
            answered.partitions.append(OngoingPartitionReassignment(index))
            yield
        yield
    return response


# -- changing ----------------------------------------------------------------------------------------------------------


@guards(ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    return _not_altered(asking.request.topics)


def _not_altered(wanted: Sequence[ReassignableTopic]) -> Work[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGE)
    for topic in wanted:
        answered = ReassignableTopicResponse(topic.name)
        response.responses.append(answered)
        for one in topic.partitions:
            answered.partitions.append(ReassignablePartitionResponse(one.partition_index, CLUSTER_REFUSED, MESSAGE))
            yield
        yield
    return response


@guards(ELECT_LEADERS)
def elect_leaders(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    wanted, version = asking.request.topic_partitions or [], asking.version
    return elect_leaders_handler.refused(wanted, CLUSTER_REFUSED, MESSAGE, version)


@guards(UPDATE_FEATURES)
def update_features(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    return UpdateFeaturesResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGE)

"""Who may make, change and delete topics, see and change configs, and produce idempotently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.broker.config_resources import ResourceType as ConfigOf
from holdfast.broker.guards._guarding import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    MESSAGES,
    TOPIC_REFUSED,
    Asking,
    guards,
    parted,
    then,
    through,
)
from holdfast.broker.handlers.alter_user_scram_credentials import refused_to_all
from holdfast.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.slices import Work, each, unique
from holdfast.wire.apis.alter_configs import ALTER_CONFIGS, AlterConfigsResourceResponse
from holdfast.wire.apis.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from holdfast.wire.apis.create_acls import CREATE_ACLS, AclCreationResult, CreateAclsResponse
from holdfast.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from holdfast.wire.apis.create_topics import CREATE_TOPICS, CreatableTopicResult, CreateTopicsResponse
from holdfast.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilterResult, DeleteAclsResponse
from holdfast.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsResponse
from holdfast.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasResponse
from holdfast.wire.apis.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsResponse, DescribeConfigsResult
from holdfast.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsResponse,
)
from holdfast.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsResourceResponse,
)
from holdfast.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID

T = TypeVar("T")

# -- topics ------------------------------------------------------------------------------------------------------------


@guards(CREATE_TOPICS)
def create_topics(asking: Asking) -> Any:
    access = asking.access
    every_name = access.operations(ResourceType.CLUSTER, CLUSTER_NAME) & 1 << Operation.CREATE
    allowed, refused = yield from parted(
        asking.request.topics, lambda topic: bool(every_name) or access.topic(Operation.CREATE, topic.name)
    )

    refusals = yield from each(_creation_refused, (yield from unique(topic.name for topic in refused)))

    def with_refusals(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for made in response.topics:
            if not made.error_code and not access.topic(Operation.DESCRIBE_CONFIGS, made.name):
                made.topic_config_error_code = TOPIC_REFUSED
                made.num_partitions, made.replication_factor, made.configs = -1, -1, []
        response.topics += refusals
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


def _creation_refused(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=TOPIC_REFUSED, error_message=MESSAGES[TOPIC_REFUSED])


@guards(DELETE_TOPICS)
def delete_topics(asking: Asking) -> Any:
    request = asking.request
    allowed: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    for wanted in request.topics:
        yield
        refusal = _not_deletable(asking, wanted)
        if refusal is None:
            allowed.append(wanted)
        else:
            refused.append(refusal)
    names = []
    for name in request.topic_names:
        yield
        refusal = _not_deletable(asking, DeleteTopicState(name))
        if refusal is None:
            names.append(name)
        else:
            refused.append(refusal)

    def with_refusals(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += refused
        return response

    return (yield from then(asking, asking.go_on(topics=allowed, topic_names=names), with_refusals))


def _not_deletable(asking: Asking, wanted: DeleteTopicState) -> DeletableTopicResult | None:
    """A refusal that tells neither name nor id to one who knows only the other."""
    name, access = wanted.name, asking.access
    if name is None:
        topic = asking.broker.topics.by_id(wanted.topic_id)
        if topic is None:
            return None  # the handler says so
        if access.topic(Operation.DELETE, topic.name):
            return None
        shown = topic.name if access.topic(Operation.DESCRIBE, topic.name) else None
        return DeletableTopicResult(shown, wanted.topic_id, TOPIC_REFUSED, MESSAGES[TOPIC_REFUSED])
    if access.topic(Operation.DELETE, name):
        return None
    return DeletableTopicResult(name, ZERO_UUID, TOPIC_REFUSED, MESSAGES[TOPIC_REFUSED])


@guards(CREATE_PARTITIONS)
def create_partitions(asking: Asking) -> Any:
    allowed, refused = yield from parted(
        asking.request.topics, lambda topic: asking.access.topic(Operation.ALTER, topic.name)
    )

    refusals = yield from each(_growth_refused, (yield from unique(topic.name for topic in refused)))

    def with_refusals(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
        response.results += refusals
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


def _growth_refused(name: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name, TOPIC_REFUSED, MESSAGES[TOPIC_REFUSED])


# -- configs -----------------------------------------------------------------------------------------------------------


class _Resource(Protocol):
    resource_type: int
    resource_name: str


def _refusal(asking: Asking, operation: Operation, resource: _Resource) -> ErrorCode | None:
    """Configs of what there is nothing of here are refused by the handler."""
    access, name = asking.access, resource.resource_name
    if resource.resource_type == ConfigOf.TOPIC:
        return None if access.topic(operation, name) else TOPIC_REFUSED
    if resource.resource_type == ConfigOf.GROUP:
        return None if access.group(operation, name) else GROUP_REFUSED
    return None if access.cluster(operation) else CLUSTER_REFUSED


def _parted(asking: Asking, operation: Operation) -> Work[tuple[list[Any], list[tuple[Any, ErrorCode]]]]:
    allowed: list[Any] = []
    refused: list[tuple[Any, ErrorCode]] = []
    for resource in asking.request.resources:
        yield
        code = _refusal(asking, operation, resource)
        if code is None:
            allowed.append(resource)
        else:
            refused.append((resource, code))
    return allowed, refused


@guards(DESCRIBE_CONFIGS)
def describe_configs(asking: Asking) -> Any:
    allowed, refused = yield from _parted(asking, Operation.DESCRIBE_CONFIGS)
    response: DescribeConfigsResponse = yield from through(asking.go_on(resources=allowed))
    response.results += yield from each(lambda one: _configs_refused(DescribeConfigsResult, *one), refused)
    return response


def _configs_refused(kind: Callable[[int, str, int, str], T], resource: _Resource, code: ErrorCode) -> T:
    return kind(code, MESSAGES[code], resource.resource_type, resource.resource_name)


@guards(ALTER_CONFIGS)
def alter_configs(asking: Asking) -> Any:
    return _alter(asking, AlterConfigsResourceResponse)


@guards(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(asking: Asking) -> Any:
    return _alter(asking, IncrementalAlterConfigsResourceResponse)


def _alter(
    asking: Asking, kind: type[AlterConfigsResourceResponse] | type[IncrementalAlterConfigsResourceResponse]
) -> Any:
    allowed, refused = yield from _parted(asking, Operation.ALTER_CONFIGS)

    refusals: list[Any] = yield from each(lambda one: _configs_refused(kind, *one), refused)

    def with_refusals(response: Any) -> Any:
        response.responses += refusals
        return response

    return (yield from then(asking, asking.go_on(resources=allowed), with_refusals))


@guards(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE_CONFIGS):
        return asking.go_on()
    return DescribeClientQuotasResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGES[CLUSTER_REFUSED])


# -- ACLs --------------------------------------------------------------------------------------------------------------


@guards(DESCRIBE_ACLS)
def describe_acls(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE):
        return asking.go_on()
    return DescribeAclsResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGES[CLUSTER_REFUSED])


@guards(CREATE_ACLS)
def create_acls(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    return CreateAclsResponse(
        results=[AclCreationResult(CLUSTER_REFUSED, MESSAGES[CLUSTER_REFUSED])] * len(asking.request.creations)
    )


@guards(DELETE_ACLS)
def delete_acls(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(CLUSTER_REFUSED, MESSAGES[CLUSTER_REFUSED])]
        * len(asking.request.filters)
    )


# -- SCRAM credentials -------------------------------------------------------------------------------------------------


@guards(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(asking: Asking) -> Any:
    if asking.access.cluster(Operation.DESCRIBE):
        return asking.go_on()
    return DescribeUserScramCredentialsResponse(error_code=CLUSTER_REFUSED, error_message=MESSAGES[CLUSTER_REFUSED])


@guards(ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(asking: Asking) -> Any:
    if asking.access.cluster(Operation.ALTER):
        return asking.go_on()
    return refused_to_all(asking.request, CLUSTER_REFUSED, MESSAGES[CLUSTER_REFUSED])


# -- producers ---------------------------------------------------------------------------------------------------------


@guards(INIT_PRODUCER_ID)
def init_producer_id(asking: Asking) -> Any:
    """Whoever may write to some topic may do so idempotently (KIP-679)."""
    access = asking.access
    if (
        asking.request.transactional_id is not None  # refused to everybody
        or access.any_topic(Operation.WRITE)
        or access.cluster(Operation.IDEMPOTENT_WRITE)
    ):
        return asking.go_on()
    return InitProducerIdResponse(error_code=CLUSTER_REFUSED, producer_id=-1, producer_epoch=-1)

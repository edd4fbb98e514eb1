"""Topics, configs, ACLs, SCRAM credentials, and idempotent producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.broker.api.checks.base import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    MESSAGES,
    TOPIC_DENIED,
    AuthorizedRequest,
    check,
    map_reply,
    resolve,
    split,
)
from holdfast.broker.api.handlers.alter_user_scram_credentials import fail_all
from holdfast.broker.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.config.schema import ConfigResourceType as ConfigOf
from holdfast.broker.util.slices import Work, sliced_map, sliced_unique
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


@check(CREATE_TOPICS)
def create_topics(authorized: AuthorizedRequest) -> Any:
    permissions = authorized.permissions
    every_name = permissions.operations(ResourceType.CLUSTER, CLUSTER_NAME) & 1 << Operation.CREATE
    allowed, denied = yield from split(
        authorized.request.topics, lambda topic: bool(every_name) or permissions.topic(Operation.CREATE, topic.name)
    )

    denials = yield from sliced_map(_creation_denied, (yield from sliced_unique(topic.name for topic in denied)))

    def with_denials(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for made in response.topics:
            if not made.error_code and not permissions.topic(Operation.DESCRIBE_CONFIGS, made.name):
                made.topic_config_error_code = TOPIC_DENIED
                made.num_partitions, made.replication_factor, made.configs = -1, -1, []
        response.topics += denials
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


def _creation_denied(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=TOPIC_DENIED, error_message=MESSAGES[TOPIC_DENIED])


@check(DELETE_TOPICS)
def delete_topics(authorized: AuthorizedRequest) -> Any:
    request = authorized.request
    allowed: list[DeleteTopicState] = []
    denied: list[DeletableTopicResult] = []
    for wanted in request.topics:
        yield
        denial = _not_deletable(authorized, wanted)
        if denial is None:
            allowed.append(wanted)
        else:
            denied.append(denial)
    names = []
    for name in request.topic_names:
        yield
        denial = _not_deletable(authorized, DeleteTopicState(name))
        if denial is None:
            names.append(name)
        else:
            denied.append(denial)

    def with_denials(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += denied
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed, topic_names=names), with_denials))


def _not_deletable(authorized: AuthorizedRequest, wanted: DeleteTopicState) -> DeletableTopicResult | None:
    """A denial that reveals neither the name nor the id to a client that knows only the other."""
    name, permissions = wanted.name, authorized.permissions
    if name is None:
        topic = authorized.services.topics.by_id(wanted.topic_id)
        if topic is None:
            return None  # the handler answers
        if permissions.topic(Operation.DELETE, topic.name):
            return None
        shown = topic.name if permissions.topic(Operation.DESCRIBE, topic.name) else None
        return DeletableTopicResult(shown, wanted.topic_id, TOPIC_DENIED, MESSAGES[TOPIC_DENIED])
    if permissions.topic(Operation.DELETE, name):
        return None
    return DeletableTopicResult(name, ZERO_UUID, TOPIC_DENIED, MESSAGES[TOPIC_DENIED])


@check(CREATE_PARTITIONS)
def create_partitions(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from split(
        authorized.request.topics, lambda topic: authorized.permissions.topic(Operation.ALTER, topic.name)
    )

    denials = yield from sliced_map(_growth_denied, (yield from sliced_unique(topic.name for topic in denied)))

    def with_denials(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
        response.results += denials
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


def _growth_denied(name: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name, TOPIC_DENIED, MESSAGES[TOPIC_DENIED])


# -- configs -----------------------------------------------------------------------------------------------------------


class _Resource(Protocol):
    resource_type: int
    resource_name: str


def _denial(authorized: AuthorizedRequest, operation: Operation, resource: _Resource) -> ErrorCode | None:
    """Other resource types are rejected by the handler."""
    permissions, name = authorized.permissions, resource.resource_name
    if resource.resource_type == ConfigOf.TOPIC:
        return None if permissions.topic(operation, name) else TOPIC_DENIED
    if resource.resource_type == ConfigOf.GROUP:
        return None if permissions.group(operation, name) else GROUP_DENIED
    return None if permissions.cluster(operation) else CLUSTER_DENIED


def _split_resources(
    authorized: AuthorizedRequest, operation: Operation
) -> Work[tuple[list[Any], list[tuple[Any, ErrorCode]]]]:
    allowed: list[Any] = []
    denied: list[tuple[Any, ErrorCode]] = []
    for resource in authorized.request.resources:
        yield
        code = _denial(authorized, operation, resource)
        if code is None:
            allowed.append(resource)
        else:
            denied.append((resource, code))
    return allowed, denied


@check(DESCRIBE_CONFIGS)
def describe_configs(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from _split_resources(authorized, Operation.DESCRIBE_CONFIGS)
    response: DescribeConfigsResponse = yield from resolve(authorized.proceed(resources=allowed))
    response.results += yield from sliced_map(lambda one: _configs_denied(DescribeConfigsResult, *one), denied)
    return response


def _configs_denied(kind: Callable[[int, str, int, str], T], resource: _Resource, code: ErrorCode) -> T:
    return kind(code, MESSAGES[code], resource.resource_type, resource.resource_name)


@check(ALTER_CONFIGS)
def alter_configs(authorized: AuthorizedRequest) -> Any:
    return _alter(authorized, AlterConfigsResourceResponse)


@check(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(authorized: AuthorizedRequest) -> Any:
    return _alter(authorized, IncrementalAlterConfigsResourceResponse)


def _alter(
    authorized: AuthorizedRequest,
    kind: type[AlterConfigsResourceResponse] | type[IncrementalAlterConfigsResourceResponse],
) -> Any:
    allowed, denied = yield from _split_resources(authorized, Operation.ALTER_CONFIGS)

    denials: list[Any] = yield from sliced_map(lambda one: _configs_denied(kind, *one), denied)

    def with_denials(response: Any) -> Any:
        response.responses += denials
        return response

    return (yield from map_reply(authorized, authorized.proceed(resources=allowed), with_denials))


@check(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE_CONFIGS):
        return authorized.proceed()
    return DescribeClientQuotasResponse(error_code=CLUSTER_DENIED, error_message=MESSAGES[CLUSTER_DENIED])


# -- ACLs --------------------------------------------------------------------------------------------------------------


@check(DESCRIBE_ACLS)
def describe_acls(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE):
        return authorized.proceed()
    return DescribeAclsResponse(error_code=CLUSTER_DENIED, error_message=MESSAGES[CLUSTER_DENIED])


@check(CREATE_ACLS)
def create_acls(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    return CreateAclsResponse(
        results=[AclCreationResult(CLUSTER_DENIED, MESSAGES[CLUSTER_DENIED])] * len(authorized.request.creations)
    )


@check(DELETE_ACLS)
def delete_acls(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(CLUSTER_DENIED, MESSAGES[CLUSTER_DENIED])]
        * len(authorized.request.filters)
    )


# -- SCRAM credentials -------------------------------------------------------------------------------------------------


@check(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.DESCRIBE):
        return authorized.proceed()
    return DescribeUserScramCredentialsResponse(error_code=CLUSTER_DENIED, error_message=MESSAGES[CLUSTER_DENIED])


@check(ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(authorized: AuthorizedRequest) -> Any:
    if authorized.permissions.cluster(Operation.ALTER):
        return authorized.proceed()
    return fail_all(authorized.request, CLUSTER_DENIED, MESSAGES[CLUSTER_DENIED])


# -- producers ---------------------------------------------------------------------------------------------------------


@check(INIT_PRODUCER_ID)
def init_producer_id(authorized: AuthorizedRequest) -> Any:
    """A client that may write to any topic may do so idempotently (KIP-679)."""
    permissions = authorized.permissions
    if (
        authorized.request.transactional_id is not None  # rejected for all clients
        or permissions.any_topic(Operation.WRITE)
        or permissions.cluster(Operation.IDEMPOTENT_WRITE)
    ):
        return authorized.proceed()
    return InitProducerIdResponse(error_code=CLUSTER_DENIED, producer_id=-1, producer_epoch=-1)

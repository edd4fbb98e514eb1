"""Requests to the coordinator that register members of a group and change its configs. `Admin` has them as methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.descriptions import Cancelled, GroupConfig, Registered, RegistrationOutcome
from holdfast.client.errors import ConfigError, GroupError, error_code
from holdfast.wire.apis.add_members_to_group import (
    ADD_MEMBERS_TO_GROUP,
    AddMembersToGroupRequest,
    AddMembersToGroupResponse,
    AddMembersToGroupResult,
    Registration,
)
from holdfast.wire.apis.cancel_registration import (
    CANCEL_REGISTRATION,
    CancelRegistrationRequest,
    CancelRegistrationResponse,
)
from holdfast.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from holdfast.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

TARGET_SIZE: Final = "target.group.size"
STANDBY_TAKEOVER: Final = "standby.takeover.ms"
_HOLDFAST_CONFIGS: Final = frozenset({TARGET_SIZE, STANDBY_TAKEOVER})
_GROUP_RESOURCE: Final = 32
_SET, _DELETE = 0, 1
_GROUP_CONFIG_SOURCE: Final = 8
"""The source of a config that is set on the group itself."""
_MAX_WAIT_MS: Final = 2**31 - 1
_OUTCOMES: Final[Mapping[int, RegistrationOutcome]] = {
    Registration.REGISTERED: RegistrationOutcome.REGISTERED,
    Registration.ALREADY_MEMBER: RegistrationOutcome.ALREADY_MEMBER,
    Registration.RENEWED: RegistrationOutcome.RENEWED,
}
_ADVICE: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.UNKNOWN_MEMBER_ID: "it is not registered",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not do that to the group",
}

ConfigValue = str | int | None


# -- registration ------------------------------------------------------------------------------------------------------


def add_members(
    cluster: ClusterClient, group_id: str, instance_ids: Iterable[str], wait_ms: int, deadline: float
) -> list[Registered]:
    wanted = _as_list("instance_ids", instance_ids)
    if not 1 <= wait_ms <= _MAX_WAIT_MS:
        raise ConfigError(f"wait_ms cannot be {wait_ms}; it is a number of milliseconds from 1 on")
    if not wanted:
        return []
    request = AddMembersToGroupRequest(group_id, wanted, wait_ms)
    with CoordinatorClient(cluster, group_id) as asking:
        response: AddMembersToGroupResponse = asking.ask(
            ADD_MEMBERS_TO_GROUP,
            lambda _: request,
            _error_code,
            deadline,
            needs=_need("registering members", ADD_MEMBERS_TO_GROUP),
        )
    _check(f"new members of group {group_id!r}", response)
    return [_registered(one) for one in response.results]


def _registered(result: AddMembersToGroupResult) -> Registered:
    error = _error(f"instance {result.group_instance_id!r}", result)
    # An unknown number, from a newer Holdfast, is also a success, because there is no error.
    outcome = _OUTCOMES.get(result.outcome, RegistrationOutcome.REGISTERED)
    return Registered(result.group_instance_id, RegistrationOutcome.REFUSED if error else outcome, error)


def cancel_registration(
    cluster: ClusterClient, group_id: str, instance_ids: Iterable[str] | None, deadline: float
) -> list[Cancelled]:
    wanted = None if instance_ids is None else _as_list("instance_ids", instance_ids)
    if wanted is not None and not wanted:
        return []
    request = CancelRegistrationRequest(group_id, wanted)
    need = _need("cancelling registrations", CANCEL_REGISTRATION)
    with CoordinatorClient(cluster, group_id) as asking:
        response: CancelRegistrationResponse = asking.ask(
            CANCEL_REGISTRATION, lambda _: request, _error_code, deadline, needs=need
        )
    _check(f"registrations of group {group_id!r}", response)
    return [
        Cancelled(one.group_instance_id, _error(f"instance {one.group_instance_id!r}", one)) for one in response.results
    ]


# -- configs -----------------------------------------------------------------------------------------------------------


def configure_group(cluster: ClusterClient, group_id: str, changes: Mapping[str, ConfigValue], deadline: float) -> None:
    if not changes:
        return
    request = IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsResource(_GROUP_RESOURCE, group_id, [_change(*one) for one in changes.items()])]
    )
    ours = sorted(_HOLDFAST_CONFIGS & changes.keys())
    need = f"the group config {ours[0]!r} needs Holdfast's hot standbys" if ours else None
    with CoordinatorClient(cluster, group_id) as asking:
        response = asking.ask(
            INCREMENTAL_ALTER_CONFIGS,
            lambda _: request,
            lambda answer: _error_code(_altered(answer)),
            deadline,
            needs=need,
        )
    _check(f"configs of group {group_id!r}", _altered(response))


def _altered(response: Any) -> IncrementalAlterConfigsResourceResponse:
    result: IncrementalAlterConfigsResourceResponse = response.responses[0]
    return result


def _change(name: str, value: ConfigValue) -> IncrementalAlterableConfig:
    if value is None:
        return IncrementalAlterableConfig(name, _DELETE, None)
    return IncrementalAlterableConfig(name, _SET, str(value))


def group_config(cluster: ClusterClient, group_id: str, deadline: float) -> dict[str, GroupConfig]:
    request = DescribeConfigsRequest([DescribeConfigsResource(_GROUP_RESOURCE, group_id, None)])
    with CoordinatorClient(cluster, group_id) as asking:
        response = asking.ask(
            DESCRIBE_CONFIGS, lambda _: request, lambda answer: _error_code(_described(answer)), deadline
        )
    found = _described(response)
    _check(f"configs of group {group_id!r}", found)
    return {
        one.name: GroupConfig(None if one.is_sensitive else one.value, one.config_source != _GROUP_CONFIG_SOURCE)
        for one in sorted(found.configs, key=lambda one: one.name)
    }


def _described(response: Any) -> DescribeConfigsResult:
    result: DescribeConfigsResult = response.results[0]
    return result


# -- results and errors ------------------------------------------------------------------------------------------------


def _need(what: str, api: Api) -> str:
    return f"{what} needs Holdfast's {api.name} (API key {api.key})"


def _as_list(what: str, given: Iterable[str]) -> list[str]:
    """Rejects a single string, which is also a sequence of strings."""
    if isinstance(given, str):
        raise ConfigError(f"{what} is {given!r}; it must be several ids: [{given!r}]")
    return list(given)


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _error(what: str, answer: Any) -> GroupError | None:
    """The broker's error message if there is one, because it says more than the code."""
    if not answer.error_code:
        return None
    known = error_code(answer.error_code)
    why = answer.error_message or _ADVICE.get(known, "see the log of the broker")
    return GroupError(f"{what}: {known.name}: {why}", code=known)


def _check(what: str, answer: Any) -> None:
    error = _error(what, answer)
    if error is not None:
        raise error

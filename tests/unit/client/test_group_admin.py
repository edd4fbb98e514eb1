"""Registered members and group configs: the requests, and what is made of the responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Admin
from holdfast.client.descriptions import Cancelled, GroupConfig, RegistrationOutcome
from holdfast.client.errors import ConfigError, GroupError, UnsupportedVersion
from holdfast.wire.apis.add_members_to_group import (
    ADD_MEMBERS_TO_GROUP,
    AddMembersToGroupResponse,
    AddMembersToGroupResult,
)
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse, CancelRegistrationResult
from holdfast.wire.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult, DescribedConfig
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_coordinator import Coordinator, admin_of, bootstrap_of

GROUP_RESOURCE = 32


def added(*results: AddMembersToGroupResult, code: int = 0, message: str | None = None) -> AddMembersToGroupResponse:
    return AddMembersToGroupResponse(error_code=code, error_message=message, results=list(results))


def altered(code: int = 0, message: str | None = None) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[IncrementalAlterConfigsResourceResponse(code, message, GROUP_RESOURCE, "g")]
    )


def described(*configs: DescribedConfig, code: int = 0, message: str | None = None) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[DescribeConfigsResult(code, message, GROUP_RESOURCE, "g", list(configs))])


def asked(coordinator: Coordinator, ask: Callable[[Admin], Any]) -> Any:
    with ScriptedServer(coordinator) as server, admin_of(server) as admin:
        return ask(admin)


# -- members that are about to come ------------------------------------------------------------------------------------


def test_each_registered_member_has_its_own_result() -> None:
    coordinator = Coordinator(
        added(
            AddMembersToGroupResult("a", 0, None, 0),
            AddMembersToGroupResult("b", 0, None, 1),
            AddMembersToGroupResult("c", 0, None, 2),
            AddMembersToGroupResult("", ErrorCode.INVALID_REQUEST, "An instance id cannot be empty.", 0),
        )
    )

    results = asked(coordinator, lambda admin: admin.add_members("g", ["a", "b", "c", ""], wait_ms=1_000))

    assert [(one.instance_id, str(one.outcome)) for one in results] == [
        ("a", "registered"),
        ("b", "already a member"),
        ("c", "renewed"),
        ("", "refused"),
    ]
    assert [one.error for one in results[:3]] == [None] * 3
    assert results[3].error.code is ErrorCode.INVALID_REQUEST
    assert "An instance id cannot be empty." in str(results[3].error)
    (request,) = coordinator.messages()
    assert (request.group_id, request.group_instance_ids, request.wait_ms) == ("g", ["a", "b", "c", ""], 1_000)


def test_they_are_waited_for_five_minutes_unless_said_otherwise() -> None:
    coordinator = Coordinator(added(AddMembersToGroupResult("a", 0, None, 0)))
    asked(coordinator, lambda admin: admin.add_members("g", iter(["a"])))
    assert [one.wait_ms for one in coordinator.messages()] == [300_000]


def test_an_outcome_that_only_a_newer_holdfast_knows_is_none_the_less_a_success() -> None:
    coordinator = Coordinator(added(AddMembersToGroupResult("a", 0, None, 7)))
    (result,) = asked(coordinator, lambda admin: admin.add_members("g", ["a"]))
    assert (result.outcome, result.error) == (RegistrationOutcome.REGISTERED, None)


def test_what_concerns_the_whole_request_is_raised_in_the_brokers_words() -> None:
    coordinator = Coordinator(
        added(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message="The group is of type connect.")
    )
    with pytest.raises(
        GroupError, match=r"group 'g': INCONSISTENT_GROUP_PROTOCOL: The group is of type connect\."
    ) as said:
        asked(coordinator, lambda admin: admin.add_members("g", ["a"]))
    assert said.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_a_coordinator_that_is_not_ready_is_asked_again(code: ErrorCode) -> None:
    coordinator = Coordinator(added(code=code), added(AddMembersToGroupResult("a", 0, None, 0)))
    (result,) = asked(coordinator, lambda admin: admin.add_members("g", ["a"]))
    assert (result.outcome, len(coordinator.requests)) == (RegistrationOutcome.REGISTERED, 2)


def test_a_request_that_was_lost_is_sent_again() -> None:
    """It may have been carried out: then the second one renews, which is what was wanted."""
    coordinator = Coordinator(added(AddMembersToGroupResult("a", 0, None, 2)))
    coordinator.disconnect_first(ADD_MEMBERS_TO_GROUP.key)
    (result,) = asked(coordinator, lambda admin: admin.add_members("g", ["a"]))
    assert (result.outcome, len(coordinator.requests)) == (RegistrationOutcome.RENEWED, 2)


def test_registrations_are_cancelled_by_name_or_all() -> None:
    answer = CancelRegistrationResponse(
        results=[
            CancelRegistrationResult("a", 0, None),
            CancelRegistrationResult("b", ErrorCode.UNKNOWN_MEMBER_ID, "b is not registered"),
        ]
    )
    coordinator = Coordinator(answer)

    first, second = asked(coordinator, lambda admin: admin.cancel_registration("g", ["a", "b"]))
    assert first == Cancelled("a", None)
    assert (second.instance_id, second.error.code) == ("b", ErrorCode.UNKNOWN_MEMBER_ID)
    assert str(second.error) == "instance 'b': UNKNOWN_MEMBER_ID: b is not registered"

    asked(coordinator, lambda admin: admin.cancel_registration("g"))
    assert [one.group_instance_ids for one in coordinator.messages()] == [["a", "b"], None]


def test_a_group_that_is_not_there_has_no_registrations() -> None:
    coordinator = Coordinator(CancelRegistrationResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    with pytest.raises(GroupError, match="GROUP_ID_NOT_FOUND: there is no such group"):
        asked(coordinator, lambda admin: admin.cancel_registration("g"))


def test_registering_or_cancelling_no_members_sends_no_request() -> None:
    coordinator = Coordinator()
    assert asked(coordinator, lambda admin: admin.add_members("g", [])) == []
    assert asked(coordinator, lambda admin: admin.cancel_registration("g", [])) == []
    assert coordinator.requests == []


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda admin: admin.add_members("g", "abc"), r"instance_ids is 'abc'; .*\['abc'\]"),
        (lambda admin: admin.cancel_registration("g", "abc"), r"instance_ids is 'abc'"),
        (lambda admin: admin.add_members("g", ["a"], wait_ms=0), "wait_ms cannot be 0"),
        (lambda admin: admin.add_members("g", ["a"], wait_ms=2**31), "wait_ms cannot be 2147483648"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_it_is_sent(ask: Callable[[Admin], Any], said: str) -> None:
    coordinator = Coordinator()
    with pytest.raises(ConfigError, match=said):
        asked(coordinator, ask)
    assert coordinator.requests == []


# -- configs -----------------------------------------------------------------------------------------------------------


def test_configs_are_set_and_put_back_in_one_request() -> None:
    coordinator = Coordinator(altered())
    changes = {"target.group.size": 3, "standby.takeover.ms": None, "consumer.session.timeout.ms": "6000"}

    asked(coordinator, lambda admin: admin.configure_group("g", changes))

    (request,) = coordinator.messages()
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (GROUP_RESOURCE, "g")
    assert [(one.name, one.config_operation, one.value) for one in resource.configs] == [
        ("target.group.size", 0, "3"),
        ("standby.takeover.ms", 1, None),
        ("consumer.session.timeout.ms", 0, "6000"),
    ]


def test_a_config_that_is_refused_says_why() -> None:
    coordinator = Coordinator(altered(ErrorCode.INVALID_CONFIG, "Unknown group config name: x"))
    with pytest.raises(GroupError, match="configs of group 'g': INVALID_CONFIG: Unknown group config name: x"):
        asked(coordinator, lambda admin: admin.configure_group("g", {"x": 1}))


def test_no_change_is_no_request() -> None:
    coordinator = Coordinator()
    asked(coordinator, lambda admin: admin.configure_group("g", {}))
    assert coordinator.requests == []


@pytest.mark.parametrize("holdfast", [True, False])
def test_configs_are_described_with_what_was_set(holdfast: bool) -> None:
    answer = described(
        DescribedConfig("target.group.size", "3", config_source=8),
        DescribedConfig("standby.takeover.ms", "-1", config_source=5),
        DescribedConfig("secret", "x", config_source=8, is_sensitive=True),
    )
    found = asked(Coordinator(answer, holdfast=holdfast), lambda admin: admin.group_config("g"))
    assert list(found.items()) == [
        ("secret", GroupConfig(None, False)),
        ("standby.takeover.ms", GroupConfig("-1", True)),
        ("target.group.size", GroupConfig("3", False)),
    ]


def test_configs_that_cannot_be_described_say_why() -> None:
    coordinator = Coordinator(described(code=ErrorCode.INVALID_REQUEST, message="Unknown resource type 32"))
    with pytest.raises(GroupError, match="INVALID_REQUEST: Unknown resource type 32"):
        asked(coordinator, lambda admin: admin.group_config("g"))


# -- a server that is no Holdfast --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "feature"),
    [
        (
            lambda admin: admin.add_members("g", ["a"]),
            "registering members needs Holdfast's AddMembersToGroup (API key 10000)",
        ),
        (lambda admin: admin.cancel_registration("g"), "needs Holdfast's CancelRegistration (API key 10001)"),
        (
            lambda admin: admin.configure_group("g", {"share.session.timeout.ms": 1, "target.group.size": 3}),
            "the group config 'target.group.size' needs Holdfast's hot standbys",
        ),
        (
            lambda admin: admin.configure_group("g", {"standby.takeover.ms": None}),
            "the group config 'standby.takeover.ms' needs Holdfast's hot standbys",
        ),
    ],
)
def test_apache_kafka_is_not_asked_what_it_cannot_and_the_feature_is_named(
    ask: Callable[[Admin], Any], feature: str
) -> None:
    coordinator = Coordinator(altered(), holdfast=False)
    with ScriptedServer(coordinator) as server, admin_of(server) as admin:
        with pytest.raises(UnsupportedVersion) as said:
            ask(admin)
        assert str(said.value).endswith(f"{feature}, which the broker at {bootstrap_of(server)} does not have")
        assert (said.value.code, said.value.fatal) == (ErrorCode.UNSUPPORTED_VERSION, False)
        assert coordinator.requests == []
        admin.configure_group("g", {"consumer.session.timeout.ms": 6_000})
    assert len(coordinator.requests) == 1, "the same broker is asked for what is its own"


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.delete_topics("cc"),
        lambda admin: admin.delete_groups("cc"),
        lambda admin: admin.remove_members("g", instance_ids="cc"),
        lambda admin: admin.remove_members("g", member_ids="cc"),
        lambda admin: admin.remove_members("g", members="cc"),
        lambda admin: admin.reset_offsets("g", "cc", to="earliest"),
    ],
    ids=["delete_topics", "delete_groups", "instance_ids", "member_ids", "members", "reset_offsets"],
)
def test_a_text_is_not_taken_for_the_names_that_its_letters_are(call: Callable[[Admin], object]) -> None:
    with (
        Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin,
        pytest.raises(ConfigError, match=r"is 'cc'; it must be several: \['cc'\]"),
    ):
        call(admin)


@pytest.mark.parametrize("pair", [("", None), ("", ""), ("a", "b", "c"), ("a",), (7, None), "ab", None])
def test_a_pair_without_a_member_id_or_instance_id_is_refused(pair: Any) -> None:
    with (
        Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin,
        pytest.raises(ConfigError, match="a pair of a member id and an instance id, one of them at least"),
    ):
        admin.remove_members("g", members=[pair])

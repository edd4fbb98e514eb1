"""`groups add-members`, `cancel-registration`, `configure` and what `describe` has of them: on a Holdfast, and on an
Apache Kafka, which cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.cli.groups.watch import screen
from holdfast.cli.main import main
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupResponse, AddMembersToGroupResult
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse, CancelRegistrationResult
from holdfast.wire.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult, DescribedConfig
from holdfast.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ExpectedMember,
    GroupExtensions,
)
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_coordinator import Coordinator, admin_of, bootstrap_of


class Shell:
    """`holdfast …` against one scripted broker."""

    def __init__(self, coordinator: Coordinator, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        self.coordinator = coordinator
        self.bootstrap = bootstrap_of(server)
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main([*arguments, "--bootstrap-server", self.bootstrap])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def json(self, *arguments: str) -> Any:
        code, out, errors = self(*arguments, "--json")
        assert (code, errors) == (0, "")
        return json.loads(out)


@pytest.fixture
def shell_of(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Shell]]:
    with ExitStack() as servers:

        def start(*answers: Any, holdfast: bool = True) -> Shell:
            coordinator = Coordinator(*answers, holdfast=holdfast)
            return Shell(coordinator, servers.enter_context(ScriptedServer(coordinator)), capsys)

        yield start


Shells = Callable[..., Shell]

# -- add-members -------------------------------------------------------------------------------------------------------

ADD = ("groups", "add-members", "--group", "g", "--instance-ids")


def test_registered_members_have_a_line_each(shell_of: Shells) -> None:
    results = [AddMembersToGroupResult(name, 0, None, outcome) for outcome, name in enumerate("abc")]
    shell = shell_of(AddMembersToGroupResponse(results=results))

    code, out, errors = shell(*ADD, "a,b", "--group-instance-ids", "c,a", "--wait-ms", "1000")

    assert (code, errors) == (0, "")
    assert out.splitlines() == [
        "INSTANCE-ID  RESULT",
        "a            registered",
        "b            already a member",
        "c            renewed",
    ]
    (request,) = shell.coordinator.messages()
    assert (request.group_instance_ids, request.wait_ms) == (["a", "b", "c"], 1_000)
    assert shell.json(*ADD, "a,b,c")[1] == {
        "instance_id": "b",
        "outcome": "already a member",
        "ok": True,
        "error": None,
        "message": None,
    }
    assert shell.coordinator.messages()[1].wait_ms == 300_000


def test_one_that_is_refused_does_not_hide_the_others(shell_of: Shells) -> None:
    results = [
        AddMembersToGroupResult("a", 0, None, 0),
        AddMembersToGroupResult("b", ErrorCode.GROUP_MAX_SIZE_REACHED, "The group takes 2 members.", 0),
    ]
    shell = shell_of(AddMembersToGroupResponse(results=results))

    code, out, errors = shell(*ADD, "a,b")
    assert out.splitlines()[1:] == [
        "a            registered",
        "b            refused: GROUP_MAX_SIZE_REACHED: The group takes 2 members.",
    ]
    assert (code, errors) == (1, "holdfast groups add-members: 1 of 2 members were not registered\n")
    code, out, _ = shell(*ADD, "a,b", "--json")
    assert (code, json.loads(out)[1]) == (
        1,
        {
            "instance_id": "b",
            "outcome": "refused",
            "ok": False,
            "error": "GROUP_MAX_SIZE_REACHED",
            "message": "instance 'b': GROUP_MAX_SIZE_REACHED: The group takes 2 members.",
        },
    )


def test_what_concerns_the_whole_group_is_one_sentence(shell_of: Shells) -> None:
    refusal = AddMembersToGroupResponse(
        error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, error_message="The group is of type connect."
    )
    assert shell_of(refusal)(*ADD, "a") == (
        1,
        "",
        "holdfast groups add-members: new members of group 'g': INCONSISTENT_GROUP_PROTOCOL: "
        "The group is of type connect.\n",
    )


# -- cancel-registration -----------------------------------------------------------------------------------------------

CANCEL = ("groups", "cancel-registration", "--group", "g")


def test_cancelled_registrations_have_a_line_each(shell_of: Shells) -> None:
    results = [
        CancelRegistrationResult("a", 0, None),
        CancelRegistrationResult("b", ErrorCode.UNKNOWN_MEMBER_ID, "b is not registered"),
    ]
    shell = shell_of(CancelRegistrationResponse(results=results))

    code, out, errors = shell(*CANCEL, "--instance-ids", "a,b,a")
    assert out.splitlines() == [
        "INSTANCE-ID  RESULT",
        "a            cancelled",
        "b            not registered (UNKNOWN_MEMBER_ID)",
    ]
    assert (code, errors) == (1, "holdfast groups cancel-registration: 1 of 2 registrations were not cancelled\n")
    assert [one.group_instance_ids for one in shell.coordinator.messages()] == [["a", "b"]]
    code, out, _ = shell(*CANCEL, "--instance-ids", "a,b", "--json")
    assert (code, [(one["instance_id"], one["ok"]) for one in json.loads(out)]) == (1, [("a", True), ("b", False)])


def test_all_are_cancelled_where_none_is_named(shell_of: Shells) -> None:
    shell = shell_of(
        CancelRegistrationResponse(results=[CancelRegistrationResult("a", 0, None)]), CancelRegistrationResponse()
    )
    assert shell(*CANCEL)[:2] == (0, "INSTANCE-ID  RESULT\na            cancelled\n")
    code, out, errors = shell(*CANCEL)
    assert (code, out) == (0, "")
    assert errors.endswith("group 'g' expects no registered members: nothing to cancel\n")
    assert shell.json(*CANCEL) == []
    assert [one.group_instance_ids for one in shell.coordinator.messages()] == [None] * 3


# -- configure ---------------------------------------------------------------------------------------------------------

CONFIGURE = ("groups", "configure", "--group", "g")


def altered(code: int = 0, message: str | None = None) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResourceResponse(code, message, 32, "g")])


def test_configs_are_changed_and_what_they_are_now_is_shown(shell_of: Shells) -> None:
    shell = shell_of(altered())
    code, out, errors = shell(*CONFIGURE, "--target-size", "3", "--unset", "standby.takeover.ms", "--set", "x=y")
    assert (code, errors) == (0, "")
    assert out.splitlines() == [
        "CONFIG               NOW",
        "x                    y",
        "standby.takeover.ms  back to the default",
        "target.group.size    3",
    ]
    sent = [(one.name, one.value) for one in shell.coordinator.messages()[0].resources[0].configs]
    assert sent == [("x", "y"), ("standby.takeover.ms", None), ("target.group.size", "3")]
    assert shell.json(*CONFIGURE, "--standby-takeover-ms", "5000") == {
        "group_id": "g",
        "changed": {"standby.takeover.ms": "5000"},
    }


def test_without_a_change_configs_are_shown(shell_of: Shells) -> None:
    configs = [
        DescribedConfig("target.group.size", "3", config_source=8),
        DescribedConfig("standby.takeover.ms", "-1", config_source=5),
    ]
    shell = shell_of(DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 32, "g", configs)]))
    assert shell(*CONFIGURE) == (
        0,
        "CONFIG               VALUE  SOURCE\nstandby.takeover.ms  -1     default\ntarget.group.size    3      set\n",
        "",
    )
    assert shell.json(*CONFIGURE)["configs"][1] == {"name": "target.group.size", "value": "3", "default": False}


def test_a_config_that_is_refused_says_why(shell_of: Shells) -> None:
    shell = shell_of(altered(ErrorCode.INVALID_CONFIG, "Unknown group config name: x"))
    assert shell(*CONFIGURE, "--set", "x=1") == (
        1,
        "",
        "holdfast groups configure: configs of group 'g': INVALID_CONFIG: Unknown group config name: x\n",
    )


# -- a server that is no Holdfast --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "feature"),
    [
        ((*ADD, "a"), "registering members needs Holdfast's AddMembersToGroup (API key 10000)"),
        (CANCEL, "cancelling registrations needs Holdfast's CancelRegistration (API key 10001)"),
        ((*CONFIGURE, "--target-size", "3"), "the group config 'target.group.size' needs Holdfast's hot standbys"),
    ],
)
def test_on_apache_kafka_the_sentence_names_the_feature(shell_of: Shells, words: tuple[str, ...], feature: str) -> None:
    shell = shell_of(holdfast=False)
    said = f"holdfast groups {words[1]}: {feature}, which the broker at {shell.bootstrap} does not have\n"
    assert shell(*words) == (1, "", said)
    assert shell.coordinator.requests == []


# -- describe ----------------------------------------------------------------------------------------------------------

GROUP_WITH_STANDBYS = GroupExtensions(
    generation_id=4,
    assignment_epoch=4_000_001,
    leader="m-1",
    settled=True,
    target_size=2,
    standbys=["m-3", "m-4"],
    expected=[ExpectedMember("node-4", 1_000, True), ExpectedMember("node-5", 2_000, False)],
)


def group(extensions: GroupExtensions | None, *, members: bool = True) -> DescribeGroupsResponse:
    ids = [("m-1", "node-1"), ("m-2", None), ("m-3", None), ("m-4", "node-4")] if members else []
    found = [DescribedGroupMember(member, instance, "c", "/h", b"", b"") for member, instance in ids]
    state = "Stable" if members else "Empty"
    return DescribeGroupsResponse(
        groups=[DescribedGroup(0, None, "g", state, "consumer", "range", found, extensions=extensions)]
    )


DESCRIBE = ("groups", "describe", "--group", "g")


def cells(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_members_have_roles_and_those_to_come_a_row(shell_of: Shells) -> None:
    shell = shell_of(group(GROUP_WITH_STANDBYS))
    code, out, errors = shell(*DESCRIBE, "--members")
    assert (code, errors) == (0, "")
    assert cells(out) == [
        ["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ROLE"],
        ["g", "m-1", "node-1", "/h", "c", "0", "leader"],
        ["g", "m-2", "-", "/h", "c", "0", "active"],
        ["g", "m-3", "-", "/h", "c", "0", "standby"],
        ["g", "m-4", "node-4", "/h", "c", "0", "arrived"],
        ["g", "-", "node-5", "-", "-", "-", "expected"],
    ]
    (reported,) = shell.json(*DESCRIBE, "--members")
    assert [one["role"] for one in reported["members"]] == ["leader", "active", "standby", "arrived"]
    assert reported["member_count"] == 4, "an expected member is not a member yet"
    assert reported["expected"] == [
        {"instance_id": "node-4", "deadline_ms": 1_000, "arrived": True},
        {"instance_id": "node-5", "deadline_ms": 2_000, "arrived": False},
    ]


def test_registered_members_of_a_new_group_are_shown_before_they_are_members(shell_of: Shells) -> None:
    shell = shell_of(group(GROUP_WITH_STANDBYS, members=False))
    code, out, _ = shell(*DESCRIBE, "--members")
    assert code == 0
    assert [(row[2], row[-1]) for row in cells(out)[1:]] == [("node-4", "arrived"), ("node-5", "expected")]


def test_a_registered_member_that_waits_in_a_new_group_has_arrived(shell_of: Shells) -> None:
    """There the coordinator holds joins back, and there are no standbys."""
    forming = GroupExtensions(expected=GROUP_WITH_STANDBYS.expected)
    (reported,) = shell_of(group(forming)).json(*DESCRIBE, "--members")
    assert [one["role"] for one in reported["members"]] == ["active", "active", "active", "arrived"]


def test_a_registered_member_that_disconnected_is_expected_and_has_one_row(shell_of: Shells) -> None:
    away = GroupExtensions(leader="m-1", standbys=["m-4"], expected=[ExpectedMember("node-4", 1_000, False)])
    _, out, _ = shell_of(group(away))(*DESCRIBE, "--members")
    assert [(row[1], row[-1]) for row in cells(out) if row[2] == "node-4"] == [("m-4", "expected")]


def test_on_apache_kafka_no_member_has_a_role(shell_of: Shells) -> None:
    shell = shell_of(group(None), holdfast=False)
    code, out, errors = shell(*DESCRIBE, "--members")
    assert (code, errors) == (0, "")
    assert [row[-1] for row in cells(out)] == ["ROLE", "-", "-", "-", "-"]
    (reported,) = shell.json(*DESCRIBE, "--members")
    assert ({one["role"] for one in reported["members"]}, reported["expected"]) == ({None}, None)


STATE = ("#MEMBERS", "GENERATION", "EPOCH", "STANDBYS", "EXPECTED", "TARGET", "LAST-REBALANCE", "CAUSE")
OF_THE_EXTENSIONS = (
    *("epoch", "leader", "settled", "standbys", "expected"),
    *("target_size", "standby_takeover_ms", "vacancies"),
)


def test_the_state_has_standbys_and_expected_members(shell_of: Shells) -> None:
    shell = shell_of(group(GROUP_WITH_STANDBYS))
    code, out, errors = shell(*DESCRIBE, "--state")
    assert (code, errors) == (0, "")
    header, row = cells(out)
    assert tuple(header[-8:]) == STATE
    assert row[5:] == ["4", "4", "4000001", "1", "2", "(1", "arrived)", "2", "-", "-"]
    (reported,) = shell.json(*DESCRIBE, "--state")
    assert (reported["generation"], reported["epoch"], reported["leader"], reported["settled"]) == (
        4,
        4_000_001,
        "m-1",
        True,
    )
    assert (reported["standbys"], reported["target_size"], reported["standby_takeover_ms"]) == (1, 2, None)
    assert [one["instance_id"] for one in reported["expected"]] == ["node-4", "node-5"]
    assert reported["vacancies"] == 0


def test_a_group_without_any_of_it_says_so_in_the_state(shell_of: Shells) -> None:
    shell = shell_of(group(GroupExtensions(generation_id=4, assignment_epoch=4_000_000, leader="m-1")))
    _, out, _ = shell(*DESCRIBE, "--state")
    assert cells(out)[1][5:] == ["4", "4", "4000000", "0", "0", "-", "-", "-"]


def test_on_apache_kafka_the_state_has_dashes(shell_of: Shells) -> None:
    shell = shell_of(group(None), holdfast=False)
    code, out, errors = shell(*DESCRIBE, "--state")
    assert (code, errors) == (0, "")
    assert cells(out)[1][5:] == ["4", *["-"] * 7]
    (reported,) = shell.json(*DESCRIBE, "--state")
    assert {reported[name] for name in OF_THE_EXTENSIONS} == {None}


# -- watch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extensions", "reported"),
    [
        (GROUP_WITH_STANDBYS, "g: Stable, 4 members (1 standby), 2 expected (1 arrived), lag 0"),
        (GroupExtensions(standbys=["m-3", "m-4"]), "g: Stable, 4 members (2 standbys), lag 0"),
        (None, "g: Stable, 4 members, lag 0"),
    ],
)
def test_the_screen_counts_standbys_and_expected_members(extensions: GroupExtensions | None, reported: str) -> None:
    with ScriptedServer(Coordinator(group(extensions))) as server, admin_of(server) as admin:
        described = admin.describe_group("g")
    first, *rest = screen(described, [], [], 2.0)
    assert first.startswith(f"{reported}   (")
    assert any("expected" in line.split() for line in rest) == (extensions is GROUP_WITH_STANDBYS)

"""Holdfast's extensions in `describe_group`."""

from __future__ import annotations

import pytest

from holdfast.client.descriptions import ExpectedMember as Expected
from holdfast.client.descriptions import GroupDescription
from holdfast.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ExpectedMember,
    GroupExtensions,
)
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_coordinator import Coordinator, admin_of

EXTENSIONS = GroupExtensions(
    generation_id=4,
    assignment_epoch=4_000_001,
    leader="m-1",
    settled=True,
    target_size=2,
    standby_takeover_ms=5_000,
    standbys=["m-3"],
    expected=[ExpectedMember("instance-9", 1_000, False)],
    vacancies=1,
)


def group(extensions: GroupExtensions | None) -> DescribeGroupsResponse:
    members = [DescribedGroupMember(f"m-{number}", None, "client", "/127.0.0.1", b"", b"") for number in (1, 2, 3)]
    return DescribeGroupsResponse(
        groups=[DescribedGroup(0, None, "g", "Stable", "consumer", "range", members, extensions=extensions)]
    )


def described(coordinator: Coordinator) -> GroupDescription:
    with ScriptedServer(coordinator) as server, admin_of(server) as admin:
        return admin.describe_group("g")


def test_a_holdfast_returns_its_extensions() -> None:
    coordinator = Coordinator(group(EXTENSIONS))

    found = described(coordinator)

    assert [one.include_extensions for one in coordinator.messages()] == [True]
    extensions = found.extensions
    assert extensions is not None
    assert (extensions.generation, extensions.epoch, extensions.leader, extensions.settled) == (
        4,
        4_000_001,
        "m-1",
        True,
    )
    assert (extensions.target_size, extensions.standby_takeover_ms, extensions.vacancies) == (2, 5_000, 1)
    assert (extensions.standbys, extensions.expected) == (("m-3",), (Expected("instance-9", 1_000, False),))
    assert [(one.member_id, one.is_standby) for one in found.members] == [("m-1", False), ("m-2", False), ("m-3", True)]


def test_what_is_off_is_none() -> None:
    extensions = described(Coordinator(group(GroupExtensions()))).extensions
    assert extensions is not None
    assert (extensions.target_size, extensions.standby_takeover_ms, extensions.standbys, extensions.expected) == (
        None,
        None,
        (),
        (),
    )


def test_no_other_server_is_sent_the_tag() -> None:
    coordinator = Coordinator(group(None), holdfast=False)

    found = described(coordinator)

    assert [one.include_extensions for one in coordinator.messages()] == [False]
    assert found.extensions is None
    assert not any(one.is_standby for one in found.members)


@pytest.mark.parametrize("holdfast", [True, False])
def test_the_rest_of_the_description_is_the_same(holdfast: bool) -> None:
    found = described(Coordinator(group(EXTENSIONS if holdfast else None), holdfast=holdfast))
    assert (found.state, found.protocol_type, found.protocol, len(found.members)) == ("Stable", "consumer", "range", 3)

"""Describe, list and delete groups. The numbers are those of the behaviours in `tests/conformance`."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.member import Client
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, lone_member, pair


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_no_such_group(version: int, code: ErrorCode) -> None:
    described = CoordinatorHarness().describe(version=version)

    assert (described.error_code, described.group_state, described.members) == (code, "Dead", [])


def test_members_are_shown_with_what_holds() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness, assignment=b"mine")
    joined(member)

    (shown,) = harness.describe().members
    assert harness.describe().group_state == "CompletingRebalance"
    assert (shown.member_metadata, shown.member_assignment, harness.describe().protocol_data) == (b"", b"", "")
    member.sync()
    (shown,) = harness.describe().members

    assert (shown.member_id, shown.member_metadata, shown.member_assignment) == (member.id, b"metadata", b"mine")
    assert harness.describe().protocol_data == "range"


def test_an_emptied_group_keeps_its_protocol_type() -> None:
    harness = CoordinatorHarness()
    lone_member(harness).leave()

    described = harness.describe()

    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Empty", "consumer", "")


def test_a_described_member_has_its_client_id_and_host() -> None:
    harness = CoordinatorHarness()
    lone_member(harness, client=Client("my-app", "/10.0.0.7"))

    (shown,) = harness.describe().members

    assert (shown.client_id, shown.client_host) == ("my-app", "/10.0.0.7")


@pytest.mark.parametrize(
    ("state", "count"), [("Stable", 1), ("stable", 1), ("Empty", 0), ("PreparingRebalance", 0), ("Dead", 0), ("?", 0)]
)
def test_listing_by_state(state: str, count: int) -> None:
    harness = CoordinatorHarness()
    lone_member(harness)

    code, groups = harness.coordinator.list_groups([state], [])

    assert (code, len(groups)) == (ErrorCode.NONE, count)


@pytest.mark.parametrize(("kinds", "count"), [(["Classic"], 2), (["consumer"], 0), ([], 2)])
def test_listing_by_type(kinds: list[str], count: int) -> None:
    harness = CoordinatorHarness()
    lone_member(harness)
    harness.commit({("t", 0): 1}, group="simple")

    _, groups = harness.coordinator.list_groups([], kinds)

    assert len(groups) == count
    assert {group.protocol_type for group in groups} <= {"consumer", ""}


def test_a_group_with_members_is_not_deleted() -> None:
    harness = CoordinatorHarness()
    lone_member(harness)

    assert harness.delete() == ErrorCode.NON_EMPTY_GROUP


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    member.leave()

    assert harness.delete() == ErrorCode.NONE
    assert (harness.state(), harness.fetch()) == ("Dead", {})
    harness.restart()
    assert (harness.state(), harness.fetch()) == ("Dead", {})


def test_a_deletion_that_cannot_be_stored_deletes_nothing() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    member.leave()
    harness.fail_appends()

    assert harness.delete() == ErrorCode.NOT_COORDINATOR
    assert (harness.state(), harness.fetch()) == ("Empty", {("t", 0): 5})
    assert harness.delete() == ErrorCode.NONE


def test_an_unknown_group() -> None:
    assert CoordinatorHarness().delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_instance_ids_are_described() -> None:
    harness = CoordinatorHarness()
    pair(harness)
    newcomer = Consumer(harness)
    newcomer.join()

    assert sorted(str(member.group_instance_id) for member in harness.describe().members) == ["F", "L", "None"]

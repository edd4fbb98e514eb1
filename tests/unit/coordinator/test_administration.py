"""Describe, list and delete: the rest of §6.N, by number."""

from __future__ import annotations

import pytest

from holdfast.coordinator.members import Client
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, lone_member, pair


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_n186_no_such_group(version: int, code: ErrorCode) -> None:
    described = Bench().describe(version=version)

    assert (described.error_code, described.group_state, described.members) == (code, "Dead", [])


def test_n187_members_are_shown_with_what_holds() -> None:
    bench = Bench()
    member = dynamic(bench, assignment=b"mine")
    joined(member)

    (shown,) = bench.describe().members
    assert bench.describe().group_state == "CompletingRebalance"
    assert (shown.member_metadata, shown.member_assignment, bench.describe().protocol_data) == (b"", b"", "")
    member.sync()
    (shown,) = bench.describe().members

    assert (shown.member_id, shown.member_metadata, shown.member_assignment) == (member.id, b"metadata", b"mine")
    assert bench.describe().protocol_data == "range"


def test_n188_an_emptied_group_keeps_its_protocol_type() -> None:
    bench = Bench()
    lone_member(bench).leave()

    described = bench.describe()

    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Empty", "consumer", "")


def test_n189_who_the_member_is() -> None:
    bench = Bench()
    lone_member(bench, client=Client("my-app", "/10.0.0.7"))

    (shown,) = bench.describe().members

    assert (shown.client_id, shown.client_host) == ("my-app", "/10.0.0.7")


@pytest.mark.parametrize(
    ("state", "count"), [("Stable", 1), ("stable", 1), ("Empty", 0), ("PreparingRebalance", 0), ("Dead", 0), ("?", 0)]
)
def test_n190_listing_by_state(state: str, count: int) -> None:
    bench = Bench()
    lone_member(bench)

    code, groups = bench.coordinator.list_groups([state], [])

    assert (code, len(groups)) == (ErrorCode.NONE, count)


@pytest.mark.parametrize(("kinds", "count"), [(["Classic"], 2), (["consumer"], 0), ([], 2)])
def test_n192_listing_by_type(kinds: list[str], count: int) -> None:
    bench = Bench()
    lone_member(bench)
    bench.commit({("t", 0): 1}, group="simple")

    _, groups = bench.coordinator.list_groups([], kinds)

    assert len(groups) == count
    assert {group.protocol_type for group in groups} <= {"consumer", ""}


def test_n193_a_group_with_members_is_not_deleted() -> None:
    bench = Bench()
    lone_member(bench)

    assert bench.delete() == ErrorCode.NON_EMPTY_GROUP


def test_n194_an_empty_group_is_deleted_with_its_offsets() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    member.leave()

    assert bench.delete() == ErrorCode.NONE
    assert (bench.state(), bench.fetch()) == ("Dead", {})
    bench.restart()
    assert (bench.state(), bench.fetch()) == ("Dead", {})


def test_n194_a_deletion_that_cannot_be_stored_deletes_nothing() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    member.leave()
    bench.fail_appends()

    assert bench.delete() == ErrorCode.NOT_COORDINATOR
    assert (bench.state(), bench.fetch()) == ("Empty", {("t", 0): 5})
    assert bench.delete() == ErrorCode.NONE


def test_n195_an_unknown_group() -> None:
    assert Bench().delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_instance_ids_are_described() -> None:
    bench = Bench()
    pair(bench)
    newcomer = Consumer(bench)
    newcomer.join()

    assert sorted(str(member.group_instance_id) for member in bench.describe().members) == ["F", "L", "None"]

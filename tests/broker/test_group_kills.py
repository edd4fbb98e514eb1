"""kill -9 wherever something is written while a group is used: what its members got acknowledged still holds.

Each test lets a group do one thing on a broker that ends itself at the first, second, third … change to the disk, until
the thing is done before the broker ends. After each end the broker starts again and is held to what it said.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.broker.crash_at_write import KillableBroker
from tests.broker.crash_matrix import (
    GROUP,
    NONE,
    SETTINGS,
    Acknowledged,
    AcknowledgedGroup,
    an_empty_group,
    another_group,
    check,
    crash_at_every_point,
    no_group,
    two_members,
)
from tests.broker.group_members import WireMember, wait_for_state
from tests.broker.wire_client import WireClient


@pytest.mark.parametrize("flush", ["os", "always"])
def test_the_first_group_of_all(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        group.join("a")

    assert crash_at_every_point(data_path, no_group, act, flush) > 10


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_group_forms_and_syncs(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        group.join("a")
        group.sync("a")
        group.join("b", "a")
        group.sync("a", "b")

    # Four records, each before, half and whole.
    assert crash_at_every_point(data_path, another_group, act, flush) >= 12


@pytest.mark.parametrize("flush", ["os", "always"])
def test_offsets_are_committed(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        group.commit("a", 0, 11)
        group.commit("b", 1, 21)
        group.commit("a", 0, 12)

    assert crash_at_every_point(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_static_members_are_replaced(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        group.restart("b")
        group.commit("b", 1, 21)
        group.restart("a")
        group.commit("a", 0, 11)

    assert crash_at_every_point(data_path, two_members, act, flush) >= 12


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_member_leaves_and_then_the_last(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        group.leave("b")
        group.join("a")
        group.sync("a")
        group.leave("a")
        with WireClient(group.address) as client:
            wait_for_state(client, GROUP, "Empty")

    assert crash_at_every_point(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_group_is_deleted_and_another_takes_its_name(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        with WireClient(group.address) as client:
            group.delete(client)
        group.join("a")
        group.sync("a")

    assert crash_at_every_point(data_path, an_empty_group, act, flush) >= 9


def test_a_deleted_group_that_only_has_offsets_again_does_not_forget_its_generation(data_path: Path) -> None:
    """A tool commits for the name of a deleted group, and the broker restarts: then there is only an offset."""

    def act(group: AcknowledgedGroup) -> None:
        with WireClient(group.address) as client:
            group.delete(client)
        group.acknowledged.offsets_in_flight[0] = 5
        with WireMember(group.address, GROUP) as tool:
            assert tool.commit(5) == NONE
        group.acknowledged.offsets[0] = group.acknowledged.offsets_in_flight.pop(0)

    crash_at_every_point(data_path, an_empty_group, act, "os")


# -- controls ----------------------------------------------------------------------------------------------------------


def test_the_check_sees_what_is_lost(data_path: Path) -> None:
    """The control: without the last record of the group log, each of the checks complains."""
    settings = {**SETTINGS, "flush": "os"}
    reported = Acknowledged()
    with KillableBroker(data_path / "data", settings) as broker, AcknowledgedGroup(broker.address, reported) as group:
        with WireClient(broker.address) as client:
            client.create_topic("orders", partitions=2)
        two_members(group)
        before = (data_path / "data" / "__consumer_offsets-0" / f"{0:020d}.log").read_bytes()
        group.restart("b")
        group.commit("a", 0, 11)
        group.join("a", "b")  # the leader's join alone makes a new generation

    def lose(found: Acknowledged) -> None:
        data = data_path / "lost"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(data_path / "data", data)
        (data / "__consumer_offsets-0" / f"{0:020d}.log").write_bytes(before)
        with KillableBroker(data, settings) as broker:
            check(broker.address, found)

    with pytest.raises(AssertionError, match="is none of"):
        lose(reported)
    without_offsets = dataclasses.replace(reported, offsets={0: 10, 1: 20})
    with pytest.raises(AssertionError, match="b got"):
        lose(without_offsets)
    without_members = dataclasses.replace(without_offsets, members={}, generation=99)
    with pytest.raises(AssertionError, match="after 99"):
        lose(without_members)
    lose(dataclasses.replace(without_members, generation=2))

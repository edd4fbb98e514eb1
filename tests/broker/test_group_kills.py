"""kill -9 wherever something is written while a group lives: what its members were told still holds afterwards.

Each test lets a group do one thing on a broker that ends itself at the first, second, third … change to the disk, until
the thing is done before the broker ends. After each end the broker starts again and is held to what it said.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.broker.group_kills import (
    GROUP,
    NONE,
    SETTINGS,
    Teller,
    Told,
    an_empty_group,
    another_group,
    check,
    kill_everywhere,
    nobody,
    two_members,
)
from tests.broker.group_members import WireMember, wait_for_state
from tests.broker.killable import KillableBroker
from tests.broker.wire_client import WireClient


@pytest.mark.parametrize("flush", ["os", "always"])
def test_the_first_group_of_all(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        teller.join("a")

    assert kill_everywhere(data_path, nobody, act, flush) > 10


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_group_forms_and_syncs(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        teller.join("a")
        teller.sync("a")
        teller.join("b", "a")
        teller.sync("a", "b")

    # Four records, each before, half and whole.
    assert kill_everywhere(data_path, another_group, act, flush) >= 12


@pytest.mark.parametrize("flush", ["os", "always"])
def test_offsets_are_committed(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        teller.commit("a", 0, 11)
        teller.commit("b", 1, 21)
        teller.commit("a", 0, 12)

    assert kill_everywhere(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_static_members_are_replaced(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        teller.restart("b")
        teller.commit("b", 1, 21)
        teller.restart("a")
        teller.commit("a", 0, 11)

    assert kill_everywhere(data_path, two_members, act, flush) >= 12


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_member_leaves_and_then_the_last(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        teller.leave("b")
        teller.join("a")
        teller.sync("a")
        teller.leave("a")
        with WireClient(teller.address) as client:
            wait_for_state(client, GROUP, "Empty")

    assert kill_everywhere(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_group_is_deleted_and_another_takes_its_name(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        with WireClient(teller.address) as client:
            teller.delete(client)
        teller.join("a")
        teller.sync("a")

    assert kill_everywhere(data_path, an_empty_group, act, flush) >= 9


def test_a_deleted_group_that_only_has_offsets_again_does_not_forget_its_generation(data_path: Path) -> None:
    """A tool commits for the name of a deleted group, and the broker restarts: then there is only an offset."""

    def act(teller: Teller) -> None:
        with WireClient(teller.address) as client:
            teller.delete(client)
        teller.told.offsets_in_flight[0] = 5
        with WireMember(teller.address, GROUP) as tool:
            assert tool.commit(5) == NONE
        teller.told.offsets[0] = teller.told.offsets_in_flight.pop(0)

    kill_everywhere(data_path, an_empty_group, act, "os")


# -- controls ----------------------------------------------------------------------------------------------------------


def test_the_check_sees_what_is_lost(data_path: Path) -> None:
    """The control: without the journal's last record, each of the checks complains."""
    settings = {**SETTINGS, "flush": "os"}
    told = Told()
    with KillableBroker(data_path / "data", settings) as broker, Teller(broker.address, told) as teller:
        with WireClient(broker.address) as client:
            client.create_topic("orders", partitions=2)
        two_members(teller)
        before = (data_path / "data" / "__consumer_offsets-0" / f"{0:020d}.log").read_bytes()
        teller.restart("b")
        teller.commit("a", 0, 11)
        teller.join("a", "b")  # the leader's join alone makes a new generation

    def lose(found: Told) -> None:
        data = data_path / "lost"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(data_path / "data", data)
        (data / "__consumer_offsets-0" / f"{0:020d}.log").write_bytes(before)
        with KillableBroker(data, settings) as broker:
            check(broker.address, found)

    with pytest.raises(AssertionError, match="is none of"):
        lose(told)
    without_offsets = dataclasses.replace(told, offsets={0: 10, 1: 20})
    with pytest.raises(AssertionError, match="b was told"):
        lose(without_offsets)
    without_members = dataclasses.replace(without_offsets, members={}, generation=99)
    with pytest.raises(AssertionError, match="after 99"):
        lose(without_members)
    lose(dataclasses.replace(without_members, generation=2))

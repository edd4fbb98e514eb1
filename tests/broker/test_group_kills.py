"""kill -9 wherever something is written while a group lives: what its members were told still holds afterwards.

Each test lets a group do one thing on a broker that ends itself at the first, second, third … change to the disk, until
the thing is done before the broker ends. After each end the broker starts again and is held to what it said.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.wire.apis.leave_group import MemberIdentity
from tests.broker.group_members import (
    WireMember,
    committed,
    delete_group,
    described,
    partitions,
    wait_for_ledger,
    wait_for_state,
    wait_until_loaded,
)
from tests.broker.killable import KillableBroker
from tests.broker.wire_client import WireClient

GROUP = "readers"
MOST_POINTS = 200
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "3600000",
}
"""Nothing but what the group does changes the disk."""
NONE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, GROUP_ID_NOT_FOUND = 0, 25, 82, 69


@pytest.fixture
def data_path() -> Iterator[Path]:
    """In memory where there is such a place: a kill, unlike a power cut, spares what the system holds."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@dataclasses.dataclass
class Told:
    """What the members of a group were told, and what was asked and not answered: that may have happened or not."""

    generation: int = 0
    """The highest that anybody was told."""
    offsets: dict[int, int] = dataclasses.field(default_factory=dict)
    offsets_in_flight: dict[int, int] = dataclasses.field(default_factory=dict)
    members: dict[str, str] = dataclasses.field(default_factory=dict)
    """The member id that each instance id was given last."""
    members_in_flight: set[str] = dataclasses.field(default_factory=set)
    """Instance ids that join anew, or leave."""
    assigned: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """What each instance id was given in the generation that was told last; nothing while another one is asked for."""
    deleting: bool = False
    deleted: bool = False

    def copy(self) -> Told:
        return Told(
            self.generation,
            dict(self.offsets),
            {},
            dict(self.members),
            set(),
            dict(self.assigned),
            deleted=self.deleted,
        )


class Teller:
    """One broker, its clients, and the record of what they were told."""

    def __init__(self, address: tuple[str, int], told: Told) -> None:
        self.address = address
        self.told = told
        self._members: dict[str, WireMember] = {}

    def __enter__(self) -> Teller:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.socket.close()

    def member(self, instance_id: str) -> WireMember:
        """The member with its own connection; it knows the id that it was told."""
        if instance_id not in self._members:
            known = self.told.members.get(instance_id, "")
            self._members[instance_id] = WireMember(self.address, GROUP, instance_id, known, self.told.generation)
        return self._members[instance_id]

    def join(self, *instance_ids: str) -> None:
        """All of these meet in a new generation; the first of them must come last into an existing group."""
        self.told.assigned.clear()
        for number, instance_id in enumerate(instance_ids):
            member = self.member(instance_id)
            if not member.member_id:
                self.told.members_in_flight.add(instance_id)
            member.send_join()
            if number < len(instance_ids) - 1:
                with WireClient(self.address) as client:
                    wait_for_state(client, GROUP, "PreparingRebalance")
        for instance_id in instance_ids:
            self._joined(instance_id)

    def restart(self, instance_id: str) -> None:
        """KIP-345: the same instance without its memory."""
        self._members.pop(instance_id, None)
        self._members[instance_id] = WireMember(self.address, GROUP, instance_id)
        self.told.members_in_flight.add(instance_id)
        self._members[instance_id].send_join()
        self._joined(instance_id)

    def _joined(self, instance_id: str) -> None:
        answer = self.member(instance_id).joined()
        assert answer.error_code == NONE, answer
        assert answer.generation_id >= self.told.generation, "generations do not go back"
        self.told.generation = answer.generation_id
        self.told.members[instance_id] = answer.member_id
        self.told.members_in_flight.discard(instance_id)

    def sync(self, *instance_ids: str) -> None:
        plan = {self.member(name).member_id: partitions(number) for number, name in enumerate(instance_ids)}
        for name in instance_ids:
            member = self.member(name)
            member.send_sync(plan if member.leader == member.member_id else None)
        for name in instance_ids:
            answer = self.member(name).synced()
            assert (answer.error_code, answer.assignment) == (NONE, plan[self.member(name).member_id])
            self.told.assigned[name] = answer.assignment

    def commit(self, instance_id: str, partition: int, offset: int) -> None:
        self.told.offsets_in_flight[partition] = offset
        assert self.member(instance_id).commit(offset, partition=partition) == NONE
        self.told.offsets[partition] = self.told.offsets_in_flight.pop(partition)

    def leave(self, instance_id: str) -> None:
        self.told.members_in_flight.add(instance_id)
        self.told.assigned.clear()
        answer = self.member(instance_id).leave()
        assert [entry.error_code for entry in answer.members] == [NONE]
        self.told.members.pop(instance_id)

    def delete(self, client: WireClient) -> None:
        self.told.deleting = True
        self.told.assigned.clear()
        assert delete_group(client, GROUP) == NONE
        self.told.offsets.clear()
        self.told.deleting, self.told.deleted = False, True


# -- what must hold ----------------------------------------------------------------------------------------------------


def check(address: tuple[str, int], told: Told) -> None:
    with WireClient(address) as client:
        wait_until_loaded(client)
        _check_offsets(client, told)
        for instance_id in told.members:
            _check_member(address, told, instance_id)
        _check_a_new_member_is_above(address, client, told)


def _check_offsets(client: WireClient, told: Told) -> None:
    found = {partition: offset for (_, partition), offset in committed(client, GROUP).items()}
    if told.deleting and not found:
        return
    possible = [told.offsets, told.offsets | told.offsets_in_flight]
    assert found in possible, f"{found} is none of {possible}"


def _check_member(address: tuple[str, int], told: Told, instance_id: str) -> None:
    with WireMember(address, GROUP, instance_id, told.members[instance_id], told.generation) as member:
        code = member.heartbeat()
        if instance_id in told.members_in_flight or told.deleting:
            return
        assert code not in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID), f"{instance_id} was told {member.member_id}: {code}"
        if instance_id in told.assigned and not told.members_in_flight:
            assert code == NONE
            answer = member.sync()
            assert (answer.error_code, answer.assignment) == (NONE, told.assigned[instance_id])


def _check_a_new_member_is_above(address: tuple[str, int], client: WireClient, told: Told) -> None:
    """All who are there are taken out, then one joins: its generation is one that nobody was told before."""
    there = [MemberIdentity(member.member_id) for member in described(client, GROUP).members]
    with WireMember(address, GROUP) as newcomer:
        if there:
            newcomer.leave(*there)
        generation = newcomer.join(version=3).generation_id
        assert generation > told.generation, f"generation {generation} after {told.generation}"
        assert newcomer.sync({newcomer.member_id: partitions(0)}).assignment == partitions(0)
        assert newcomer.commit(99) == NONE


Act = Callable[[Teller], None]


def kill_everywhere(
    data_path: Path, prepare: Act, act: Act, flush: str, *, check: Callable[[tuple[str, int], Told], None] = check
) -> int:
    """Returns how many points there were."""
    settings = {**SETTINGS, "flush": flush}
    prepared = Told()
    with KillableBroker(data_path / "prepared", settings) as broker, Teller(broker.address, prepared) as teller:
        with WireClient(broker.address) as client:
            client.create_topic("orders", partitions=2)
        prepare(teller)
    for point in range(1, MOST_POINTS):
        data = data_path / f"point-{point}"
        shutil.copytree(data_path / "prepared", data)
        told = prepared.copy()
        with KillableBroker(data, settings) as broker:
            done = _done(broker, act, told, point)
        with KillableBroker(data, settings) as broker:
            assert broker.address[1], f"it does not start after a kill at point {point}"
            check(broker.address, told)
        shutil.rmtree(data)
        if done:
            return point - 1
    pytest.fail(f"not done after {MOST_POINTS} changes to the disk")


def _done(broker: KillableBroker, act: Act, told: Told, point: int) -> bool:
    try:
        with WireClient(broker.address) as client:
            wait_until_loaded(client)
        broker.arm(point)
        with Teller(broker.address, told) as teller:
            act(teller)
    except ConnectionError:
        return False
    return True


# -- what groups do ----------------------------------------------------------------------------------------------------


def nobody(teller: Teller) -> None:
    """No preparation."""


def another_group(teller: Teller) -> None:
    """The topics of groups and ledger exist."""
    with WireMember(teller.address, "another") as member:
        member.join()
        wait_for_ledger(member)


def two_members(teller: Teller) -> None:
    another_group(teller)
    teller.join("a")
    teller.join("b", "a")
    teller.sync("a", "b")
    teller.commit("a", 0, 10)
    teller.commit("b", 1, 20)


def an_empty_group(teller: Teller) -> None:
    two_members(teller)
    teller.leave("a")
    teller.leave("b")


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

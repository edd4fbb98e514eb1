"""A group that lives on a broker which ends itself, at the first, second, third … change to the disk.

After each end the broker starts again and is held to what it said: `kill_everywhere`. What was said is in `Told`.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
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
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "3600000",
}
"""Nothing but what the group does changes the disk."""
NONE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, GROUP_ID_NOT_FOUND = 0, 25, 82, 69


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
Check = Callable[[tuple[str, int], Told], None]


def kill_everywhere(data_path: Path, prepare: Act, act: Act, flush: str, *, check: Check = check) -> int:
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

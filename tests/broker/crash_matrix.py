"""A group on a broker that ends itself, at the first, second, third … change to the disk.

After each end the broker starts again and is held to what it said: `crash_at_every_point`. `Acknowledged` has what it
said."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.wire.apis.leave_group import MemberIdentity
from tests.broker.crash_at_write import KillableBroker
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
from tests.broker.wire_client import WireClient

GROUP = "readers"
MAX_POINTS = 200
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "3600000",
}
"""Nothing but what the group does changes the disk."""
NONE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, GROUP_ID_NOT_FOUND = 0, 25, 82, 69


@dataclasses.dataclass
class Acknowledged:
    """What the members of a group got acknowledged, and requests without a response, which may have taken effect."""

    generation: int = 0
    """The highest one that was acknowledged."""
    offsets: dict[int, int] = dataclasses.field(default_factory=dict)
    offsets_in_flight: dict[int, int] = dataclasses.field(default_factory=dict)
    members: dict[str, str] = dataclasses.field(default_factory=dict)
    """The member id that each instance id was given last."""
    members_in_flight: set[str] = dataclasses.field(default_factory=set)
    """Instance ids that join again, or leave."""
    assigned: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """The assignment of each instance id in the last acknowledged generation; nothing while another one is
    requested."""
    deleting: bool = False
    deleted: bool = False

    def copy(self) -> Acknowledged:
        return Acknowledged(
            self.generation,
            dict(self.offsets),
            {},
            dict(self.members),
            set(),
            dict(self.assigned),
            deleted=self.deleted,
        )


class AcknowledgedGroup:
    """One broker, its clients, and the record of what they got acknowledged."""

    def __init__(self, address: tuple[str, int], reported: Acknowledged) -> None:
        self.address = address
        self.acknowledged = reported
        self._members: dict[str, WireMember] = {}

    def __enter__(self) -> AcknowledgedGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.socket.close()

    def member(self, instance_id: str) -> WireMember:
        """The member with its own connection; it knows the id that it got."""
        if instance_id not in self._members:
            known = self.acknowledged.members.get(instance_id, "")
            self._members[instance_id] = WireMember(
                self.address, GROUP, instance_id, known, self.acknowledged.generation
            )
        return self._members[instance_id]

    def join(self, *instance_ids: str) -> None:
        """All of these meet in a new generation; the first of them must come last into an existing group."""
        self.acknowledged.assigned.clear()
        for number, instance_id in enumerate(instance_ids):
            member = self.member(instance_id)
            if not member.member_id:
                self.acknowledged.members_in_flight.add(instance_id)
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
        self.acknowledged.members_in_flight.add(instance_id)
        self._members[instance_id].send_join()
        self._joined(instance_id)

    def _joined(self, instance_id: str) -> None:
        answer = self.member(instance_id).joined()
        assert answer.error_code == NONE, answer
        assert answer.generation_id >= self.acknowledged.generation, "generations do not go back"
        self.acknowledged.generation = answer.generation_id
        self.acknowledged.members[instance_id] = answer.member_id
        self.acknowledged.members_in_flight.discard(instance_id)

    def sync(self, *instance_ids: str) -> None:
        plan = {self.member(name).member_id: partitions(number) for number, name in enumerate(instance_ids)}
        for name in instance_ids:
            member = self.member(name)
            member.send_sync(plan if member.leader == member.member_id else None)
        for name in instance_ids:
            answer = self.member(name).synced()
            assert (answer.error_code, answer.assignment) == (NONE, plan[self.member(name).member_id])
            self.acknowledged.assigned[name] = answer.assignment

    def commit(self, instance_id: str, partition: int, offset: int) -> None:
        self.acknowledged.offsets_in_flight[partition] = offset
        assert self.member(instance_id).commit(offset, partition=partition) == NONE
        self.acknowledged.offsets[partition] = self.acknowledged.offsets_in_flight.pop(partition)

    def leave(self, instance_id: str) -> None:
        self.acknowledged.members_in_flight.add(instance_id)
        self.acknowledged.assigned.clear()
        answer = self.member(instance_id).leave()
        assert [entry.error_code for entry in answer.members] == [NONE]
        self.acknowledged.members.pop(instance_id)

    def delete(self, client: WireClient) -> None:
        self.acknowledged.deleting = True
        self.acknowledged.assigned.clear()
        assert delete_group(client, GROUP) == NONE
        self.acknowledged.offsets.clear()
        self.acknowledged.deleting, self.acknowledged.deleted = False, True


# -- what must hold ----------------------------------------------------------------------------------------------------


def check(address: tuple[str, int], reported: Acknowledged) -> None:
    with WireClient(address) as client:
        wait_until_loaded(client)
        _check_offsets(client, reported)
        for instance_id in reported.members:
            _check_member(address, reported, instance_id)
        _check_a_new_member_is_above(address, client, reported)


def _check_offsets(client: WireClient, reported: Acknowledged) -> None:
    found = {partition: offset for (_, partition), offset in committed(client, GROUP).items()}
    if reported.deleting and not found:
        return
    possible = [reported.offsets, reported.offsets | reported.offsets_in_flight]
    assert found in possible, f"{found} is none of {possible}"


def _check_member(address: tuple[str, int], reported: Acknowledged, instance_id: str) -> None:
    with WireMember(address, GROUP, instance_id, reported.members[instance_id], reported.generation) as member:
        code = member.heartbeat()
        if instance_id in reported.members_in_flight or reported.deleting:
            return
        assert code not in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID), f"{instance_id} got {member.member_id}: {code}"
        if instance_id in reported.assigned and not reported.members_in_flight:
            assert code == NONE
            answer = member.sync()
            assert (answer.error_code, answer.assignment) == (NONE, reported.assigned[instance_id])


def _check_a_new_member_is_above(address: tuple[str, int], client: WireClient, reported: Acknowledged) -> None:
    """All members are removed, then one joins: its generation was never acknowledged before."""
    there = [MemberIdentity(member.member_id) for member in described(client, GROUP).members]
    with WireMember(address, GROUP) as newcomer:
        if there:
            newcomer.leave(*there)
        generation = newcomer.join(version=3).generation_id
        assert generation > reported.generation, f"generation {generation} after {reported.generation}"
        assert newcomer.sync({newcomer.member_id: partitions(0)}).assignment == partitions(0)
        assert newcomer.commit(99) == NONE


Act = Callable[[AcknowledgedGroup], None]
Check = Callable[[tuple[str, int], Acknowledged], None]


def crash_at_every_point(data_path: Path, prepare: Act, act: Act, flush: str, *, check: Check = check) -> int:
    """Returns how many points there were."""
    settings = {**SETTINGS, "flush": flush}
    prepared = Acknowledged()
    with (
        KillableBroker(data_path / "prepared", settings) as broker,
        AcknowledgedGroup(broker.address, prepared) as group,
    ):
        with WireClient(broker.address) as client:
            client.create_topic("orders", partitions=2)
        prepare(group)
    for point in range(1, MAX_POINTS):
        data = data_path / f"point-{point}"
        shutil.copytree(data_path / "prepared", data)
        reported = prepared.copy()
        with KillableBroker(data, settings) as broker:
            done = _done(broker, act, reported, point)
        with KillableBroker(data, settings) as broker:
            assert broker.address[1], f"it does not start after a kill at point {point}"
            check(broker.address, reported)
        shutil.rmtree(data)
        if done:
            return point - 1
    pytest.fail(f"not done after {MAX_POINTS} changes to the disk")


def _done(broker: KillableBroker, act: Act, reported: Acknowledged, point: int) -> bool:
    try:
        with WireClient(broker.address) as client:
            wait_until_loaded(client)
        broker.arm(point)
        with AcknowledgedGroup(broker.address, reported) as group:
            act(group)
    except ConnectionError:
        return False
    return True


# -- what groups do ----------------------------------------------------------------------------------------------------


def no_group(group: AcknowledgedGroup) -> None:
    """No preparation."""


def another_group(group: AcknowledgedGroup) -> None:
    """The topics of groups and ledger exist."""
    with WireMember(group.address, "another") as member:
        member.join()
        wait_for_ledger(member)


def two_members(group: AcknowledgedGroup) -> None:
    another_group(group)
    group.join("a")
    group.join("b", "a")
    group.sync("a", "b")
    group.commit("a", 0, 10)
    group.commit("b", 1, 20)


def an_empty_group(group: AcknowledgedGroup) -> None:
    two_members(group)
    group.leave("a")
    group.leave("b")

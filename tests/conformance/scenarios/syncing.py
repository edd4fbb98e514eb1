"""6.I: the leader hands in the assignment, the others wait for it."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, Member, joined, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import NAMES_PROTOCOL

CHANGED = (("range", b"\x77"),)


@scenario(104)
def sync_in_an_unknown_group(scene: Scene) -> None:
    member = Member(scene, "A")
    member.protocol = "range"
    member.syncs(generation_id=1, member_id="x")
    member.syncs(generation_id=-1, member_id="")
    scene.describes()


@scenario(108, since=NAMES_PROTOCOL)
def sync_with_the_wrong_protocol(scene: Scene) -> None:
    member = Member(scene, "A", protocols=BOTH)
    joined(scene, member)
    for wrong in (
        {"protocol_type": "connect"},
        {"protocol_name": "roundrobin"},
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": ""},
        {"protocol_type": None, "group_id": "no-such-group"},
        {"protocol_type": None, "group_id": ""},
    ):
        member.syncs(**wrong)
    member.syncs({member: b"\x01"})
    member.syncs(protocol_name="roundrobin")


@scenario(110, until=NAMES_PROTOCOL - 1)
def sync_without_a_protocol(scene: Scene) -> None:
    member = Member(scene, "A")
    joined(scene, member)
    member.syncs({member: b"\x01"})


@scenario(113)
def follower_waits_for_the_leader(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    scene.describes()
    follower.sends_sync()
    follower.is_parked()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.hears()
    scene.describes()


@scenario(
    114,
    listed=[Listed(23, "assignment=x}", "assignment=x000000000000ffffffff}")],
)
def leader_forgets_a_member(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_sync()
    leader.syncs({leader: b"\x01"})
    follower.hears()
    scene.describes()


@scenario(114)
def leader_assigns_to_a_stranger(scene: Scene) -> None:
    leader, stranger = Member(scene, "A"), Member(scene, "X")
    joined(scene, leader)
    stranger.member_id = "nobody"
    leader.syncs({leader: b"\x01", stranger: b"\x02"})
    scene.describes()


@scenario()
def assignment_of_a_follower_is_ignored(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_sync({leader: b"\x08", follower: b"\x09"})
    follower.is_parked()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.hears()


@scenario(116)
def sync_while_the_group_rebalances(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    leader.syncs({leader: b"\x05"})
    leader.syncs(generation_id=leader.generation + 1)
    leader.syncs(member_id="x")


@scenario(113)
def wrong_generation_before_and_after_the_assignment(scene: Scene) -> None:
    member = Member(scene, "A")
    joined(scene, member)
    member.syncs(generation_id=2)
    member.syncs(generation_id=0)
    member.syncs(generation_id=-1)
    member.syncs(member_id="x")
    member.syncs({member: b"\x01"})
    member.syncs(generation_id=2)


@scenario(118)
def leader_dies_before_it_syncs(scene: Scene) -> None:
    leader = Member(scene, "A", session_ms=500, rebalance_ms=1500)
    follower = Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_sync()
    follower.is_parked()
    follower.hears()
    scene.describes()
    follower.joins()


@scenario(120)
def follower_never_syncs(scene: Scene) -> None:
    leader = Member(scene, "A", rebalance_ms=500, session_ms=1000)
    follower = Member(scene, "B", rebalance_ms=500, session_ms=1000)
    joined(scene, leader, follower)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.beats()
    leader.beats()
    scene.waits(0.7 if scene.row.number else 0)
    follower.beats()
    leader.beats()


@scenario(122, 124)
def all_synced_and_nothing_more_happens(scene: Scene) -> None:
    leader = Member(scene, "A", rebalance_ms=400)
    follower = Member(scene, "B", rebalance_ms=400)
    stable(scene, leader, follower)
    scene.waits(0.6)
    leader.beats()
    follower.beats()
    leader.syncs({leader: b"\x08", follower: b"\x09"})
    follower.syncs()
    scene.describes()


@scenario(
    listed=[
        Listed(
            20,
            "B hears nothing",
            "B hears SyncGroup: {error_code=25, protocol_type=None, protocol_name=None, assignment=x}",
        )
    ]
)
def member_is_removed_while_its_sync_is_parked(scene: Scene) -> None:
    leader, follower = Member(scene, "A", protocols=RANGE), Member(scene, "B", protocols=RANGE)
    joined(scene, leader, follower)
    follower.sends_sync()
    follower.is_parked()
    leader.leaves(member_id=follower.member_id)
    follower.hears()


@scenario(
    listed=[
        Listed(
            20,
            "B hears nothing",
            "B hears SyncGroup: {error_code=27, protocol_type=None, protocol_name=None, assignment=x}",
        )
    ]
)
def sync_is_superseded_by_another_of_the_same_member(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_sync()
    follower.is_parked()
    again = Member(scene, "B2")
    again.member_id, again.generation, again.protocol = follower.member_id, follower.generation, follower.protocol
    again.sends_sync()
    again.is_parked()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    again.hears()
    follower.hears()

"""6.D and 6.E: when the join phase ends, who leads, and which protocol is chosen."""

from __future__ import annotations

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import STATIC

BOTH_REVERSED = (*ROUND_ROBIN, *RANGE)
CHANGED = (("range", b"\x77"),)


@scenario(40, 44, 47)
def first_join_waits_for_the_initial_delay(scene: Scene) -> None:
    first, second = Member(scene, "A"), Member(scene, "B")
    first.sends_join()
    scene.awaits_members(1)
    second.sends_join()
    first.is_parked()
    scene.awaits_members(2)
    first.hears()
    second.hears()


@scenario(46)
def newcomer_to_a_stable_group_waits_only_for_its_members(scene: Scene) -> None:
    first, second = Member(scene, "A"), Member(scene, "B")
    stable(scene, first)
    second.sends_join()
    second.is_parked()
    scene.describes()
    first.beats()
    first.sends_join()
    first.hears()
    second.hears()
    scene.describes()


@scenario(49)
def leader_rejoins_unchanged(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    leader.sends_join()
    leader.is_parked()
    follower.beats()
    follower.joins()
    leader.hears()
    scene.describes()


@scenario(51)
def follower_rejoins_unchanged_and_then_changed(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.joins()
    scene.describes()
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    leader.beats()
    scene.describes()
    leader.joins()
    follower.hears()


@scenario(52)
def members_rejoin_unchanged_before_the_assignment(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.joins()
    leader.joins()
    scene.describes()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.syncs()


@scenario(52)
def follower_rejoins_changed_before_the_assignment(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    leader.beats()
    leader.syncs({leader: b"\x01"})
    leader.joins()
    follower.hears()


@scenario(54)
def member_that_does_not_rejoin_in_time(scene: Scene) -> None:
    absent = Member(scene, "A", rebalance_ms=400, session_ms=1900)
    present = Member(scene, "B", rebalance_ms=400, session_ms=1900)
    stable(scene, absent, present)
    present.sends_join(protocols=CHANGED)
    present.is_parked()
    present.hears() if scene.row.number else present.is_parked()
    absent.beats()
    absent.joins()


@scenario(56, since=STATIC)
def no_static_member_rejoins_in_time(scene: Scene) -> None:
    members = [Member(scene, name, name, rebalance_ms=400) for name in "ABC"]
    stable(scene, *members)
    members[2].leaves()
    scene.describes()
    scene.waits(0.45)
    scene.describes()
    members[0].beats()
    members[0].sends_join()
    members[0].is_parked()
    members[1].joins()
    members[0].hears()


@scenario(57, 59)
def protocol_with_the_most_votes(scene: Scene) -> None:
    first = Member(scene, "A", protocols=BOTH)
    second = Member(scene, "B", protocols=BOTH_REVERSED)
    third = Member(scene, "C", protocols=BOTH_REVERSED)
    stable(scene, first, second, third)
    scene.describes()


@scenario(57)
def protocol_that_all_have(scene: Scene) -> None:
    first = Member(scene, "A", protocols=BOTH)
    second = Member(scene, "B", protocols=ROUND_ROBIN)
    stable(scene, first, second)
    scene.describes()
    second.joins(protocols=RANGE)
    scene.describes()


@scenario(62)
def only_the_leader_gets_the_list(scene: Scene) -> None:
    members = [Member(scene, name, protocols=(("range", name.encode()),)) for name in "ABC"]
    stable(scene, *members)
    scene.describes()


@scenario()
def group_that_came_back_from_empty(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.leaves()
    scene.describes()
    other = Member(scene, "B")
    other.sends_join(protocol_type="connect")
    other.is_parked()
    other.hears()
    scene.describes()


@scenario(42)
def late_newcomer_prolongs_the_initial_delay(scene: Scene) -> None:
    first, second = Member(scene, "A", session_ms=1500), Member(scene, "B", session_ms=1500)
    if scene.row.hands_out_ids:
        first.takes_id()
        second.takes_id()
    first.sends_join()
    scene.awaits_members(1)
    scene.waits(0.1)
    second.sends_join()
    scene.waits(0.12)
    first.is_parked()
    first.hears()
    second.hears()


@scenario()
def requests_behind_a_parked_join_wait(scene: Scene) -> None:
    member = Member(scene, "A")
    member.sends_join()
    member.says(DescribeGroupsRequest([scene.group]))
    member.is_parked()
    member.hears()
    member.hears()


@scenario(listed=[Listed(20, "B hears nothing", "B hears JoinGroup: {error_code=27, …")])
def join_is_superseded_by_another_of_the_same_member(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    again = Member(scene, "B2", protocols=CHANGED)
    again.member_id = follower.member_id
    again.sends_join()
    again.is_parked()
    leader.joins()
    again.hears()
    follower.hears()


@scenario(
    listed=[
        Listed(
            30,
            "A hears JoinGroup: …protocol_name='roundrobin'…metadata=x03…",
            "A hears JoinGroup: …protocol_name='range'…metadata=x01…",
        ),
        Listed(30, "protocol_name='roundrobin', assignment=x01", "protocol_name='range', assignment=x01"),
    ]
)
def protocol_offered_twice(scene: Scene) -> None:
    stable(scene, Member(scene, "A", protocols=(("range", b"\x01"), ("range", b"\x02"), ("roundrobin", b"\x03"))))


@scenario(
    listed=[
        Listed(30, "protocol_name=None, leader=A.1", "protocol_name='', leader=A.1"),
        Listed(30, "A hears SyncGroup: {error_code=23, …", "A hears SyncGroup: {error_code=0, …"),
    ]
)
def protocol_without_a_name(scene: Scene) -> None:
    stable(scene, Member(scene, "A", protocols=(("", b"\x01"),)))


@scenario()
def member_rejoins_with_another_protocol_type(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.joins(protocol_type="connect")
    follower.joins(protocols=())
    leader.beats()
    follower.beats()


@scenario()
def assignment_of_a_generation_that_ended_before_its_own(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    leader.sends_join()
    leader.is_parked()
    follower.joins()
    leader.hears()
    scene.describes()
    follower.sends_join(protocols=CHANGED)
    scene.awaits_state("PreparingRebalance")
    leader.joins()
    follower.hears()
    scene.describes()
